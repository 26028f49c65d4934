//! System calls that no library wraps as needed.
//!
//! This is the lowest layer of the recorder and one of the few with `unsafe`. It knows file
//! descriptors, bytes and errno; it must not know what a program or a link is for.

pub mod bpf;
pub mod capabilities;
pub mod perf;
pub mod readiness;
pub mod scheduling;
pub mod shared_words;
