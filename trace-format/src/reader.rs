//! Streaming reader of interpreted heaptrack files, versions 0 to 3.
//!
//! [`RecordReader`] turns bytes into [`Record`]s one at a time. It keeps track of the file version
//! because that decides how strings and events are written, and of the place (line and byte) for
//! messages. It does not keep tables and does not judge what records refer to.
//!
//! Lines are read where they lie in the source's buffer; only one that lies across two buffers is
//! copied. Memory: the longest such line so far, at most [`MAX_LINE_BYTES`].

use std::io::{self, BufRead};

use memchr::memchr;

use crate::events::EventBatch;
use crate::fields::FieldError;
use crate::record::{Parser, Record};

/// Longest line that is read. heaptrack itself writes lines of a few kilobytes; the longest
/// template names seen in practice are below one megabyte.
pub const MAX_LINE_BYTES: usize = 64 << 20;

/// Newest file version that is understood.
pub const NEWEST_FILE_VERSION: u32 = 3;

/// The heaptrack version (1.2.0) whose files carry version 1 although they do not say so.
const HEAPTRACK_1_2: u32 = 0x1_02_00;

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

/// Reads records from `R`, which delivers decompressed bytes.
pub struct RecordReader<R> {
    source: R,
    /// How much of the source's buffer has been read, and how much there is.
    start: usize,
    end: usize,
    /// A line that lies across buffers.
    carried: Vec<u8>,
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

/// Where a line lies.
#[derive(Clone, Copy)]
enum Line {
    /// In the source's buffer.
    Buffered { start: usize, end: usize },
    /// In [`RecordReader::carried`].
    Carried,
}

impl<R: BufRead> RecordReader<R> {
    /// A reader that leaves out a last line without line feed.
    pub fn new(source: R) -> Self {
        Self::with_last_line(source, LastLine::Drop)
    }

    /// A reader with the given treatment of a last line without line feed.
    pub fn with_last_line(source: R, last_line: LastLine) -> Self {
        Self {
            source,
            start: 0,
            end: 0,
            carried: Vec::new(),
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

    /// Takes the well-formed `+` and `-` records that come next, lie whole in the source's buffer
    /// and name one of the first `known` allocation infos. This is the fast way through the bulk
    /// of a file; what it leaves out, [`RecordReader::next_record`] delivers, also further events.
    #[inline]
    pub fn take_events(&mut self, known: usize, batch: &mut EventBatch) {
        batch.clear();
        if self.file_version == 0 || self.start == self.end {
            return;
        }
        // The buffer is there already, so this neither waits nor fails.
        let Ok(buffer) = self.source.fill_buf() else {
            return;
        };
        let taken = batch.take(buffer, self.start, known);
        if taken.bytes > 0 {
            self.start += taken.bytes;
            self.next_byte += taken.bytes as u64;
            self.place = Place {
                line: self.place.line + taken.lines as u64,
                byte: self.next_byte - taken.last_line_bytes as u64,
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
        let Some(line) = self.next_line()? else {
            return Ok(None);
        };
        if text_of(line, &mut self.source, &self.carried).first() == Some(&b'v') {
            self.adopt_version(line)?;
        }
        let place = self.place;
        let line = text_of(line, &mut self.source, &self.carried);
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
    }

    /// The next line as it is, for files with other records than [`Record`] knows. The file
    /// version is kept up to date.
    ///
    /// # Errors
    /// As [`RecordReader::next_record`].
    pub fn next_text_line(&mut self) -> Result<Option<(Place, &[u8])>, ReadError> {
        let Some(line) = self.next_line()? else {
            return Ok(None);
        };
        if text_of(line, &mut self.source, &self.carried).first() == Some(&b'v') {
            self.adopt_version(line)?;
        }
        let place = self.place;
        Ok(Some((
            place,
            text_of(line, &mut self.source, &self.carried),
        )))
    }

    /// Takes over the file version of a `v` line before it is delivered.
    fn adopt_version(&mut self, line: Line) -> Result<(), ReadError> {
        let line = text_of(line, &mut self.source, &self.carried);
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
        self.carried.clear();
        self.ended = Some(Ended::Cleanly);
        // What lies in the buffer is not read any more.
        self.start = self.end;
    }

    fn next_line(&mut self) -> Result<Option<Line>, ReadError> {
        self.carried.clear();
        while self.ended.is_none() {
            let rest = match self.source.fill_buf() {
                Ok(buffer) => {
                    self.end = buffer.len();
                    buffer.get(self.start..).unwrap_or_default()
                }
                Err(error) => {
                    self.source_failed(error);
                    continue;
                }
            };
            if let Some(length) = memchr(b'\n', rest) {
                let line = if self.carried.is_empty() {
                    Line::Buffered {
                        start: self.start,
                        end: self.start + length,
                    }
                } else {
                    self.carried.extend_from_slice(&rest[..length]);
                    Line::Carried
                };
                return self.complete(line, length).map(Some);
            }
            self.carried.extend_from_slice(rest);
            self.next_buffer()?;
        }
        self.finish()
    }

    /// Steps over a line whose line feed is `length` bytes further on in the source's buffer.
    #[inline]
    fn complete(&mut self, line: Line, length: usize) -> Result<Line, ReadError> {
        let whole = match line {
            Line::Buffered { .. } => length,
            Line::Carried => self.carried.len(),
        };
        self.check_length(whole)?;
        self.step_over(whole);
        self.start += length + 1;
        Ok(line)
    }

    fn check_length(&mut self, length: usize) -> Result<(), ReadError> {
        if length < MAX_LINE_BYTES {
            return Ok(());
        }
        let place = self.next_place();
        self.end_here();
        Err(ReadError::LineTooLong { place })
    }

    /// Everything in the source's buffer was read: lets go of it.
    fn next_buffer(&mut self) -> Result<(), ReadError> {
        if self.end == 0 {
            self.ended = Some(Ended::Cleanly);
        }
        self.source.consume(self.end);
        (self.start, self.end) = (0, 0);
        self.check_length(self.carried.len())
    }

    fn source_failed(&mut self, error: io::Error) {
        (self.start, self.end) = (0, 0);
        if error.kind() != io::ErrorKind::Interrupted {
            self.ended = Some(Ended::Failed(error));
        }
    }

    /// The source has ended: deals with a line without line feed, then hands out the error if
    /// there was one.
    fn finish(&mut self) -> Result<Option<Line>, ReadError> {
        if !self.carried.is_empty() {
            self.last_line_cut = true;
            if self.last_line == LastLine::Parse {
                self.place = self.next_place();
                return Ok(Some(Line::Carried));
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

/// The text of a line that was just read. A source hands out the same buffer until it is consumed.
#[inline]
fn text_of<'a>(line: Line, source: &'a mut impl BufRead, carried: &'a [u8]) -> &'a [u8] {
    match line {
        Line::Buffered { start, end } => source
            .fill_buf()
            .ok()
            .and_then(|buffer| buffer.get(start..end))
            .unwrap_or_default(),
        Line::Carried => carried,
    }
}
