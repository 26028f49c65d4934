//! heaptrack_print's messages on standard error.

use std::io::{self, Write};
use std::path::Path;

use htrace_trace_format::fields::FieldError;
use htrace_trace_format::record::{Malformed, MalformedKind};
use htrace_trace_format::{Place, ReadError, TraceIndex};

use super::Version;
use crate::problem::{Diagnostics, LoadError, Problem};

/// Writes messages in the words of one version, and counts them.
pub(super) struct Messages<W> {
    version: Version,
    err: W,
    count: u64,
}

impl<W: Write> Messages<W> {
    pub(super) fn new(version: Version, err: W) -> Self {
        Self {
            version,
            err,
            count: 0,
        }
    }

    /// How many there have been.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Writes a line. Errors of standard error have nowhere to go.
    fn say(&mut self, parts: &[&[u8]]) {
        self.count += 1;
        let _ = self.err.write_all(&parts.concat());
        let _ = self.err.write_all(b"\n");
    }

    pub(super) fn bad_suppression(&mut self, line: &[u8]) {
        self.say(&[b"invalid suppression line: ", line]);
    }

    pub(super) fn cycle(&mut self, trace: TraceIndex) {
        let message = format!(
            "Trace recursion detected - corrupt data file? {}",
            trace.get()
        );
        self.say(&[message.as_bytes()]);
    }

    /// Two kinds of messages name the line of heaptrack's own source.
    fn malformed(&mut self, malformed: Malformed<'_>) {
        let source_line = match (malformed.kind, self.version) {
            (MalformedKind::Timestamp, _) => {
                return self.say(&[b"Failed to read time stamp: ", malformed.line]);
            }
            (MalformedKind::Allocation, Version::V1_4) => " 319",
            (MalformedKind::Allocation, Version::V1_5) => " 314",
            (MalformedKind::Allocation, Version::V1_6) => " 315",
            (MalformedKind::RawAllocation, Version::V1_4) => " 332",
            (MalformedKind::RawAllocation, Version::V1_5) => " 327",
            (MalformedKind::RawAllocation, Version::V1_6) => " 328",
            _ => "",
        };
        self.say(&[
            b"failed to parse line: ",
            malformed.line,
            source_line.as_bytes(),
        ]);
    }

    /// Says why reading ended.
    pub(super) fn fatal(&mut self, path: &Path, error: &LoadError) -> io::Result<()> {
        match error {
            LoadError::DuplicateCommand { .. } => {
                self.say(&[b"Duplicated debuggee entry - corrupt data file?"]);
            }
            LoadError::RawFile { line, .. } => {
                self.say(&[b"failed to parse line: ", line]);
                self.say(&[
                    b"this looks like a raw file that needs to be interpreted first via `heaptrack -i`",
                ]);
            }
            LoadError::Read(ReadError::NewerVersion {
                heaptrack, file, ..
            }) => {
                let ours = self.version.number();
                let message = format!(
                    "The data file has version {file:x} and was written by heaptrack version {heaptrack:x})\n\
                     This is not compatible with this build of heaptrack (version {ours:x}), which can read \
                     file format version 3 and below"
                );
                self.say(&[message.as_bytes()]);
            }
            other => writeln!(self.err, "{}: {other}", path.display())?,
        }
        Ok(())
    }
}

impl<W: Write> Diagnostics for Messages<W> {
    fn problem(&mut self, _place: Place, problem: &Problem<'_>) {
        match problem {
            Problem::Field {
                error: FieldError::NotHex { byte, position },
                ..
            } => {
                let byte = byte.cast_signed();
                let message = format!("unexpected non-hex char: {byte} {position:x}");
                self.say(&[message.as_bytes()]);
            }
            Problem::Field { .. } | Problem::DuplicateCommand => {}
            Problem::Malformed(malformed) => self.malformed(*malformed),
            Problem::InfoOutOfRange { index, known, .. } => {
                let message =
                    format!("allocation index out of bounds: {index}, maximum is: {known}");
                self.say(&[message.as_bytes()]);
            }
            Problem::DecreasingTime { new, old } => {
                let message = format!(
                    "Damaged timestamp detected: {new} is less than the previous timestamp {old}"
                );
                self.say(&[message.as_bytes()]);
            }
            Problem::BadSuppression(line) => self.bad_suppression(line),
        }
    }
}
