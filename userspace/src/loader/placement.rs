//! Places probes where they cost least and still see every call: on instructions that the kernel
//! emulates, and for `malloc` on as few as possible.
//!
//! A probe on a function's entry and one on its return are two traps. Where the code shows a point
//! at which the size that was asked for and the result are both in registers, one trap does. The
//! points are chosen so that each call that returns a block passes exactly one
//! ([`cut`]); where the size is gone by then, one before it tells the size. What cannot be proved
//! from the code is not done: then entry and return are probed.
//!
//! What is relied on beyond the code itself is the ABI (calls keep rbx, rbp and r12 to r15), that
//! a compiler's stack slots are written by their own function alone, and that calls that are
//! followed to an abort do not return.
//!
//! Pure: bytes in, addresses out. The file is a target's, so nothing in it is trusted, and work on
//! it is bounded.

mod code;
mod constants;
mod cut;
mod effects;
pub mod emulated;
mod results;
mod values;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use htrace_ebpf_common::{
    function::Function,
    point::{Point, Register},
};
use iced_x86::InstructionInfoFactory;
use object::ReadRef;

pub use self::values::Arguments;
use self::{
    code::Graph,
    effects::Location,
    emulated::{KernelVersion, is_emulated},
    results::Result as Returned,
    values::State,
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
        emulated: graph.keys().copied().filter(emulated).collect(),
        entry: range.start,
        range,
        graph,
        states,
        results,
    };
    known.choose()
}

/// How many bytes of the function at `range` a probe may skip to stand on an instruction that the
/// kernel emulates, with memory, so many arguments and the stack as at the entry. `None` if there is
/// none that each call passes once.
pub(super) fn skipped_at_entry<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    range: Range<u64>,
    arguments: usize,
    kernel: KernelVersion,
) -> Option<u64> {
    const MOST_BYTES: u64 = 64;
    let mut factory = InstructionInfoFactory::new();
    let mut address = range.start;
    while address - range.start < MOST_BYTES {
        if is_emulated(image.code(address)?, kernel) {
            let skipped = address - range.start;
            return (skipped == 0 || !is_returned_to(image, range, address)).then_some(skipped);
        }
        let instruction = image.instruction(address)?;
        if !effects::keeps_entry(&instruction, arguments, &mut factory) {
            return None;
        }
        address = instruction.next_ip();
    }
    None
}

/// True if a branch of the function leads to its begin, up to `last`, so that a call could pass
/// there again. What lies between instructions is read as instructions too, which can only make
/// the answer true.
fn is_returned_to<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    range: Range<u64>,
    last: u64,
) -> bool {
    let mut address = range.start;
    while address < range.end {
        let Some(instruction) = image.instruction(address) else {
            return false;
        };
        let target = instruction.near_branch_target();
        let jumps = instruction.is_jcc_short_or_near() || instruction.is_jmp_short_or_near();
        if jumps && (range.start..=last).contains(&target) {
            return true;
        }
        address = instruction.next_ip();
    }
    false
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

/// A function as it was understood.
struct Known {
    graph: Graph,
    states: BTreeMap<u64, State>,
    results: BTreeMap<u64, Returned>,
    emulated: BTreeSet<u64>,
    entry: u64,
    range: Range<u64>,
}

impl Known {
    fn choose(&self) -> Option<Vec<Spot>> {
        let ends = |address| self.result_in(address).is_some();
        let failing = results::failing(&self.graph, &self.results);
        let fails = |address| failing.contains(&address);
        let last = cut::cut(&self.graph, self.entry, ends, fails)?;
        let (whole, ends): (BTreeSet<u64>, BTreeSet<u64>) =
            last.iter().partition(|address| self.is_whole(**address));
        let begins = |address| self.size_in(address).is_some() && !last.contains(&address);
        let begins = cut::guard(&self.graph, self.entry, &ends, begins)?;
        // Without a point that does alone, nothing is gained.
        if whole.is_empty() {
            return None;
        }
        let of = |task, addresses: &BTreeSet<u64>| -> Option<Vec<Spot>> {
            let spot = |address: &u64| self.spot(task, *address);
            addresses.iter().map(spot).collect()
        };
        let mut spots = of(Task::Begin, &begins)?;
        spots.extend(of(Task::Whole, &whole)?);
        spots.extend(of(Task::End, &ends)?);
        Some(spots)
    }

    /// The register that holds the result at a place where a probe can stand.
    fn result_in(&self, address: u64) -> Option<Register> {
        let probed = self.emulated.contains(&address) && self.frame(address).is_some();
        match self.results.get(&address) {
            Some(Returned::At(Location::Register(number))) if probed => {
                Some(Register::new(*number))
            }
            _ => None,
        }
    }

    /// The register that holds the size, at a place where a probe can stand and that belongs to
    /// no other function.
    fn size_in(&self, address: u64) -> Option<Register> {
        let probed = self.emulated.contains(&address) && self.range.contains(&address);
        let state = self.states.get(&address).filter(|_| probed)?;
        self.frame(address)?;
        state.size().map(Register::new)
    }

    fn is_whole(&self, address: u64) -> bool {
        self.result_in(address).is_some() && self.size_in(address).is_some()
    }

    /// Words from the stack pointer up to the return address, and from that down to the caller's
    /// rbp, or 0.
    fn frame(&self, address: u64) -> Option<(u16, u16)> {
        const WORD: i64 = 8;
        let state = self.states.get(&address)?;
        let words = |below: i64| {
            let words = u16::try_from(-below / WORD).ok()?;
            (below % WORD == 0 && words < Point::MAX_WORDS).then_some(words)
        };
        let rbp = match state.rbp()? {
            Location::Register(_) => 0,
            Location::Slot(at) => words(at)?,
        };
        Some((words(state.stack.sp)?, rbp))
    }

    fn spot(&self, task: Task, address: u64) -> Option<Spot> {
        let (stack_words, rbp_words) = self.frame(address)?;
        let (size, result) = match task {
            Task::Whole => (self.size_in(address), self.result_in(address)),
            Task::Begin => (self.size_in(address), None),
            Task::End => (None, self.result_in(address)),
        };
        let point = Point {
            // Seen at points of their own, such calls are like those of `operator new`.
            function: (task != Task::End).then_some(Function::OperatorNew),
            size_in: size,
            result_in: result,
            stack_words,
            rbp_words,
        };
        Some(Spot {
            address,
            task,
            point,
        })
    }
}

#[cfg(test)]
mod tests;
