//! heaptrack data files: records, a streaming writer, a streaming reader, and their compression.
//!
//! The crate knows bytes and records. It must not know what records mean for a profile (that is
//! `htrace-analysis`), where they come from (BPF, processes) or where the bytes live (files,
//! pipes): everything is generic over [`std::io::Read`] and [`std::io::Write`].
//!
//! Invariants:
//! * Reading never panics and never holds more than one line (bounded by
//!   [`reader::MAX_LINE_BYTES`]) plus fixed buffers, whatever the input is.
//! * Writing produces files that heaptrack 1.3 and later read.
//!
//! The format is the interpreted heaptrack file of versions 0 to 3: text, one record a line, the
//! first byte names the record, numbers are lower-case hexadecimal without prefix.
#![forbid(unsafe_code)]

pub mod compression;
pub mod events;
pub mod fields;
pub mod hex;
pub mod index;
pub mod note;
pub mod raw;
pub mod reader;
pub mod record;
pub mod writer;

pub use events::{Event, EventBatch};
pub use index::{AllocationInfoIndex, IpIndex, StringIndex, TraceIndex};
pub use note::{Note, TargetExit};
pub use reader::{Place, ProblemSink, ReadError, RecordReader};
pub use record::{Frame, Record};
pub use writer::TraceWriter;
