//! Empties the ring buffer: one plain thread that copies records into batches and passes them on.
//!
//! It waits for nothing but the ring buffer and room in the queue: not for disk, symbols or locks
//! held by others. It looks into a record only as far as to see that the target's modules have
//! changed, because then the mappings have to be read at once.
//!
//! Records are passed on in the order of the ring buffer, which is the order of events.

pub mod batch;
mod thread;

pub use batch::{Batch, Item, Records};
pub(crate) use thread::now;
pub use thread::{Drain, DrainError, Input};
