//! Records of an interpreted heaptrack file, and their parsing from one line.
//!
//! Parsing is lenient exactly where heaptrack's readers are: a missing trailing field counts as 0
//! or as absent, and a record that would shift a table when left out is kept with empty contents.
//! What cannot be kept comes out as [`Record::Malformed`]. Semantics (what an index refers to, is
//! it in range) are not checked here.

use crate::fields::{FieldError, Fields};
use crate::index::{AllocationInfoIndex, IpIndex, StringIndex, TraceIndex};

/// One function at an instruction pointer, with the source line it stands at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// Function name; none when unknown.
    pub function: StringIndex,
    /// Source file; none when unknown.
    pub file: StringIndex,
    /// Source line from 1; 0 when unknown. Signed because old files may wrap it.
    pub line: i32,
}

/// An instruction pointer: a return address minus one, its module and its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstructionPointer<'a> {
    /// The address.
    pub ip: u64,
    /// Path of the module that the address lies in.
    pub module: StringIndex,
    /// The innermost function.
    pub frame: Frame,
    /// The functions it was inlined into, from inner to outer, each with the line of the call.
    pub inlined: &'a [Frame],
}

/// One record of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// `v`: who wrote the file (`major << 16 | minor << 8 | patch`), and the file version, where
    /// given.
    Version {
        /// Version of the writing program; 0 when unreadable.
        heaptrack: u32,
        /// Version of the file format.
        file: Option<u32>,
    },
    /// `X`: the command line, arguments joined with spaces.
    Command(&'a [u8]),
    /// `I`: bytes a page and number of physical pages, as far as readable.
    System {
        /// Bytes a page.
        page_size: Option<i64>,
        /// Physical pages of the machine.
        pages: Option<i64>,
    },
    /// `S`: one line of the target's embedded leak suppressions, as it stands in the file.
    Suppression(&'a [u8]),
    /// `A`: the trace was recorded by attaching to a running process.
    Attached,
    /// `s`: appends to the string table. Empty when it could not be parsed.
    String(&'a [u8]),
    /// `i`: appends to the table of instruction pointers.
    InstructionPointer(InstructionPointer<'a>),
    /// `t`: appends to the trace tree.
    Trace {
        /// Instruction pointer of the node.
        ip: IpIndex,
        /// The caller's node.
        parent: TraceIndex,
    },
    /// `a`: appends to the table of allocation infos.
    AllocationInfo {
        /// Bytes that were asked for.
        size: u64,
        /// Backtrace of the allocation.
        trace: TraceIndex,
    },
    /// `+` of file version 1 and later.
    Allocation(AllocationInfoIndex),
    /// `-` of file version 1 and later.
    Deallocation(AllocationInfoIndex),
    /// `+` of file version 0.
    RawAllocation {
        /// Bytes that were asked for.
        size: u64,
        /// Backtrace of the allocation.
        trace: TraceIndex,
        /// Address of the block.
        pointer: u64,
    },
    /// `-` of file version 0.
    RawDeallocation {
        /// Address of the block.
        pointer: u64,
    },
    /// `c`: milliseconds since the start of the recording.
    Timestamp(i64),
    /// `R`: resident set size in pages.
    Rss(i64),
    /// `#` or an empty line; the text behind the `#`.
    Comment(&'a [u8]),
    /// A record that only raw files have (`x` or `m`).
    RawOnly(&'a [u8]),
    /// A line that is no record.
    Malformed(Malformed<'a>),
}

/// A line that could not be used, and which record it claims to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed<'a> {
    /// What is wrong.
    pub kind: MalformedKind,
    /// The whole line.
    pub line: &'a [u8],
}

/// Kinds of lines that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedKind {
    /// `+` without its index (version 1 and later).
    Allocation,
    /// `+` without all three fields (version 0).
    RawAllocation,
    /// `-` without its field.
    Deallocation,
    /// `a` without both fields.
    AllocationInfo,
    /// `c` without a number.
    Timestamp,
    /// The line starts with a letter that no record has.
    Unknown,
}

/// Parses lines; keeps the scratch space for inlined frames.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    inlined: Vec<Frame>,
}

impl Parser {
    /// Parses one line of a file of version `file_version`. `on_error` is told of each field that
    /// failed for another reason than being absent.
    pub(crate) fn parse<'a>(
        &'a mut self,
        line: &'a [u8],
        file_version: u32,
        on_error: &mut dyn FnMut(FieldError),
    ) -> Record<'a> {
        let Some(&letter) = line.first() else {
            return Record::Comment(line);
        };
        let fields = FieldReader {
            fields: Fields::new(line),
            on_error,
        };
        match letter {
            b'+' => parse_allocation(fields, line, file_version),
            b'-' => parse_deallocation(fields, line, file_version),
            b'a' => parse_allocation_info(fields, line),
            b't' => parse_trace(fields),
            b's' => parse_string(fields, file_version),
            b'i' => Record::InstructionPointer(self.parse_ip(fields)),
            b'c' => parse_timestamp(fields, line),
            b'R' => parse_rss(fields),
            b'v' => parse_version(fields),
            b'I' => parse_system(fields),
            b'X' => Record::Command(fields.fields.rest()),
            b'S' => Record::Suppression(fields.fields.rest()),
            b'A' => Record::Attached,
            b'#' => Record::Comment(&line[1..]),
            b'x' | b'm' => Record::RawOnly(line),
            _ => Record::Malformed(Malformed {
                kind: MalformedKind::Unknown,
                line,
            }),
        }
    }

    fn parse_ip(&mut self, mut fields: FieldReader<'_, '_>) -> InstructionPointer<'_> {
        self.inlined.clear();
        let ip = fields.hex().unwrap_or(0);
        let module = fields.string_index().unwrap_or_default();
        let (frame, complete) = fields.frame();
        if complete {
            while let (inlined, true) = fields.frame() {
                self.inlined.push(inlined);
            }
        }
        InstructionPointer {
            ip,
            module,
            frame,
            inlined: &self.inlined,
        }
    }
}

/// Fields whose errors are reported as they happen.
struct FieldReader<'a, 'e> {
    fields: Fields<'a>,
    on_error: &'e mut dyn FnMut(FieldError),
}

impl<'a> FieldReader<'a, '_> {
    fn hex(&mut self) -> Option<u64> {
        let value = self.fields.hex();
        self.checked(value)
    }

    /// A number of 32 bits; wraps as heaptrack's does.
    fn hex32(&mut self) -> Option<u32> {
        self.hex().map(|value| value as u32)
    }

    /// A signed number of 64 bits; wraps.
    fn hex_signed(&mut self) -> Option<i64> {
        self.hex().map(u64::cast_signed)
    }

    fn string_index(&mut self) -> Option<StringIndex> {
        self.hex32().map(StringIndex::from_file)
    }

    fn sized_string(&mut self) -> Option<&'a [u8]> {
        let text = self.fields.sized_string();
        self.checked(text)
    }

    fn checked<T>(&mut self, field: Result<T, FieldError>) -> Option<T> {
        match field {
            Ok(value) => Some(value),
            Err(FieldError::Missing) => None,
            Err(error) => {
                (self.on_error)(error);
                None
            }
        }
    }

    /// A frame and whether all three of its fields were there. Reading stops at the first field
    /// that is not.
    fn frame(&mut self) -> (Frame, bool) {
        let mut frame = Frame::default();
        let Some(function) = self.string_index() else {
            return (frame, false);
        };
        frame.function = function;
        let Some(file) = self.string_index() else {
            return (frame, false);
        };
        frame.file = file;
        let Some(line) = self.hex32() else {
            return (frame, false);
        };
        frame.line = line.cast_signed();
        (frame, true)
    }
}

fn parse_allocation<'a>(
    mut fields: FieldReader<'a, '_>,
    line: &'a [u8],
    file_version: u32,
) -> Record<'a> {
    if file_version >= 1 {
        return match fields.hex32() {
            Some(info) => Record::Allocation(AllocationInfoIndex::from_file(info)),
            None => Record::Malformed(Malformed {
                kind: MalformedKind::Allocation,
                line,
            }),
        };
    }
    let raw = (|| {
        let size = fields.hex()?;
        let trace = TraceIndex::from_file(fields.hex32()?);
        let pointer = fields.hex()?;
        Some(Record::RawAllocation {
            size,
            trace,
            pointer,
        })
    })();
    raw.unwrap_or(Record::Malformed(Malformed {
        kind: MalformedKind::RawAllocation,
        line,
    }))
}

fn parse_deallocation<'a>(
    mut fields: FieldReader<'a, '_>,
    line: &'a [u8],
    file_version: u32,
) -> Record<'a> {
    match fields.hex() {
        Some(info) if file_version >= 1 => {
            Record::Deallocation(AllocationInfoIndex::from_file(info as u32))
        }
        Some(pointer) => Record::RawDeallocation { pointer },
        None => Record::Malformed(Malformed {
            kind: MalformedKind::Deallocation,
            line,
        }),
    }
}

fn parse_allocation_info<'a>(mut fields: FieldReader<'a, '_>, line: &'a [u8]) -> Record<'a> {
    let Some(size) = fields.hex() else {
        return Record::Malformed(Malformed {
            kind: MalformedKind::AllocationInfo,
            line,
        });
    };
    let Some(trace) = fields.hex32() else {
        return Record::Malformed(Malformed {
            kind: MalformedKind::AllocationInfo,
            line,
        });
    };
    Record::AllocationInfo {
        size,
        trace: TraceIndex::from_file(trace),
    }
}

fn parse_trace<'a>(mut fields: FieldReader<'a, '_>) -> Record<'a> {
    let ip = IpIndex::from_file(fields.hex32().unwrap_or(0));
    let parent = TraceIndex::from_file(fields.hex32().unwrap_or(0));
    Record::Trace { ip, parent }
}

fn parse_string<'a>(mut fields: FieldReader<'a, '_>, file_version: u32) -> Record<'a> {
    if file_version >= 3 {
        Record::String(fields.sized_string().unwrap_or_default())
    } else {
        Record::String(fields.fields.rest())
    }
}

fn parse_timestamp<'a>(mut fields: FieldReader<'a, '_>, line: &'a [u8]) -> Record<'a> {
    match fields.hex_signed() {
        Some(milliseconds) => Record::Timestamp(milliseconds),
        None => Record::Malformed(Malformed {
            kind: MalformedKind::Timestamp,
            line,
        }),
    }
}

fn parse_rss<'a>(mut fields: FieldReader<'a, '_>) -> Record<'a> {
    Record::Rss(fields.hex_signed().unwrap_or(0))
}

fn parse_version<'a>(mut fields: FieldReader<'a, '_>) -> Record<'a> {
    let heaptrack = fields.hex32().unwrap_or(0);
    Record::Version {
        heaptrack,
        file: fields.hex32(),
    }
}

fn parse_system<'a>(mut fields: FieldReader<'a, '_>) -> Record<'a> {
    let page_size = fields.hex_signed();
    Record::System {
        page_size,
        pages: fields.hex_signed(),
    }
}
