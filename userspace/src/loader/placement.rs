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

mod branches;
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
    cut::Way,
    effects::Location,
    emulated::{KernelVersion, is_emulated},
    results::{Result as Returned, Results},
    values::States,
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
    /// For each instruction those that can be right before it.
    before: BTreeMap<u64, Vec<u64>>,
    states: States,
    results: Results,
    emulated: BTreeSet<u64>,
    entry: u64,
    range: Range<u64>,
}

impl Known {
    fn choose(&self) -> Option<Vec<Spot>> {
        let unseen = self.reached_unseen();
        // As late as possible is where a call fails no more; but not where one trap did before.
        let early = |from| self.is_whole(from) || unseen.contains(&from);
        self.spots(early).or_else(|| self.spots(|_| true))
    }

    /// Instructions that a call can reach without passing a point that does alone.
    fn reached_unseen(&self) -> BTreeSet<u64> {
        let mut waiting = vec![self.entry];
        let mut reached = BTreeSet::new();
        while let Some(from) = waiting.pop() {
            let Some(node) = self.graph.get(&from).filter(|_| reached.insert(from)) else {
                continue;
            };
            let whole = self.is_whole(from);
            let goes_on = |to: &&u64| !(whole && self.way(from, **to) == Way::Seen);
            waiting.extend(node.followers.iter().filter(goes_on));
        }
        reached
    }

    /// Points among the instructions that `may_see`.
    fn spots(&self, may_see: impl Fn(u64) -> bool) -> Option<Vec<Spot>> {
        let fails = |address| self.results.fails(address);
        let way = |from, to| match self.way(from, to) {
            Way::Seen if !may_see(from) => Way::Unseen,
            way => way,
        };
        let last = cut::cut(&self.graph, self.entry, way, fails)?;
        let (whole, ends): (BTreeSet<u64>, BTreeSet<u64>) =
            last.iter().partition(|address| self.is_whole(**address));
        // Without a point that does alone, nothing is gained.
        if whole.is_empty() {
            return None;
        }
        let begins = |address| self.size_in(address).is_some() && !last.contains(&address);
        let begins = cut::guard(&self.graph, self.entry, &ends, begins)?;
        let of = |task, addresses: &BTreeSet<u64>| -> Option<Vec<Spot>> {
            let spot = |address: &u64| self.spot(task, *address);
            addresses.iter().map(spot).collect()
        };
        let mut spots = of(Task::Begin, &begins)?;
        spots.extend(of(Task::Whole, &whole)?);
        spots.extend(of(Task::End, &ends)?);
        Some(spots)
    }

    /// How a way from an instruction to the next is seen.
    fn way(&self, from: u64, to: u64) -> Way {
        if self.results.is_failing(from, to) {
            Way::Exempt
        } else if self.result_in(from).is_some() {
            Way::Seen
        } else {
            match self.result_if_any(from) {
                Some((_, seen)) if seen == to => Way::Seen,
                _ => Way::Unseen,
            }
        }
    }

    /// The register that holds the result at a place where a probe can stand.
    fn result_in(&self, address: u64) -> Option<Register> {
        self.returned(address).filter(|_| self.is_place(address))
    }

    /// The register that holds the result at a branch if it is not null, else something is tried
    /// that is seen later; and where the branch goes then. Also the size must be known there.
    fn result_if_any(&self, address: u64) -> Option<(Register, u64)> {
        let node = self.graph.get(&address)?;
        let (tested, when_null) = branches::null_if(&self.graph, &self.before, address, node)?;
        let [to] = node
            .followers
            .iter()
            .filter(|to| **to != when_null)
            .collect::<Vec<_>>()[..]
        else {
            return None;
        };
        let result = self.returned(*to)?;
        let is_tested = tested == Location::Register(result.number());
        let is_seen = is_tested && self.is_place(address) && self.size_in(address).is_some();
        is_seen.then_some((result, *to))
    }

    /// The register that holds the result before an instruction.
    fn returned(&self, address: u64) -> Option<Register> {
        match self.results.before.get(&address)? {
            Returned::At(Location::Register(number)) => Some(Register::new(*number)),
            _ => None,
        }
    }

    /// True where a probe can stand and knows the caller.
    fn is_place(&self, address: u64) -> bool {
        self.emulated.contains(&address) && self.frame(address).is_some()
    }

    /// The register that holds the size, at a place where a probe can stand and that belongs to
    /// no other function.
    fn size_in(&self, address: u64) -> Option<Register> {
        let probed = self.is_place(address) && self.range.contains(&address);
        let state = self.states.before.get(&address).filter(|_| probed)?;
        state.size().map(Register::new)
    }

    fn is_whole(&self, address: u64) -> bool {
        self.size_in(address).is_some()
    }

    /// Words from the stack pointer up to the return address, and from that down to the caller's
    /// rbp, or 0.
    fn frame(&self, address: u64) -> Option<(u16, u16)> {
        const WORD: i64 = 8;
        let state = self.states.before.get(&address)?;
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
        let result = || {
            let if_any = || self.result_if_any(address).map(|(result, _)| result);
            self.result_in(address).or_else(if_any)
        };
        let (size, result) = match task {
            Task::Whole => (self.size_in(address), result()),
            Task::Begin => (self.size_in(address), None),
            Task::End => (None, result()),
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
