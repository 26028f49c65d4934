//! From a file of any kind to the text of an interpreted trace.
//!
//! Decompression runs on a thread of its own; so does the interpreting of a raw trace, which needs
//! the modules' symbols.

use std::io::{self, BufRead, BufReader, BufWriter, Chain, Cursor, PipeReader, Read};
use std::path::Path;
use std::thread;

use htrace_trace_format::compression::{PipelineReader, decoder, pipelined};
use htrace_trace_format::raw::{interpret, is_raw};

use crate::files::Files;

/// Bytes that are looked at to tell the kind of a trace. The start of a raw trace, with the
/// command line and embedded suppressions, fits in.
const START_BYTES: u64 = 64 << 10;

type Decompressed = Chain<Cursor<Vec<u8>>, PipelineReader>;

/// The text of an interpreted trace.
#[derive(Debug)]
pub enum Source {
    /// As it is in the file.
    Interpreted(Decompressed),
    /// Interpreted on the way.
    Raw(BufReader<PipeReader>),
}

/// Opens `path`.
///
/// # Errors
/// When the file cannot be opened or its start not be read, or a thread not be started.
pub fn open(path: &Path, files: &dyn Files) -> io::Result<Source> {
    let mut rest = pipelined(decoder(files.open(path)?)?)?;
    let mut start = Vec::new();
    // An error within the start comes again behind what could be read.
    let early = rest
        .by_ref()
        .take(START_BYTES)
        .read_to_end(&mut start)
        .err();
    let raw = is_raw(&start);
    let text = Cursor::new(start).chain(rest);
    if raw && early.is_none() {
        interpreted(text, files)
    } else {
        Ok(with_error(text, early))
    }
}

fn with_error(text: Decompressed, early: Option<io::Error>) -> Source {
    match early {
        None => Source::Interpreted(text),
        Some(error) => {
            Source::Interpreted(text.into_inner().0.chain(PipelineReader::failed(error)))
        }
    }
}

fn interpreted(raw: Decompressed, files: &dyn Files) -> io::Result<Source> {
    let (reader, writer) = io::pipe()?;
    let symbols = files.symbols();
    thread::Builder::new()
        .name("interpret".into())
        .spawn(move || {
            let mut resolver = symbols();
            // Whatever goes wrong, the text lacks its end, and its reader says so.
            let _ = interpret(raw, BufWriter::new(writer), resolver.as_mut());
        })?;
    Ok(Source::Raw(BufReader::new(reader)))
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Interpreted(text) => text.read(buffer),
            Self::Raw(text) => text.read(buffer),
        }
    }
}

impl BufRead for Source {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            Self::Interpreted(text) => text.fill_buf(),
            Self::Raw(text) => text.fill_buf(),
        }
    }

    fn consume(&mut self, count: usize) {
        match self {
            Self::Interpreted(text) => text.consume(count),
            Self::Raw(text) => text.consume(count),
        }
    }
}
