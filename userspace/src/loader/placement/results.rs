//! Where the value that a function will return is, at each instruction: from its returns back, as
//! what holds on every way from there.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Code, InstructionInfoFactory, Mnemonic};

use super::{
    code::{Graph, Node, before},
    effects::{self, Effect, Location, RAX, RBP, RDX},
    values::State,
};

/// What is known of the value that will be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Result {
    /// It is here.
    At(Location),
    /// It is null.
    Null,
    /// It is nowhere yet, or not in the same place for all ways.
    Unknown,
}

impl Result {
    /// The value before an instruction, from that behind it.
    fn before(self, effect: &Effect, slots_are_own: bool) -> Self {
        let Self::At(wanted) = self else {
            return self;
        };
        match effect {
            _ if matches!(wanted, Location::Slot(_)) && !slots_are_own => Self::Unknown,
            Effect::Copy { from, to } if *to == wanted => Self::At(*from),
            Effect::Zero(to) if *to == wanted => Self::Null,
            Effect::Frame(_) if wanted == Location::Register(RBP) => Self::Unknown,
            Effect::Multiply(_) if is_product(wanted) => Self::Unknown,
            Effect::Call => match wanted {
                Location::Register(number) if effects::is_lost_in_calls(number) => Self::Unknown,
                _ => self,
            },
            Effect::Overwrite(lost) if lost.contains(&wanted) => Self::Unknown,
            Effect::Lost => Self::Unknown,
            _ => self,
        }
    }

    fn common(self, other: Self) -> Self {
        if self == other { self } else { Self::Unknown }
    }
}

fn is_product(place: Location) -> bool {
    [RAX, RDX].map(Location::Register).contains(&place)
}

/// The place of the result before each instruction. `states` tell the stack pointers.
pub(super) fn results(graph: &Graph, states: &BTreeMap<u64, State>) -> BTreeMap<u64, Result> {
    let mut factory = InstructionInfoFactory::new();
    let slots_are_own = effects::slots_are_own(graph);
    let before = before(graph);
    let mut results: BTreeMap<u64, Result> = BTreeMap::new();
    let mut waiting: Vec<u64> = graph.keys().copied().collect();
    while let Some(address) = waiting.pop() {
        let Some((node, state)) = graph.get(&address).zip(states.get(&address)) else {
            continue;
        };
        let (effect, _) = effects::effect(node, state.stack, &mut factory);
        let known = Known {
            graph,
            before: &before,
            results: &results,
        };
        let returned = node.returns.map(Result::At);
        let behind = returned.or_else(|| known.behind(address, node));
        let Some(result) = behind.map(|behind| behind.before(&effect, slots_are_own)) else {
            continue;
        };
        if results.insert(address, result) != Some(result) {
            waiting.extend(before.get(&address).into_iter().flatten());
        }
    }
    results
}

/// Instructions behind which null is returned, however they were reached: those where the result
/// is null, and what only they lead to.
pub(super) fn failing(graph: &Graph, results: &BTreeMap<u64, Result>) -> BTreeSet<u64> {
    let before = before(graph);
    let null = results
        .iter()
        .filter(|(_, result)| **result == Result::Null);
    let mut waiting: Vec<u64> = null.map(|(address, _)| *address).collect();
    let mut failing = BTreeSet::new();
    while let Some(address) = waiting.pop() {
        failing.insert(address);
        let followers = graph
            .get(&address)
            .into_iter()
            .flat_map(|node| &node.followers);
        let only_from_failing = |follower: &&u64| {
            let leading = before.get(*follower).into_iter().flatten();
            !failing.contains(*follower) && leading.clone().all(|from| failing.contains(from))
        };
        waiting.extend(followers.filter(only_from_failing));
    }
    failing
}

/// What is known so far.
struct Known<'a> {
    graph: &'a Graph,
    before: &'a BTreeMap<u64, Vec<u64>>,
    results: &'a BTreeMap<u64, Result>,
}

impl Known<'_> {
    /// The result behind an instruction: what all that follow agree on, as far as they are known.
    fn behind(&self, address: u64, node: &Node) -> Option<Result> {
        let zero = self.zero_if(address, node);
        let known = node.followers.iter().filter_map(|follower| {
            let result = *self.results.get(follower)?;
            Some((*follower, result))
        });
        let mut known: Vec<(u64, Result)> = known.collect();
        if let Some((register, when_zero)) = zero {
            let elsewhere = known.iter().find(|(follower, _)| *follower != when_zero);
            let elsewhere = elsewhere.map(|(_, result)| *result)?;
            // Where the register was found to be 0, null is what it holds.
            if elsewhere == Result::At(register) {
                known
                    .retain(|(follower, result)| *follower != when_zero || *result != Result::Null);
            }
        }
        known
            .into_iter()
            .map(|(_, result)| result)
            .reduce(Result::common)
    }

    /// The register that is 0, and where a branch goes then: behind `test REGISTER,REGISTER`.
    fn zero_if(&self, address: u64, node: &Node) -> Option<(Location, u64)> {
        let instruction = &node.instruction;
        let goes = match (instruction.mnemonic(), instruction.code()) {
            (_, Code::INVALID) => return None,
            (Mnemonic::Je, _) => instruction.near_branch_target(),
            (Mnemonic::Jne, _) => instruction.next_ip(),
            _ => return None,
        };
        let [test] = self.before.get(&address)?.as_slice() else {
            return None;
        };
        let register = effects::tested(&self.graph.get(test)?.instruction)?;
        Some((register, goes))
    }
}
