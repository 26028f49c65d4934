//! The code of one function as a graph of instructions that lead to a return.
//!
//! What only ends in an abort is left out: nothing is returned there.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Instruction};
use object::ReadRef;

use super::{
    constants,
    effects::{FIRST_ARGUMENT, Location, RESULT},
};
use crate::loader::operators::{
    Kind, Lead,
    flow::{Effect, Flow, Reached, Step},
    image::Image,
    survey::{self, Survey},
};

/// An instruction that can lead to a return.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) instruction: Instruction,
    /// Addresses of those that can be next and lead to a return.
    pub(super) followers: Vec<u64>,
    /// Whether a function is called and returns.
    pub(super) calls: bool,
    /// Where the result is if the function returns here.
    pub(super) returns: Option<Location>,
}

/// The instructions of a function by their addresses.
pub(super) type Graph = BTreeMap<u64, Node>;

/// Follows the function at an address. `None` if it can be left in a way that cannot be followed,
/// or never returns. If it must be `alone`, also if it calls a probed function, or what cannot be
/// told.
pub(super) fn graph<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    address: u64,
    alone: bool,
) -> Option<Graph> {
    let mut flow = Survey::operator(image, Kind::New, address);
    end_aborts(image, &mut flow);
    let graph = graph_of(image, &flow, address)?;
    let calls_others = |(address, node): (&u64, &Node)| {
        let lead = flow.steps.get(address).and_then(Step::lead);
        lead.is_some_and(|lead| may_be_probed(lead, &node.instruction))
    };
    (!alone || !graph.iter().any(calls_others)).then_some(graph)
}

/// True if an instruction that leads somewhere may lead into a probed function. What functions that
/// are called call by a pointer is taken not to.
fn may_be_probed(lead: &Lead, instruction: &Instruction) -> bool {
    match lead {
        Lead::Pointer => instruction.flow_control() == FlowControl::IndirectCall,
        _ => true,
    }
}

fn graph_of<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    flow: &Flow,
    entry: u64,
) -> Option<Graph> {
    let ends = ends(image, flow)?;
    let returning = returning(flow, ends.keys());
    if !returning.contains(&entry) {
        return None;
    }
    let node = |address: &u64| {
        let step = flow.steps.get(address)?;
        let followers: BTreeSet<u64> = step.followers().collect();
        let node = Node {
            instruction: image.instruction(*address)?,
            followers: followers.intersection(&returning).copied().collect(),
            calls: matches!(step.effect, Effect::Call(_)),
            returns: ends.get(address).copied(),
        };
        Some((*address, node))
    };
    returning.iter().map(node).collect()
}

/// Where a function returns, and where its result is there. `None` where the code cannot be
/// followed: the rest of it is taken for another function's.
fn ends<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    flow: &Flow,
) -> Option<BTreeMap<u64, Location>> {
    let end = |(address, step): (&u64, &Step)| match &step.effect {
        Effect::Ret => Some(Some((*address, RESULT))),
        Effect::Tail(reached) if reached.returns => {
            let returned = returned_argument(image, *address, step);
            Some(returned.map(|argument| (*address, argument)))
        }
        _ => None,
    };
    flow.steps.iter().filter_map(end).collect()
}

/// The argument that a function returns which is jumped to, if it is known to.
fn returned_argument<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    address: u64,
    step: &Step,
) -> Option<Location> {
    let to = image.instruction(address)?.near_branch_target();
    let known = image.returns_first(to)
        || survey::linkage(image, to).is_some_and(|pointer| image.returns_first(pointer));
    (known && step.next.is_none()).then_some(FIRST_ARGUMENT)
}

/// Takes the ways behind calls that do not return when they are made with the constants that they
/// are made with.
fn end_aborts<'data, R: ReadRef<'data>>(image: &Image<'data, R>, flow: &mut Flow) {
    let leading = leading(flow);
    let never_returns = |(address, step): (&u64, &Step)| {
        let Effect::Call(_) = step.effect else {
            return None;
        };
        step.next?;
        let callee = image.instruction(*address)?.near_branch_target();
        let instruction = |address| image.instruction(address);
        let argument = constants::first_argument(instruction, &leading, *address)?;
        let flow = Survey::operator(image, Kind::New, callee);
        let graph = graph_of(image, &flow, callee)?;
        constants::never_returns(&graph, callee, argument).then_some(*address)
    };
    let ends: Vec<u64> = flow.steps.iter().filter_map(never_returns).collect();
    for address in ends {
        if let Some(step) = flow.steps.get_mut(&address) {
            *step = Step::last(Effect::Call(Reached::ENDS));
        }
    }
}

/// For each instruction those that can be right before it.
fn leading(flow: &Flow) -> BTreeMap<u64, Vec<u64>> {
    let mut leading: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (address, step) in &flow.steps {
        for follower in step.followers() {
            leading.entry(follower).or_default().push(*address);
        }
    }
    leading
}

/// Those from which one of `ends` can be reached.
fn returning<'a>(flow: &Flow, ends: impl Iterator<Item = &'a u64>) -> BTreeSet<u64> {
    let before = leading(flow);
    let mut waiting: Vec<u64> = ends.copied().collect();
    let mut returning = BTreeSet::new();
    while let Some(address) = waiting.pop() {
        if returning.insert(address) {
            waiting.extend(before.get(&address).into_iter().flatten());
        }
    }
    returning
}

/// For each instruction those that can be right before it.
pub(super) fn before(graph: &Graph) -> BTreeMap<u64, Vec<u64>> {
    let mut before: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (address, node) in graph {
        for follower in &node.followers {
            before.entry(*follower).or_default().push(*address);
        }
    }
    before
}
