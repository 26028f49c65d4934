//! Tells whether a function that is called with a constant ever returns, by following the constant
//! through its registers: functions that report an error take 'and then abort' as an argument.

use std::collections::BTreeMap;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpKind};

use super::{
    code::{Graph, Node, before},
    effects::{self, RDI},
};

/// The lower halves of registers, by their numbers, as far as they are known.
type Known = BTreeMap<u8, u32>;

/// True if a call of the function with `first` as its first argument never reaches a return.
pub(super) fn never_returns(graph: &Graph, entry: u64, first: u32) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let before = before(graph);
    let mut known = BTreeMap::from([(entry, Known::from([(RDI, first)]))]);
    let mut waiting = vec![entry];
    while let Some(address) = waiting.pop() {
        let (Some(node), Some(here)) = (graph.get(&address), known.get(&address)) else {
            continue;
        };
        if node.returns.is_some() {
            return false;
        }
        let after = after(node, here, &mut factory);
        let only = taken(graph, &before, address, &after);
        for follower in &node.followers {
            if only.is_some_and(|only| only != *follower) {
                continue;
            }
            let merged = match known.get(follower) {
                Some(other) => common(other, &after),
                None => after.clone(),
            };
            if known.get(follower) != Some(&merged) {
                known.insert(*follower, merged);
                waiting.push(*follower);
            }
        }
    }
    true
}

/// The constant that the first argument of a call is set to right before it.
pub(super) fn first_argument(
    instruction: impl Fn(u64) -> Option<Instruction>,
    leading: &BTreeMap<u64, Vec<u64>>,
    call: u64,
) -> Option<u32> {
    const MOST_INSTRUCTIONS: usize = 8;
    let mut factory = InstructionInfoFactory::new();
    let mut address = call;
    for _ in 0..MOST_INSTRUCTIONS {
        let [only] = leading.get(&address)?.as_slice() else {
            return None;
        };
        address = *only;
        let instruction = instruction(address)?;
        if effects::written(&instruction, &mut factory).contains(&RDI) {
            let is_move = instruction.mnemonic() == Mnemonic::Mov;
            let constant = instruction.try_immediate(1).ok().filter(|_| is_move)?;
            return u32::try_from(constant).ok();
        }
    }
    None
}

fn common(one: &Known, other: &Known) -> Known {
    let agreed = one
        .iter()
        .filter(|(register, value)| other.get(*register) == Some(value));
    agreed
        .map(|(register, value)| (*register, *value))
        .collect()
}

fn after(node: &Node, here: &Known, factory: &mut InstructionInfoFactory) -> Known {
    let mut known = here.clone();
    let instruction = &node.instruction;
    if node.calls || instruction.mnemonic() == Mnemonic::Syscall {
        known.retain(|register, _| !effects::is_lost_in_calls(*register));
        return known;
    }
    let result = computed(instruction, here);
    let written = effects::written(instruction, factory);
    known.retain(|register, _| !written.contains(register));
    if let Some((register, value)) = result {
        known.insert(register, value);
    }
    known
}

/// The register that an instruction gives a known value.
fn computed(instruction: &Instruction, here: &Known) -> Option<(u8, u32)> {
    if instruction.op0_kind() != OpKind::Register || instruction.op0_register().size() < 4 {
        return None;
    }
    let register = effects::number(instruction.op0_register())?;
    let own = here.get(&register).copied();
    let other = match instruction.op1_kind() {
        OpKind::Register => {
            let from = effects::number(instruction.op1_register())?;
            here.get(&from).copied()
        }
        _ => instruction.try_immediate(1).ok().map(|value| value as u32),
    };
    let same = instruction.op1_kind() == OpKind::Register
        && instruction.op0_register() == instruction.op1_register();
    let value = match instruction.mnemonic() {
        Mnemonic::Mov => other?,
        Mnemonic::And => own? & other?,
        Mnemonic::Xor if same => 0,
        _ => return None,
    };
    Some((register, value))
}

/// Where a branch goes that a known register decides: behind `test REGISTER,REGISTER`.
fn taken(
    graph: &Graph,
    before: &BTreeMap<u64, Vec<u64>>,
    address: u64,
    known: &Known,
) -> Option<u64> {
    let instruction = &graph.get(&address)?.instruction;
    let when_zero = match instruction.mnemonic() {
        Mnemonic::Je => true,
        Mnemonic::Jne => false,
        _ => return None,
    };
    let [test] = before.get(&address)?.as_slice() else {
        return None;
    };
    let test = &graph.get(test)?.instruction;
    let same = test.mnemonic() == Mnemonic::Test
        && test.op1_kind() == OpKind::Register
        && test.op0_register() == test.op1_register()
        && test.op0_register().is_gpr32();
    let value = same.then(|| known.get(&effects::number(test.op0_register())?))??;
    Some(match (*value == 0) == when_zero {
        true => instruction.near_branch_target(),
        false => instruction.next_ip(),
    })
}
