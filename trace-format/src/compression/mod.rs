//! Compressed files: complete zstd frames out; zstd, gzip and plain text in.
//!
//! Input is recognised by content, so a pipe or a misnamed file works. A truncated or damaged
//! stream yields every byte that can be decoded and then an error that says what is wrong
//! ([`Damage`]).

mod decoder;
mod frame_writer;
mod pipeline;

pub use decoder::{Container, Damage, Decoder, damage_of, decoder};
pub use frame_writer::ZstdFrameWriter;
pub use pipeline::{PipelineReader, pipelined};
