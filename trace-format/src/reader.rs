//! Streaming reader of interpreted heaptrack files, versions 0 to 3.
//!
//! [`RecordReader`] turns bytes into [`Record`]s one at a time. It keeps track of the file version
//! because that decides how strings and events are written, and of the place (line and byte) for
//! messages. It does not keep tables and does not judge what records refer to.
//!
//! Memory: one buffer that holds the longest line so far, at most [`MAX_LINE_BYTES`].

use std::io::{self, Read};

use memchr::memchr;

use crate::fields::FieldError;
use crate::hex;
use crate::index::AllocationInfoIndex;
use crate::record::{Parser, Record};

/// Longest line that is read. heaptrack itself writes lines of a few kilobytes; the longest
/// template names seen in practice are below one megabyte.
pub const MAX_LINE_BYTES: usize = 64 << 20;

/// Newest file version that is understood.
pub const NEWEST_FILE_VERSION: u32 = 3;

/// The heaptrack version (1.2.0) whose files carry version 1 although they do not say so.
const HEAPTRACK_1_2: u32 = 0x1_02_00;

const INITIAL_BUFFER_BYTES: usize = 256 << 10;

/// Where in the (decompressed) file something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Line, counted from 1.
    pub line: u64,
    /// Byte at which the line starts, counted from 0.
    pub byte: u64,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, byte {}", self.line, self.byte)
    }
}

/// Told of fields that could not be read. The record they belong to is still delivered.
pub trait ProblemSink {
    /// A field of the line at `place`, a record of kind `letter`, failed.
    fn field(&mut self, place: Place, letter: u8, error: FieldError);
}

/// Ignores every problem.
impl ProblemSink for () {
    fn field(&mut self, _place: Place, _letter: u8, _error: FieldError) {}
}

/// What ends reading before the end of the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The source failed. All complete lines before the failure have been delivered.
    #[error("cannot read on behind {place}")]
    Io {
        /// The last line that was read.
        place: Place,
        /// What the source said.
        #[source]
        source: io::Error,
    },
    /// The file was written by a later heaptrack with another format.
    #[error(
        "file version {file:#x}, written by heaptrack {heaptrack:#x}, is newer than version 3 ({place})"
    )]
    NewerVersion {
        /// The line that says so.
        place: Place,
        /// Version of the writing program.
        heaptrack: u32,
        /// Version of the file format.
        file: u32,
    },
    /// A line is longer than [`MAX_LINE_BYTES`].
    #[error("a line is longer than {MAX_LINE_BYTES} bytes ({place})")]
    LineTooLong {
        /// The line.
        place: Place,
    },
}

/// What to do with a last line that has no line feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastLine {
    /// Leave it out: a number may be cut short. [`RecordReader::last_line_cut`] tells.
    #[default]
    Drop,
    /// Parse it like any other line, as heaptrack does.
    Parse,
}

/// An allocation or deallocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What was allocated or freed.
    pub info: AllocationInfoIndex,
    /// A deallocation.
    pub is_free: bool,
    /// Length of the line with its line feed.
    bytes: u8,
}

/// Consecutive events, see [`RecordReader::take_events`].
#[derive(Clone, Debug, Default)]
pub struct EventBatch {
    events: Vec<Event>,
    before: Place,
    first_byte: u64,
}

impl EventBatch {
    /// Events of a full batch: few enough to stay in the processor's first cache.
    const MOST: usize = 1024;

    /// The events.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The place of the event at `position`.
    #[must_use]
    pub fn place(&self, position: usize) -> Place {
        let bytes: u64 = self
            .events
            .iter()
            .take(position)
            .map(|event| u64::from(event.bytes))
            .sum();
        Place {
            line: self.before.line + 1 + position as u64,
            byte: self.first_byte + bytes,
        }
    }
}

/// Reads records from `R`, which delivers decompressed bytes.
pub struct RecordReader<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    ended: Option<Ended>,
    place: Place,
    next_byte: u64,
    file_version: u32,
    last_line: LastLine,
    last_line_cut: bool,
    parser: Parser,
}

/// How the source ended, once it has.
enum Ended {
    Cleanly,
    /// An error that has not been handed out yet.
    Failed(io::Error),
}

impl<R> std::fmt::Debug for RecordReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordReader")
            .field("place", &self.place)
            .field("file_version", &self.file_version)
            .finish_non_exhaustive()
    }
}

/// A line's range in the buffer.
struct LineRange {
    start: usize,
    end: usize,
}

impl<R: Read> RecordReader<R> {
    /// A reader that leaves out a last line without line feed.
    pub fn new(source: R) -> Self {
        Self::with_last_line(source, LastLine::Drop)
    }

    /// A reader with the given treatment of a last line without line feed.
    pub fn with_last_line(source: R, last_line: LastLine) -> Self {
        Self {
            source,
            buffer: vec![0; INITIAL_BUFFER_BYTES],
            start: 0,
            end: 0,
            ended: None,
            place: Place::default(),
            next_byte: 0,
            file_version: 0,
            last_line,
            last_line_cut: false,
            parser: Parser::default(),
        }
    }

    /// The place of the record delivered last.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The place of the record that comes next.
    pub fn next_place(&self) -> Place {
        Place {
            line: self.place.line + 1,
            byte: self.next_byte,
        }
    }

    /// The file version in force: 0 until a `v` record says otherwise.
    pub fn file_version(&self) -> u32 {
        self.file_version
    }

    /// Whether the file ended inside a line.
    pub fn last_line_cut(&self) -> bool {
        self.last_line_cut
    }

    /// The source, which may know more about how the data ended.
    pub fn into_source(self) -> R {
        self.source
    }

    /// Takes the well-formed `+` and `-` records that come next and lie whole in the buffer. This
    /// is the fast way through the bulk of a file; what it leaves out, [`RecordReader::next_record`]
    /// delivers, also further events.
    #[inline]
    pub fn take_events(&mut self, batch: &mut EventBatch) {
        batch.events.clear();
        batch.before = self.place;
        batch.first_byte = self.next_byte;
        if self.file_version == 0 {
            return;
        }
        let Some(window) = self.buffer.get(self.start..self.end) else {
            return;
        };
        let mut used = 0;
        while let Some(&[letter, b' ', d0, d1, d2, d3, d4, d5, d6, d7]) =
            window.get(used..).and_then(|rest| rest.first_chunk())
            && (letter == b'+' || letter == b'-')
            && let Some((index, digits)) = hex::line_of_digits([d0, d1, d2, d3, d4, d5, d6, d7])
            && batch.events.len() < EventBatch::MOST
        {
            let info = AllocationInfoIndex::from_file(index);
            let bytes = digits as u8 + 3;
            batch.events.push(Event {
                info,
                is_free: letter == b'-',
                bytes,
            });
            used += usize::from(bytes);
        }
        self.advance(batch.events.len() as u64, used, batch);
    }

    fn advance(&mut self, lines: u64, bytes: usize, batch: &EventBatch) {
        if let Some(last) = batch.events.last() {
            self.start += bytes;
            self.next_byte += bytes as u64;
            let byte = self.next_byte - u64::from(last.bytes);
            self.place = Place {
                line: self.place.line + lines,
                byte,
            };
        }
    }

    /// The next record; `None` at the end of the file.
    ///
    /// # Errors
    /// See [`ReadError`]. An error of the source comes after all lines that precede it; behind any
    /// error the reader is at its end.
    pub fn next_record(
        &mut self,
        problems: &mut impl ProblemSink,
    ) -> Result<Option<Record<'_>>, ReadError> {
        let Some(range) = self.next_line()? else {
            return Ok(None);
        };
        if self.buffer.get(range.start) == Some(&b'v') {
            self.adopt_version(&range)?;
        }
        let place = self.place;
        let line = &self.buffer[range.start..range.end];
        let letter = line.first().copied().unwrap_or_default();
        let mut on_error = |error| problems.field(place, letter, error);
        let record = self.parser.parse(line, self.file_version, &mut on_error);
        Ok(Some(record))
    }

    #[inline]
    fn step_over(&mut self, line_length: usize) {
        self.place = Place {
            line: self.place.line + 1,
            byte: self.next_byte,
        };
        self.next_byte += line_length as u64 + 1;
        self.start += line_length + 1;
    }

    /// The next line as it is, for files with other records than [`Record`] knows. The file
    /// version is kept up to date.
    ///
    /// # Errors
    /// As [`RecordReader::next_record`].
    pub fn next_text_line(&mut self) -> Result<Option<(Place, &[u8])>, ReadError> {
        let Some(range) = self.next_line()? else {
            return Ok(None);
        };
        if self.buffer.get(range.start) == Some(&b'v') {
            self.adopt_version(&range)?;
        }
        Ok(Some((self.place, &self.buffer[range.start..range.end])))
    }

    /// Takes over the file version of a `v` line before it is delivered.
    fn adopt_version(&mut self, range: &LineRange) -> Result<(), ReadError> {
        let line = &self.buffer[range.start..range.end];
        let Record::Version { heaptrack, file } = self.parser.parse(line, 0, &mut |_| {}) else {
            return Ok(());
        };
        self.file_version = match file {
            Some(file) => file,
            None if heaptrack == HEAPTRACK_1_2 => 1,
            None => self.file_version,
        };
        if self.file_version > NEWEST_FILE_VERSION {
            self.end_here();
            let file = self.file_version;
            return Err(ReadError::NewerVersion {
                place: self.place,
                heaptrack,
                file,
            });
        }
        Ok(())
    }

    fn end_here(&mut self) {
        self.start = self.end;
        self.ended = Some(Ended::Cleanly);
    }

    fn next_line(&mut self) -> Result<Option<LineRange>, ReadError> {
        let mut searched = self.start;
        loop {
            if let Some(length) = memchr(b'\n', &self.buffer[searched..self.end]) {
                let range = LineRange {
                    start: self.start,
                    end: searched + length,
                };
                self.step_over(range.end - range.start);
                return Ok(Some(range));
            }
            if self.ended.is_some() {
                return self.finish();
            }
            let pending = self.end - self.start;
            self.fill()?;
            searched = self.start + pending;
        }
    }

    /// Reads more bytes behind those that are pending; makes room first.
    fn fill(&mut self) -> Result<(), ReadError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            self.grow()?;
        }
        match self.source.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.ended = Some(Ended::Cleanly),
            Ok(count) => self.end += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => self.ended = Some(Ended::Failed(error)),
        }
        Ok(())
    }

    fn grow(&mut self) -> Result<(), ReadError> {
        if self.buffer.len() >= MAX_LINE_BYTES {
            let place = Place {
                line: self.place.line + 1,
                byte: self.next_byte,
            };
            self.end_here();
            return Err(ReadError::LineTooLong { place });
        }
        self.buffer.resize(self.buffer.len() * 2, 0);
        Ok(())
    }

    /// The source has ended: deals with a line without line feed, then hands out the error if
    /// there was one.
    fn finish(&mut self) -> Result<Option<LineRange>, ReadError> {
        if self.start < self.end {
            self.last_line_cut = true;
            let range = LineRange {
                start: self.start,
                end: self.end,
            };
            self.start = self.end;
            if self.last_line == LastLine::Parse {
                self.place = Place {
                    line: self.place.line + 1,
                    byte: self.next_byte,
                };
                return Ok(Some(range));
            }
        }
        match self.ended.replace(Ended::Cleanly) {
            Some(Ended::Failed(source)) => Err(ReadError::Io {
                place: self.place,
                source,
            }),
            _ => Ok(None),
        }
    }
}
