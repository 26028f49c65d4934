//! Where the stack of a function is: the stack pointer and, if it has one, the frame pointer, and
//! which places on the stack instructions mean by them.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register as Named};

use super::code::Graph;

/// Where the stack is. Addresses are relative to the slot of the return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stack {
    /// The stack pointer.
    pub(super) sp: i64,
    /// What rbp is.
    pub(super) rbp: Base,
}

/// What rbp is, as far as it can lead to the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The caller's, or a value like any other.
    Value,
    /// The address of a place on the stack: a frame pointer.
    Frame(i64),
    /// One or the other.
    Unknown,
}

impl Base {
    pub(super) fn common(self, other: Self) -> Self {
        if self == other { self } else { Self::Unknown }
    }
}

/// The place on the stack that a memory operand means.
pub(super) fn address(instruction: &Instruction, stack: Stack) -> Option<i64> {
    let base = base(instruction.memory_base(), stack)?;
    let plain =
        instruction.memory_index() == Named::None && instruction.segment_prefix() == Named::None;
    let displacement = instruction.memory_displacement64().cast_signed();
    plain.then(|| base.wrapping_add(displacement))
}

/// The place on the stack that a register points to.
pub(super) fn base(register: Named, stack: Stack) -> Option<i64> {
    match (register, stack.rbp) {
        (Named::RSP, _) => Some(stack.sp),
        (Named::RBP, Base::Frame(at)) => Some(at),
        _ => None,
    }
}

/// True if an instruction copies one register to another.
pub(super) fn is_copy(instruction: &Instruction, from: Named, to: Named) -> bool {
    matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Mov_rm64_r64)
        && instruction.op1_kind() == OpKind::Register
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == to
        && instruction.op1_register() == from
}

/// The stack pointer behind an instruction that moves it by a constant, or to a place in the frame.
pub(super) fn moved(instruction: &Instruction, stack: Stack) -> Option<i64> {
    if instruction.op0_kind() != OpKind::Register || instruction.op0_register() != Named::RSP {
        return None;
    }
    let constant = || instruction.try_immediate(1).ok().map(u64::cast_signed);
    let by = |by: i64| stack.sp.wrapping_add(by);
    match (instruction.mnemonic(), stack.rbp) {
        (Mnemonic::Sub, _) => constant().map(i64::wrapping_neg).map(by),
        (Mnemonic::Add, _) => constant().map(by),
        (Mnemonic::Lea, _) => address(instruction, stack),
        (Mnemonic::Mov, Base::Frame(at)) if is_copy(instruction, Named::RBP, Named::RSP) => {
            Some(at)
        }
        _ => None,
    }
}

/// True if nobody but the function writes to its stack slots, because it tells nobody where they
/// are.
pub(super) fn slots_are_own(graph: &Graph) -> bool {
    let mut pointers = vec![Named::RSP];
    let instructions = || graph.values().map(|node| &node.instruction);
    if instructions().any(|instruction| is_copy(instruction, Named::RSP, Named::RBP)) {
        pointers.push(Named::RBP);
    }
    !instructions().any(|instruction| tells_stack_address(instruction, &pointers))
}

/// True if an instruction takes an address from `pointers`, which point to the stack, to anywhere
/// else.
fn tells_stack_address(instruction: &Instruction, pointers: &[Named]) -> bool {
    let into_pointer = instruction.op0_kind() == OpKind::Register
        && pointers.contains(&instruction.op0_register());
    let lea = instruction.mnemonic() == Mnemonic::Lea
        && instruction.op0_register() != Named::RSP
        && [instruction.memory_base(), instruction.memory_index()]
            .iter()
            .any(|register| pointers.contains(register));
    let copied = (1..instruction.op_count()).any(|index| {
        instruction.op_kind(index) == OpKind::Register
            && pointers.contains(&instruction.op_register(index))
    });
    let moved = instruction.mnemonic() == Mnemonic::Mov && into_pointer;
    lea || (copied && !moved)
}
