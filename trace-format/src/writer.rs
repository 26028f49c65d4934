//! Streaming writer of interpreted heaptrack files (format version 3).
//!
//! The writer owns the numbering of all tables and interns strings, traces and allocation infos, so
//! a record is written before the first record that uses it and never twice. It does not know
//! compression ([`crate::compression::ZstdFrameWriter`] is one possible sink) nor where addresses
//! and names come from.
//!
//! Invariants of the output:
//! * heaptrack 1.3 and later read it; lines that they would misread are not written.
//! * Allocation info 0 belongs to no `+` or `-`: heaptrack's readers take a free of info 0 behind
//!   another free for a temporary allocation. The number is spent on a copy of the first real
//!   trace, which changes no table that a reader shows.
//! * No text can inject a record: line feeds never reach the output.

use std::collections::HashMap;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use crate::compression::ZstdFrameWriter;
use crate::hex;
use crate::index::{AllocationInfoIndex, IpIndex, StringIndex, TraceIndex};
use crate::note::Note;
use crate::record::Frame;

/// The heaptrack version that files claim to be written by: 1.4.0, the first whose readers all
/// take sized strings and inlined frames.
const HEAPTRACK_VERSION: u64 = 0x1_04_00;
const FILE_VERSION: u64 = 3;

/// Bytes gathered before the sink is bothered.
const BUFFER_BYTES: usize = 64 << 10;

/// What stands at the top of a file.
#[derive(Clone, Debug, Default)]
pub struct Header<'a> {
    /// The command line of the target, argument by argument. Left out when empty.
    pub command: &'a [&'a [u8]],
    /// Bytes a page.
    pub page_size: u64,
    /// Physical pages of the machine.
    pub pages: u64,
    /// Lines of the target's embedded leak suppressions; lines other than `leak:PATTERN` are left
    /// out because they mean nothing to a reader.
    pub suppressions: &'a [&'a str],
    /// The process that was attached to, 0 when unknown; `None` for a launched one.
    pub attached: Option<u32>,
    /// Wall-clock start of the recording, milliseconds since 1970.
    pub started: Option<u64>,
}

/// A table has reached the 2^32 entries that the format can number.
#[derive(Debug, thiserror::Error)]
#[error("the table of {table} is full: heaptrack files number at most 4294967295 entries")]
pub struct TableFull {
    /// Which table.
    pub table: &'static str,
}

impl From<TableFull> for io::Error {
    fn from(error: TableFull) -> Self {
        Self::other(error)
    }
}

/// Writes one trace.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    sink: W,
    buffer: Vec<u8>,
    strings: HashMap<Box<str>, StringIndex>,
    ips: usize,
    traces: FxHashMap<(IpIndex, TraceIndex), TraceIndex>,
    infos: FxHashMap<(u64, TraceIndex), AllocationInfoIndex>,
    info_count: usize,
    last_timestamp: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace: writes the header into `sink`.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn new(sink: W, header: &Header<'_>) -> io::Result<Self> {
        let mut writer = Self {
            sink,
            buffer: Vec::with_capacity(BUFFER_BYTES + 4096),
            strings: HashMap::new(),
            ips: 0,
            traces: FxHashMap::default(),
            infos: FxHashMap::default(),
            info_count: 0,
            last_timestamp: 0,
        };
        writer.header(header)?;
        Ok(writer)
    }

    fn header(&mut self, header: &Header<'_>) -> io::Result<()> {
        self.line(b'v', &[HEAPTRACK_VERSION, FILE_VERSION])?;
        self.note(&Note::Version(env!("CARGO_PKG_VERSION")))?;
        if !header.command.is_empty() {
            self.text_line(b'X', &escaped_command(header.command))?;
        }
        self.line(b'I', &[header.page_size, header.pages])?;
        for suppression in header.suppressions {
            if let Some(line) = usable_suppression(suppression) {
                self.text_line(b'S', line.as_bytes())?;
            }
        }
        if let Some(started) = header.started {
            self.note(&Note::Started(started))?;
        }
        if let Some(pid) = header.attached {
            self.buffer.extend_from_slice(b"A\n");
            if pid != 0 {
                self.note(&Note::Attached(pid))?;
            }
        }
        Ok(())
    }

    /// The index of `text`; written the first time only. Line feeds become spaces. The empty
    /// string is "none".
    ///
    /// # Errors
    /// Those of the sink, and [`TableFull`].
    pub fn string(&mut self, text: &str) -> io::Result<StringIndex> {
        if text.is_empty() {
            return Ok(StringIndex::NONE);
        }
        if text.contains('\n') {
            return self.string(&text.replace('\n', " "));
        }
        if let Some(&index) = self.strings.get(text) {
            return Ok(index);
        }
        let index =
            StringIndex::from_position(self.strings.len()).ok_or(TableFull { table: "strings" })?;
        self.strings.insert(text.into(), index);
        self.buffer.extend_from_slice(b"s ");
        hex::push(&mut self.buffer, text.len() as u64);
        self.buffer.push(b' ');
        self.buffer.extend_from_slice(text.as_bytes());
        self.end_line()?;
        Ok(index)
    }

    /// Appends an instruction pointer: a return address minus one, with the frames found there,
    /// innermost first. Not interned: an address may mean something else after its module was
    /// replaced.
    ///
    /// # Errors
    /// Those of the sink, and [`TableFull`].
    pub fn instruction_pointer(
        &mut self,
        ip: u64,
        module: StringIndex,
        frames: &[Frame],
    ) -> io::Result<IpIndex> {
        let index = IpIndex::from_position(self.ips).ok_or(TableFull {
            table: "instruction pointers",
        })?;
        self.ips += 1;
        self.buffer.extend_from_slice(b"i ");
        hex::push(&mut self.buffer, ip);
        self.number(module.get().into());
        for frame in frames_as_written(frames) {
            self.frame(frame, frames.len() == 1);
        }
        self.end_line()?;
        Ok(index)
    }

    /// A frame's fields; trailing fields that say nothing are left out where no frame follows.
    fn frame(&mut self, frame: &Frame, only: bool) {
        self.number(frame.function.get().into());
        if only && frame.file.is_none() {
            return;
        }
        self.number(frame.file.get().into());
        self.number(u64::from(frame.line.cast_unsigned()));
    }

    /// The node of the trace tree for `ip` called from `parent`; written the first time only.
    ///
    /// # Errors
    /// Those of the sink, and [`TableFull`].
    pub fn trace(&mut self, ip: IpIndex, parent: TraceIndex) -> io::Result<TraceIndex> {
        if let Some(&index) = self.traces.get(&(ip, parent)) {
            return Ok(index);
        }
        let index =
            TraceIndex::from_position(self.traces.len()).ok_or(TableFull { table: "traces" })?;
        self.traces.insert((ip, parent), index);
        self.line(b't', &[ip.get().into(), parent.get().into()])?;
        Ok(index)
    }

    /// The index of a pair of size and trace, written the first time only. An allocation of it must
    /// follow before the next new pair: heaptrack_gui 1.4 counts by index, and crashes when indices
    /// are not used for the first time in ascending order.
    ///
    /// The first allocation has index 0 for itself; others with the same size and trace get one of
    /// their own. To heaptrack_print a free of info 0 behind any other free is temporary: like this
    /// it happens once at most.
    ///
    /// # Errors
    /// Those of the sink, and [`TableFull`].
    pub fn allocation_info(
        &mut self,
        size: u64,
        trace: TraceIndex,
    ) -> io::Result<AllocationInfoIndex> {
        if let Some(index) = self.known_allocation_info(size, trace) {
            return Ok(index);
        }
        let index = u32::try_from(self.info_count).map_err(|_| TableFull {
            table: "allocation infos",
        })?;
        let index = AllocationInfoIndex::from_file(index);
        if self.info_count > 0 {
            self.infos.insert((size, trace), index);
        }
        self.info_count += 1;
        self.line(b'a', &[size, trace.get().into()])?;
        Ok(index)
    }

    /// What [`TraceWriter::allocation_info`] gives without writing anything, if it does.
    #[inline]
    #[must_use]
    pub fn known_allocation_info(
        &self,
        size: u64,
        trace: TraceIndex,
    ) -> Option<AllocationInfoIndex> {
        self.infos.get(&(size, trace)).copied()
    }

    /// One allocation.
    ///
    /// # Errors
    /// Those of the sink.
    #[inline]
    pub fn allocation(&mut self, info: AllocationInfoIndex) -> io::Result<()> {
        self.event(b'+', info)
    }

    /// One deallocation.
    ///
    /// # Errors
    /// Those of the sink.
    #[inline]
    pub fn deallocation(&mut self, info: AllocationInfoIndex) -> io::Result<()> {
        self.event(b'-', info)
    }

    #[inline]
    fn event(&mut self, letter: u8, info: AllocationInfoIndex) -> io::Result<()> {
        self.buffer.extend_from_slice(&[letter, b' ']);
        hex::push(&mut self.buffer, info.get().into());
        self.end_line()
    }

    /// A time stamp in milliseconds since the start of the recording. A stamp smaller than the
    /// one before is raised to it, since readers refuse time that runs backwards.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn timestamp(&mut self, milliseconds: u64) -> io::Result<()> {
        self.last_timestamp = self.last_timestamp.max(milliseconds);
        self.line(b'c', &[self.last_timestamp])
    }

    /// The target's resident set size in pages.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn rss(&mut self, pages: u64) -> io::Result<()> {
        self.line(b'R', &[pages])
    }

    /// A comment that readers skip. Line feeds become spaces.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn comment(&mut self, text: &str) -> io::Result<()> {
        self.text_line(b'#', text.replace('\n', " ").as_bytes())
    }

    /// A note in the vocabulary of [`crate::note`].
    ///
    /// # Errors
    /// Those of the sink.
    pub fn note(&mut self, note: &Note<'_>) -> io::Result<()> {
        let line = note.to_string().replace('\n', " ");
        self.buffer.extend_from_slice(line.as_bytes());
        self.end_line()
    }

    /// Hands everything gathered so far to the sink and flushes it.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn flush(&mut self) -> io::Result<()> {
        self.drain_buffer()?;
        self.sink.flush()
    }

    /// The sink. Call [`TraceWriter::flush`] first when it has to be up to date.
    pub fn sink_mut(&mut self) -> &mut W {
        &mut self.sink
    }

    /// The sizes of tables as heaptrack's own files end with them, in comments that nothing reads.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn table_sizes(&mut self) -> io::Result<()> {
        self.buffer.push(b'\n');
        self.comment(&format!("strings: {}", self.strings.len()))?;
        self.comment(&format!("ips: {}", self.ips))
    }

    /// Ends the trace: writes the mark by which a complete file is told from one cut short, and
    /// gives the sink back.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn finish(mut self) -> io::Result<W> {
        self.note(&Note::Complete)?;
        self.flush()?;
        Ok(self.sink)
    }

    /// As [`TraceWriter::finish`] for a trace known to lack its end: without the mark.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn finish_cut_short(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.sink)
    }

    fn line(&mut self, letter: u8, numbers: &[u64]) -> io::Result<()> {
        self.buffer.push(letter);
        for &number in numbers {
            self.number(number);
        }
        self.end_line()
    }

    fn number(&mut self, number: u64) {
        self.buffer.push(b' ');
        hex::push(&mut self.buffer, number);
    }

    fn text_line(&mut self, letter: u8, text: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(&[letter, b' ']);
        self.buffer.extend_from_slice(text);
        self.end_line()
    }

    #[inline]
    fn end_line(&mut self) -> io::Result<()> {
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER_BYTES {
            self.drain_buffer()
        } else {
            Ok(())
        }
    }

    fn drain_buffer(&mut self) -> io::Result<()> {
        self.sink.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

impl<W: Write> TraceWriter<ZstdFrameWriter<W>> {
    /// Makes everything written so far readable even if the file is never finished: closes the
    /// current zstd frame.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn checkpoint(&mut self) -> io::Result<()> {
        self.drain_buffer()?;
        self.sink.end_frame()
    }
}

/// Leaves out a single frame that says nothing at all.
fn frames_as_written(frames: &[Frame]) -> &[Frame] {
    match frames {
        [only] if only.function.is_none() && only.file.is_none() => &[],
        frames => frames,
    }
}

/// The arguments joined with spaces. Control characters would break the record over several lines
/// or confuse a terminal; they are written as in C (`\n`, `\x1b`).
fn escaped_command(arguments: &[&[u8]]) -> Vec<u8> {
    let mut text = Vec::new();
    for (position, argument) in arguments.iter().enumerate() {
        if position > 0 {
            text.push(b' ');
        }
        for &byte in *argument {
            if byte.is_ascii_control() {
                text.extend(std::ascii::escape_default(byte));
            } else {
                text.push(byte);
            }
        }
    }
    text
}

/// The line as both old readers (unsized text) and ours take it, or nothing if it has no effect.
fn usable_suppression(line: &str) -> Option<&str> {
    let line = line.trim();
    let pattern = line.strip_prefix("leak:")?;
    (!pattern.is_empty() && !line.contains('\n')).then_some(line)
}
