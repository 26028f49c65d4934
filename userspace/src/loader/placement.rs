//! Places probes where they cost least and still see every call: on instructions that the kernel
//! emulates, and for `malloc` and `calloc` on as few as possible.
//!
//! A probe on a function's entry and one on its return are two traps. Where the code shows a point
//! at which the size that was asked for and the result are both in registers, one trap does. The
//! points are chosen so that each call that returns a block is seen at exactly one
//! ([`cut`]); where the size is gone by then, one before it tells the size. What cannot be proved
//! from the code is not done: then entry and return are probed.
//!
//! What is relied on beyond the code itself is the ABI (calls keep rbx, rbp and r12 to r15), that
//! a compiler's stack slots are written by their own function alone, that calls that are followed
//! to an abort do not return, that `memset` and the like return what C says, and that what a
//! `calloc` calls does not call a probed function by a pointer.
//!
//! Pure: bytes in, addresses out. The file is a target's, so nothing in it is trusted, and work on
//! it is bounded.

mod branches;
mod code;
mod constants;
mod cut;
mod effects;
pub mod emulated;
mod entry;
mod points;
mod results;
mod stack;
mod values;

use std::ops::Range;

use htrace_ebpf_common::point::{Point, Register};
use object::ReadRef;

pub(super) use self::entry::skipped_at_entry;
pub use self::values::Arguments;
use self::{
    emulated::{KernelVersion, is_emulated},
    points::Known,
};
use super::operators::image::Image;

/// What a probe inside a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// Records the call: size and result are known.
    Whole,
    /// Takes the size and the stack; the result is not known yet.
    Begin,
    /// Records what another probe has begun.
    End,
}

/// A place for a probe inside a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Address of the instruction.
    pub address: u64,
    /// What is to be done there.
    pub task: Task,
    /// Where things are.
    pub point: Point,
}

/// Looks for points by which one trap tells of most calls of a function like `malloc` or `calloc`,
/// whose code is at `range`. `None` if not all calls can be seen so.
pub(super) fn inside<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    range: Range<u64>,
    arguments: Arguments,
    kernel: KernelVersion,
) -> Option<Vec<Spot>> {
    // A `malloc` is what others call, and calls none of them.
    let graph = code::graph(image, range.start, arguments != Arguments::Size)?;
    let states = values::states(&graph, range.start, arguments)?;
    let results = results::results(&graph, &states);
    let emulated = |address: &u64| {
        let bytes = image.code(*address);
        bytes.is_some_and(|bytes| is_emulated(bytes, kernel))
    };
    let known = Known {
        before: code::before(&graph),
        emulated: graph.keys().copied().filter(emulated).collect(),
        entry: range.start,
        range,
        graph,
        states,
        results,
    };
    known.choose()
}

/// The name of a register.
#[must_use]
pub fn name_of(register: Register) -> &'static str {
    const NAMES: [&str; 16] = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
        "r13", "r14", "r15",
    ];
    NAMES[usize::from(register.number()) % NAMES.len()]
}

#[cfg(test)]
mod tests;
