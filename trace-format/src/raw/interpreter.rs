//! Interprets a raw trace, line by line.

use std::io::{self, BufRead, Write};

use rustc_hash::FxHashMap;

use super::modules::Modules;
use super::record::{RawRecord, parse};
use super::{RawModule, ResolvedFrame, Resolver};
use crate::index::{AllocationInfoIndex, IpIndex, StringIndex, TraceIndex};
use crate::reader::{Place, ReadError, RecordReader};
use crate::record::Frame;
use crate::writer::{Header, TraceWriter};

/// Nodes of the trace tree and live blocks together; 4 GiB of memory.
const MOST_ENTRIES: usize = 1 << 28;
/// Lines of embedded suppressions.
const MOST_SUPPRESSIONS: usize = 1 << 20;

/// What was interpreted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interpreted {
    /// Allocations.
    pub allocations: u64,
    /// Allocations without a free.
    pub leaked: u64,
    /// Lines that could not be used.
    pub bad_lines: u64,
    /// The first such line.
    pub first_bad_line: Option<Place>,
    /// The input ended early or inside a line; the output then lacks the mark of a complete file.
    pub cut_short: bool,
}

/// Why interpreting stopped without a usable result.
#[derive(Debug, thiserror::Error)]
pub enum InterpretError {
    /// The output could not be written.
    #[error("cannot write the interpreted trace")]
    Write(#[from] io::Error),
    /// The input has more backtraces, live blocks or suppressions than any real one.
    #[error("the raw trace is too large")]
    TooLarge,
    /// The input has another format.
    #[error(transparent)]
    Read(ReadError),
}

/// Reads the raw trace `source`, already decompressed, and writes the interpreted one to `sink`.
///
/// # Errors
/// See [`InterpretError`]. An input that ends early is no error, see [`Interpreted::cut_short`].
pub fn interpret(
    source: impl BufRead,
    sink: impl Write,
    resolver: &mut dyn Resolver,
) -> Result<Interpreted, InterpretError> {
    let mut reader = RecordReader::new(source);
    let mut start = Start::default();
    let mut result = Interpreted::default();
    let first = loop {
        match next(&mut reader, &mut result)? {
            Some(record) => {
                if let Some(first) = start.take(record) {
                    break Some(first);
                }
                if start.suppressions.len() > MOST_SUPPRESSIONS {
                    return Err(InterpretError::TooLarge);
                }
            }
            None => break None,
        }
    };
    let mut session = Session::new(sink, &start, resolver)?;
    if let Some(record) = first {
        session.record(record, &mut result)?;
        while let Some(record) = next(&mut reader, &mut result)? {
            session.record(record, &mut result)?;
            if session.traces.len() + session.live.len() > MOST_ENTRIES {
                return Err(InterpretError::TooLarge);
            }
        }
    }
    result.cut_short |= reader.last_line_cut();
    result.leaked = session.live.len() as u64;
    session.finish(result.cut_short)?;
    Ok(result)
}

/// The next usable record as an owned one; `None` at the end.
fn next<R: BufRead>(
    reader: &mut RecordReader<R>,
    result: &mut Interpreted,
) -> Result<Option<OwnedRecord>, InterpretError> {
    loop {
        let file_version = reader.file_version();
        match reader.next_text_line() {
            Ok(None) => return Ok(None),
            Ok(Some((_, line))) if line.first() == Some(&b'v') => {}
            Ok(Some((place, line))) => match parse(line, file_version) {
                Some(RawRecord::Comment) => {}
                Some(RawRecord::Unknown) | None => {
                    result.bad_lines += 1;
                    result.first_bad_line.get_or_insert(place);
                }
                Some(record) => return Ok(Some(OwnedRecord::from(record))),
            },
            Err(ReadError::Io { .. }) => {
                result.cut_short = true;
                return Ok(None);
            }
            Err(error) => return Err(InterpretError::Read(error)),
        }
    }
}

/// A record that does not borrow from the reader.
enum OwnedRecord {
    Executable(String),
    Command(Vec<u8>),
    System(u64, u64),
    Suppression(String),
    Attached,
    ClearModules,
    Module(RawModule, Vec<(u64, u64)>),
    Trace { ip: u64, parent: u64 },
    Allocation { size: u64, trace: u64, pointer: u64 },
    Deallocation { pointer: u64 },
    Timestamp(u64),
    Rss(u64),
    Nothing,
}

impl From<RawRecord<'_>> for OwnedRecord {
    fn from(record: RawRecord<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match record {
            RawRecord::Executable(path) => Self::Executable(text(path)),
            RawRecord::Command(command) => Self::Command(command.to_vec()),
            RawRecord::System(page_size, pages) => Self::System(page_size, pages),
            RawRecord::Suppression(line) => Self::Suppression(text(line)),
            RawRecord::Attached => Self::Attached,
            RawRecord::ClearModules => Self::ClearModules,
            RawRecord::Module(module, segments) => Self::Module(module, segments),
            RawRecord::Trace { ip, parent } => Self::Trace { ip, parent },
            RawRecord::Allocation {
                size,
                trace,
                pointer,
            } => Self::Allocation {
                size,
                trace,
                pointer,
            },
            RawRecord::Deallocation { pointer } => Self::Deallocation { pointer },
            RawRecord::Timestamp(time) => Self::Timestamp(time),
            RawRecord::Rss(pages) => Self::Rss(pages),
            RawRecord::Comment | RawRecord::Unknown => Self::Nothing,
        }
    }
}

/// What stands before the first event.
#[derive(Default)]
struct Start {
    executable: String,
    command: Option<Vec<u8>>,
    page_size: u64,
    pages: u64,
    suppressions: Vec<String>,
    attached: bool,
}

impl Start {
    /// Takes a record of the start; gives any other back.
    fn take(&mut self, record: OwnedRecord) -> Option<OwnedRecord> {
        match record {
            OwnedRecord::Executable(path) => self.executable = path,
            OwnedRecord::Command(command) => self.command = Some(command),
            OwnedRecord::System(page_size, pages) => {
                (self.page_size, self.pages) = (page_size, pages);
            }
            OwnedRecord::Suppression(line) => self.suppressions.push(line),
            OwnedRecord::Attached => self.attached = true,
            other => return Some(other),
        }
        None
    }
}

struct Session<'a, W: Write> {
    writer: TraceWriter<W>,
    resolver: &'a mut dyn Resolver,
    executable: String,
    modules: Modules,
    /// Indices of the output by position in the input.
    traces: Vec<TraceIndex>,
    ips: FxHashMap<(u64, Option<usize>), IpIndex>,
    live: FxHashMap<u64, AllocationInfoIndex>,
}

impl<'a, W: Write> Session<'a, W> {
    fn new(sink: W, start: &Start, resolver: &'a mut dyn Resolver) -> io::Result<Self> {
        let command: Vec<&[u8]> = start.command.iter().map(Vec::as_slice).collect();
        let suppressions: Vec<&str> = start.suppressions.iter().map(String::as_str).collect();
        let header = Header {
            command: &command,
            page_size: start.page_size,
            pages: start.pages,
            suppressions: &suppressions,
            attached: start.attached.then_some(0),
            started: None,
        };
        Ok(Self {
            writer: TraceWriter::new(sink, &header)?,
            resolver,
            executable: start.executable.clone(),
            modules: Modules::default(),
            traces: Vec::new(),
            ips: FxHashMap::default(),
            live: FxHashMap::default(),
        })
    }

    fn record(&mut self, record: OwnedRecord, result: &mut Interpreted) -> io::Result<()> {
        match record {
            OwnedRecord::ClearModules => self.modules.clear(),
            OwnedRecord::Module(module, segments) => self.load(module, &segments),
            OwnedRecord::Trace { ip, parent } => self.trace(ip, parent)?,
            OwnedRecord::Allocation {
                size,
                trace,
                pointer,
            } => {
                result.allocations += 1;
                self.allocate(size, trace, pointer)?;
            }
            OwnedRecord::Deallocation { pointer } => {
                if let Some(info) = self.live.remove(&pointer) {
                    self.writer.deallocation(info)?;
                }
            }
            OwnedRecord::Timestamp(time) => self.writer.timestamp(time)?,
            OwnedRecord::Rss(pages) => self.writer.rss(pages)?,
            _ => {}
        }
        Ok(())
    }

    fn load(&mut self, mut module: RawModule, segments: &[(u64, u64)]) {
        if module.path == "x" {
            module.path.clone_from(&self.executable);
        }
        self.modules.load(module, segments);
    }

    fn trace(&mut self, ip: u64, parent: u64) -> io::Result<()> {
        let parent = self.trace_index(parent);
        let ip = if ip == 0 { IpIndex::NONE } else { self.ip(ip)? };
        let trace = self.writer.trace(ip, parent)?;
        self.traces.push(trace);
        Ok(())
    }

    fn trace_index(&self, index: u64) -> TraceIndex {
        let position = usize::try_from(index)
            .ok()
            .and_then(|index| index.checked_sub(1));
        position
            .and_then(|position| self.traces.get(position))
            .copied()
            .unwrap_or_default()
    }

    fn ip(&mut self, address: u64) -> io::Result<IpIndex> {
        let position = self.modules.find(address);
        if let Some(&known) = self.ips.get(&(address, position)) {
            return Ok(known);
        }
        let index = match position.and_then(|position| self.modules.get(position)) {
            Some(module) => {
                let resolved = self
                    .resolver
                    .resolve(&module.path, address.wrapping_sub(module.bias));
                let path = self.writer.string(&module.path)?;
                self.named_ip(address, path, &resolved)?
            }
            None => self
                .writer
                .instruction_pointer(address, StringIndex::NONE, &[])?,
        };
        self.ips.insert((address, position), index);
        Ok(index)
    }

    fn named_ip(
        &mut self,
        address: u64,
        module: StringIndex,
        resolved: &[ResolvedFrame],
    ) -> io::Result<IpIndex> {
        let mut frames = Vec::with_capacity(resolved.len());
        for frame in resolved {
            let function = self.writer.string(&frame.function)?;
            let file = self.writer.string(&frame.file)?;
            frames.push(Frame {
                function,
                file,
                line: frame.line.cast_signed(),
            });
        }
        self.writer.instruction_pointer(address, module, &frames)
    }

    fn allocate(&mut self, size: u64, trace: u64, pointer: u64) -> io::Result<()> {
        let info = self.writer.allocation_info(size, self.trace_index(trace))?;
        self.live.insert(pointer, info);
        self.writer.allocation(info)
    }

    fn finish(mut self, cut_short: bool) -> io::Result<()> {
        self.writer.table_sizes()?;
        if cut_short {
            self.writer.finish_cut_short()
        } else {
            self.writer.finish()
        }
        .map(drop)
    }
}
