//! Compact unwind tables for an unwinder that runs inside the kernel.
//!
//! [`build`] turns the call frame information of an ELF image (`.eh_frame`, or `.debug_frame`
//! where that is all there is) into an [`UnwindTable`]: sorted 8-byte rows, each a code address
//! and a rule for finding the caller's frame, with an index of 256-byte blocks over them. What a
//! rule cannot express exactly is marked, never guessed; what no unwind data covers is marked too.
//!
//! The crate is pure: callers hand in bytes and get values back. It knows neither processes nor
//! load addresses nor BPF maps.
//!
//! - [`encoding`]: the bit layout of rows, and [`call_pattern`]: which byte patterns can end a near
//!   call; both are shared with the program in the kernel and come from `htrace_ebpf_common`;
//! - [`UnwindTable::filter_call_sites`]: a table reduced to what return addresses need;
//! - [`UnwindTable::to_bytes`] and [`UnwindTable::from_bytes`]: a form for a cache on disk;
//! - [`walker`]: unwinding by tables in plain Rust, the specification of the kernel's unwinder.

#![forbid(unsafe_code)]

mod builder;
mod cache;
mod elf_header;
mod entries;
mod error;
mod filter;
mod frame_sections;
mod frames;
mod image;
mod layout;
mod limits;
mod padding;
mod rules;
mod table;
pub mod walker;

pub use htrace_ebpf_common::{call_pattern, encoding};

pub use builder::{build, build_within};
pub use cache::FORMAT_VERSION;
pub use encoding::{Row, Rule, RuleKind};
pub use error::{BuildError, CacheError, TableError};
pub use limits::Limits;
pub use table::{Coverage, MAX_SEGMENTS, MAX_SPAN, Segment, Statistics, UnwindTable};
