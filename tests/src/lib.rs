//! Harness of the end-to-end tests: it builds target programs whose
//! allocations are known, runs them under `htrace-bpf` and under heaptrack, and
//! reads what both wrote.
//!
//! It knows the tracer by its command line alone and shares no code with it:
//! trace files are read by [`trace_file`], a model so naive that it can be
//! checked by eye. Targets tell the truth about themselves as `key=value`
//! lines ([`truth`]). Nothing here sleeps; whoever waits reads a pipe.
//!
//! A harness fails by panicking, with the captured standard error of whatever
//! failed in the message.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test harness reports failures by panicking"
)]

pub mod caps;
pub mod elsewhere;
pub mod executed;
pub mod features;
pub mod heaptrack;
pub mod inclusive;
pub mod new_root;
pub mod process;
pub mod report;
pub mod scratch;
pub mod soak;
pub mod targets;
pub mod text_bytes;
pub mod trace_file;
pub mod tracer;
pub mod truth;

pub use features::{Feature, require};
pub use scratch::Scratch;
pub use targets::target;
pub use tracer::{Attached, Launch, Recorded};
