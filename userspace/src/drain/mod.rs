//! Empties the ring buffer: one plain thread that copies records into batches and passes them on.
//!
//! It waits for nothing but the ring buffer and room in the queue: not for symbols or locks held by
//! others. Room in the queue is in memory and, when the recorder is behind, in a file. It looks into a record only as far as to see that the target's modules have
//! changed, because then the mappings have to be read at once.
//!
//! Records are passed on in the order of the ring buffer, which is the order of events.

pub mod batch;
pub mod queue;
pub mod spill;
mod thread;

pub use batch::{Batch, Item, Records};
pub use spill::Spill;
pub(crate) use thread::now;
pub use thread::{Drain, DrainError, Input};
