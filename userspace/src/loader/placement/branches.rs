//! What a branch tells of a value: behind `test REGISTER,REGISTER`, whether it is null.

use std::collections::BTreeMap;

use iced_x86::{Code, Mnemonic};

use super::{
    code::{Graph, Node},
    effects::{self, Location},
};

/// The register that is null, and where a branch goes then. `before` tells for each instruction
/// those that can be right before it.
pub(super) fn null_if(
    graph: &Graph,
    before: &BTreeMap<u64, Vec<u64>>,
    address: u64,
    node: &Node,
) -> Option<(Location, u64)> {
    let instruction = &node.instruction;
    let (target, next) = (instruction.near_branch_target(), instruction.next_ip());
    let goes = match (instruction.mnemonic(), instruction.code()) {
        (_, Code::INVALID) => return None,
        (Mnemonic::Je, _) => target,
        (Mnemonic::Jne, _) => next,
        _ => return None,
    };
    let [test] = before.get(&address)?.as_slice() else {
        return None;
    };
    let register = effects::tested(&graph.get(test)?.instruction)?;
    (target != next).then_some((register, goes))
}
