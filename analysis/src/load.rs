//! Reading a whole trace into a profile, in one pass.

use std::io::BufRead;

use htrace_trace_format::fields::FieldError;
use htrace_trace_format::{EventBatch, Place, ProblemSink, RecordReader};

use crate::builder::{Builder, Pass, Rules};
use crate::observer::Observer;
use crate::problem::{Diagnostics, LoadError, Problem, ProblemLog};
use crate::profile::Profile;

/// A profile, and what kept it from being whole.
#[derive(Debug)]
pub struct Loaded {
    /// What could be read.
    pub profile: Profile,
    /// The error that ended reading early.
    pub stopped_by: Option<LoadError>,
    /// The file ended inside a line.
    pub last_line_cut: bool,
}

impl Loaded {
    /// Whether everything was there and made sense.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.stopped_by.is_none()
            && !self.last_line_cut
            && self.profile.problems.count == 0
            && !self.profile.notes.cut_short()
    }
}

/// Passes problems of fields on as problems of the file.
pub(crate) struct FieldProblems<'a, D>(pub(crate) &'a mut D);

impl<D: Diagnostics> ProblemSink for FieldProblems<'_, D> {
    fn field(&mut self, place: Place, letter: u8, error: FieldError) {
        self.0.problem(place, &Problem::Field { letter, error });
    }
}

/// Reads the decompressed trace `source`. Never fails: what could be read is in the profile, and
/// what went wrong stands beside it.
pub fn load(source: impl BufRead, rules: Rules, observer: &mut impl Observer) -> Loaded {
    let mut reader = RecordReader::new(source);
    let mut builder = Builder::new(rules, Pass::Only);
    let mut problems = ProblemLog::default();
    let stopped_by = read_all(&mut reader, &mut builder, observer, &mut problems).err();
    let runtime = builder.now().saturating_add(1);
    observer.ended(builder.so_far(runtime));
    Loaded {
        profile: builder.finish(runtime, problems),
        stopped_by,
        last_line_cut: reader.last_line_cut(),
    }
}

fn read_all<R: BufRead>(
    reader: &mut RecordReader<R>,
    builder: &mut Builder,
    observer: &mut impl Observer,
    problems: &mut ProblemLog,
) -> Result<(), LoadError> {
    let mut batch = EventBatch::default();
    loop {
        reader.take_events(builder.known_infos(), &mut batch);
        builder.events(&batch, observer);
        let place = reader.next_place();
        let Some(record) = reader.next_record(&mut FieldProblems(problems))? else {
            return Ok(());
        };
        builder.record(place, record, observer, problems)?;
    }
}
