//! Chooses the points of a function of which everything is known that can be.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use htrace_ebpf_common::{
    function::Function,
    point::{Point, Register},
};

use super::{
    Spot, Task, branches,
    code::Graph,
    cut::{self, Way},
    effects::Location,
    results::{Result as Returned, Results},
    values::States,
};

/// A function as it was understood.
pub(super) struct Known {
    pub(super) graph: Graph,
    /// For each instruction those that can be right before it.
    pub(super) before: BTreeMap<u64, Vec<u64>>,
    pub(super) states: States,
    pub(super) results: Results,
    pub(super) emulated: BTreeSet<u64>,
    pub(super) entry: u64,
    pub(super) range: Range<u64>,
}

impl Known {
    /// The points, if there are any that do for all calls.
    pub(super) fn choose(&self) -> Option<Vec<Spot>> {
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
