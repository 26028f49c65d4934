//! Reading a file twice, as heaptrack_print does.
//!
//! For a well-formed file both passes come to the same result, so the second one is left out. A
//! malformed file really is read again: its messages come twice, and its figures may differ.

use std::io::{self, BufRead, Write};

use htrace_trace_format::fields::FieldError;
use htrace_trace_format::reader::LastLine;
use htrace_trace_format::{EventBatch, Place, ProblemSink, ReadError, RecordReader};

use super::messages::Messages;
use crate::builder::{Builder, Pass, Rules};
use crate::histogram::Histogram;
use crate::observer::Observer;
use crate::problem::{Diagnostics, LoadError, Problem, ProblemLog};
use crate::profile::Profile;

/// Massif snapshots are written in the first pass, sizes are counted in the last.
pub(super) struct Observers<M> {
    pub(super) massif: Option<M>,
    pub(super) histogram: Option<Histogram>,
}

/// Reads a file that `open` opens, once for each pass.
pub(super) fn load_twice<R: BufRead, M: Observer, W: Write>(
    open: impl Fn() -> io::Result<R>,
    rules: Rules,
    observers: &mut Observers<M>,
    messages: &mut Messages<W>,
) -> Result<Profile, LoadError> {
    let mut builder = Builder::new(rules, Pass::First);
    let mut both = (observers.massif.take(), observers.histogram.take());
    let said_before = messages.count();
    one_pass(&open, &mut builder, i64::MAX, &mut both, messages)?;
    let runtime = builder.now().wrapping_add(1);
    both.ended(builder.so_far(runtime));
    (observers.massif, observers.histogram) = both;
    if builder.is_irregular() || messages.count() != said_before {
        builder.start_second_pass();
        if let Some(histogram) = &mut observers.histogram {
            histogram.clear();
        }
        one_pass(
            &open,
            &mut builder,
            runtime,
            &mut observers.histogram,
            messages,
        )?;
    }
    Ok(builder.finish(runtime, ProblemLog::default()))
}

/// Reads until the time stamps reach `until`.
fn one_pass<R: BufRead, W: Write>(
    open: impl Fn() -> io::Result<R>,
    builder: &mut Builder,
    until: i64,
    observer: &mut impl Observer,
    messages: &mut Messages<W>,
) -> Result<(), LoadError> {
    let source = open().map_err(|source| ReadError::Io {
        place: Place::default(),
        source,
    })?;
    let mut reader = RecordReader::with_last_line(source, LastLine::Parse);
    let second = builder.is_second_pass();
    let mut batch = EventBatch::default();
    while builder.now() < until {
        reader.take_events(builder.known_infos(), &mut batch);
        builder.events(&batch, observer);
        let place = reader.next_place();
        let mut fields = Fields { messages, second };
        let Some(record) = reader.next_record(&mut fields)? else {
            break;
        };
        builder.record(place, record, observer, messages)?;
    }
    Ok(())
}

/// In the second pass nothing is said about records that fill tables.
struct Fields<'a, W> {
    messages: &'a mut Messages<W>,
    second: bool,
}

impl<W: Write> ProblemSink for Fields<'_, W> {
    fn field(&mut self, place: Place, letter: u8, error: FieldError) {
        if !(self.second && b"sita".contains(&letter)) {
            self.messages
                .problem(place, &Problem::Field { letter, error });
        }
    }
}
