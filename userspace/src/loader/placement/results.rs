//! Where the value that a function will return is, at each instruction: from its returns back, as
//! what holds on every way from there.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::InstructionInfoFactory;

use super::{
    code::{Graph, Node, before},
    effects::{self, Effect, Location, RAX, RBP, RDX},
    stack,
    values::States,
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

/// What a function returns.
#[derive(Debug)]
pub(super) struct Results {
    /// What is known of it before each instruction.
    pub(super) before: BTreeMap<u64, Result>,
    /// Ways from an instruction to the next on which null is returned, however they go on.
    null: BTreeSet<(u64, u64)>,
    /// Instructions behind which null is returned, however they were reached.
    failing: BTreeSet<u64>,
}

impl Results {
    /// True if null is returned wherever one instruction follows the other.
    pub(super) fn is_failing(&self, from: u64, to: u64) -> bool {
        self.null.contains(&(from, to)) || self.fails(from) || self.fails(to)
    }

    /// True for an instruction behind which null is returned.
    pub(super) fn fails(&self, address: u64) -> bool {
        self.failing.contains(&address)
    }
}

/// The place of the result before each instruction.
pub(super) fn results(graph: &Graph, states: &States) -> Results {
    let mut factory = InstructionInfoFactory::new();
    let slots_are_own = stack::slots_are_own(graph);
    let leading = before(graph);
    let mut results: BTreeMap<u64, Result> = BTreeMap::new();
    let mut waiting: Vec<u64> = graph.keys().copied().collect();
    while let Some(address) = waiting.pop() {
        let Some((node, state)) = graph.get(&address).zip(states.before.get(&address)) else {
            continue;
        };
        let (effect, _) = effects::effect(node, state.stack, &mut factory);
        let known = Known {
            states,
            results: &results,
        };
        let returned = node.returns.map(Result::At);
        let behind = returned.or_else(|| known.behind(address, node));
        let Some(result) = behind.map(|behind| behind.before(&effect, slots_are_own)) else {
            continue;
        };
        if results.insert(address, result) != Some(result) {
            waiting.extend(leading.get(&address).into_iter().flatten());
        }
    }
    let known = Known {
        states,
        results: &results,
    };
    let ways = states.along.keys();
    let null = ways.filter(|(from, to)| known.along(*from, *to) == Some(Result::Null));
    Results {
        null: null.copied().collect(),
        failing: failing(graph, &results),
        before: results,
    }
}

/// Instructions behind which null is returned, however they were reached: those where the result
/// is null, and what only they lead to.
fn failing(graph: &Graph, results: &BTreeMap<u64, Result>) -> BTreeSet<u64> {
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
    states: &'a States,
    results: &'a BTreeMap<u64, Result>,
}

impl Known<'_> {
    /// The result behind an instruction: what all ways on agree on, as far as they are known.
    fn behind(&self, address: u64, node: &Node) -> Option<Result> {
        let along = |to: &u64| Some((*to, self.along(address, *to)?));
        let known: Vec<(u64, Result)> = node.followers.iter().filter_map(along).collect();
        let place = known.iter().find_map(|(_, result)| match result {
            Result::At(place) => Some(*place),
            _ => None,
        });
        // Where null is returned, a place that holds null then is as good as any.
        let agreed = |(to, result): (u64, Result)| match (result, place) {
            (Result::Null, Some(place)) if self.is_null(address, to, place) => Result::At(place),
            _ => result,
        };
        known.into_iter().map(agreed).reduce(Result::common)
    }

    /// The result on the way from one instruction to another.
    fn along(&self, from: u64, to: u64) -> Option<Result> {
        let result = *self.results.get(&to)?;
        Some(match result {
            Result::At(place) if self.is_null(from, to, place) => Result::Null,
            _ => result,
        })
    }

    fn is_null(&self, from: u64, to: u64, place: Location) -> bool {
        let state = self.states.along.get(&(from, to));
        state.is_some_and(|state| state.is_null(place))
    }
}
