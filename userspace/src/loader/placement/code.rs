//! The code of one function as a graph of instructions that lead to a return.
//!
//! What only ends in an abort is left out: nothing is returned there.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::Instruction;
use object::ReadRef;

use super::constants;
use crate::loader::operators::{
    Kind,
    flow::{Effect, Flow, Reached, Step},
    image::Image,
    survey::Survey,
};

/// An instruction that can lead to a return.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) instruction: Instruction,
    /// Addresses of those that can be next and lead to a return.
    pub(super) followers: Vec<u64>,
    /// Whether a function is called and returns.
    pub(super) calls: bool,
    /// Whether the function returns here.
    pub(super) returns: bool,
}

/// The instructions of a function by their addresses.
pub(super) type Graph = BTreeMap<u64, Node>;

/// Follows the function at an address. `None` if it can be left in a way that cannot be followed,
/// or never returns.
pub(super) fn graph<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    address: u64,
) -> Option<Graph> {
    let mut flow = Survey::operator(image, Kind::New, address);
    end_aborts(image, &mut flow);
    graph_of(image, &flow, address)
}

fn graph_of<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    flow: &Flow,
    entry: u64,
) -> Option<Graph> {
    // Where the code cannot be followed, the rest of it is taken for another function's.
    if flow.returns_elsewhere() {
        return None;
    }
    let returning = returning(flow);
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
            returns: step.effect == Effect::Ret,
        };
        Some((*address, node))
    };
    returning.iter().map(node).collect()
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

/// Those from which a `ret` can be reached.
fn returning(flow: &Flow) -> BTreeSet<u64> {
    let before = leading(flow);
    let mut waiting = flow.rets();
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
