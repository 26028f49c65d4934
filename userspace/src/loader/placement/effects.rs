//! What an instruction does to registers and stack slots, as far as values are moved about.

use iced_x86::{
    Code, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register as Named,
};

use super::{
    code::Node,
    stack::{Base, Stack, address, base, is_copy, moved},
};

/// Where a value can be: a general register by its number, or a stack slot by its distance from
/// the slot of the return address in bytes (negative: below it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Location {
    Register(u8),
    Slot(i64),
}

/// An instruction's effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The whole word at `from` is copied to `to`.
    Copy { from: Location, to: Location },
    /// rbp becomes a frame pointer.
    Frame(i64),
    /// rax is multiplied by another value; the upper half of the product goes to rdx.
    Multiply(Location),
    /// A register becomes 0.
    Zero(Location),
    /// A function is called: registers that are not the caller's are lost.
    Call,
    /// These lose what they held.
    Overwrite(Vec<Location>),
    /// The stack pointer is lost: nothing more can be told.
    Lost,
}

const WORD: i64 = 8;
pub(super) const RAX: u8 = 0;
pub(super) const RDX: u8 = 2;
pub(super) const RSP: u8 = 4;
/// The register that may be a frame pointer.
pub(super) const RBP: u8 = 5;
/// Where the first two arguments are.
pub(super) const RDI: u8 = 7;
pub(super) const RSI: u8 = 6;

/// Number of a general register or a part of it.
pub(super) fn number(register: Named) -> Option<u8> {
    let full = register.full_register();
    let number = u8::try_from(full.number()).ok()?;
    full.is_gpr64().then_some(number)
}

/// True for registers that a call may change (System V ABI for x86-64, 3.2.1).
pub(super) fn is_lost_in_calls(register: u8) -> bool {
    const KEPT: [u8; 7] = [3, RSP, 5, 12, 13, 14, 15];
    !KEPT.contains(&register)
}

/// What a node does, and the stack pointer behind it.
pub(super) fn effect(
    node: &Node,
    stack: Stack,
    factory: &mut InstructionInfoFactory,
) -> (Effect, i64) {
    let (instruction, sp) = (&node.instruction, stack.sp);
    // A system call loses rax, rcx and r11, all of which a call loses as well.
    if node.calls || instruction.mnemonic() == Mnemonic::Syscall {
        return (Effect::Call, sp);
    }
    if node.returns.is_some() {
        return (Effect::Overwrite(Vec::new()), sp + WORD);
    }
    match (instruction.code(), stack.rbp) {
        (Code::Push_r64, _) => {
            let from = register(instruction, 0);
            let to = Location::Slot(sp - WORD);
            (copy(from, Some(to)), sp - WORD)
        }
        (Code::Pop_r64, _) => {
            let to = register(instruction, 0);
            (copy(Some(Location::Slot(sp)), to), sp + WORD)
        }
        (Code::Leaveq, Base::Frame(at)) => {
            let (from, to) = (Location::Slot(at), Location::Register(RBP));
            (Effect::Copy { from, to }, at + WORD)
        }
        _ if is_copy(instruction, Named::RSP, Named::RBP) => (Effect::Frame(sp), sp),
        _ => match moved(instruction, stack) {
            Some(sp) => (Effect::Overwrite(Vec::new()), sp),
            None => (plain(instruction, stack, factory), sp),
        },
    }
}

fn copy(from: Option<Location>, to: Option<Location>) -> Effect {
    match (from, to) {
        (Some(from), Some(to)) => Effect::Copy { from, to },
        _ => Effect::Lost,
    }
}

fn plain(instruction: &Instruction, stack: Stack, factory: &mut InstructionInfoFactory) -> Effect {
    if let Some(zeroed) = zeroed(instruction) {
        return Effect::Zero(zeroed);
    }
    if matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Mov_rm64_r64) {
        let (to, from) = (
            operand(instruction, 0, stack),
            operand(instruction, 1, stack),
        );
        if let (Some(from), Some(to)) = (from, to)
            && to != Location::Register(RSP)
            && from != Location::Register(RSP)
        {
            return Effect::Copy { from, to };
        }
    }
    if instruction.code() == Code::Mul_rm64
        && let Some(by) = operand(instruction, 0, stack)
    {
        return Effect::Multiply(by);
    }
    overwritten(instruction, stack, factory)
}

/// The register that becomes 0.
fn zeroed(instruction: &Instruction) -> Option<Location> {
    let clears = instruction.mnemonic() == Mnemonic::Xor
        && instruction.op1_kind() == OpKind::Register
        && instruction.op0_register() == instruction.op1_register();
    let loads = instruction.mnemonic() == Mnemonic::Mov
        && instruction.try_immediate(1).is_ok_and(|value| value == 0);
    // Writing 32 bits clears the upper half.
    let whole =
        instruction.op0_kind() == OpKind::Register && instruction.op0_register().size() >= 4;
    ((clears || loads) && whole).then(|| register(instruction, 0))?
}

fn register(instruction: &Instruction, index: u32) -> Option<Location> {
    number(instruction.op_register(index)).map(Location::Register)
}

/// A whole register or an aligned stack slot.
fn operand(instruction: &Instruction, index: u32, stack: Stack) -> Option<Location> {
    match instruction.op_kind(index) {
        OpKind::Register => register(instruction, index),
        OpKind::Memory => {
            let at = address(instruction, stack)?;
            (at % WORD == 0).then_some(Location::Slot(at))
        }
        _ => None,
    }
}

/// Numbers of the registers that an instruction writes to; a call's are not among them.
pub(super) fn written(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Vec<u8> {
    let used = factory.info(instruction).used_registers();
    let written = used.iter().filter(|used| writes(used.access()));
    written.filter_map(|used| number(used.register())).collect()
}

/// What an instruction writes to, in any way.
fn overwritten(
    instruction: &Instruction,
    stack: Stack,
    factory: &mut InstructionInfoFactory,
) -> Effect {
    let registers = written(instruction, factory);
    if registers.contains(&RSP) {
        return Effect::Lost;
    }
    let mut lost: Vec<Location> = registers.into_iter().map(Location::Register).collect();
    for used in factory.info(instruction).used_memory() {
        if !writes(used.access()) {
            continue;
        }
        if used.base() == Named::RBP && stack.rbp == Base::Unknown {
            return Effect::Lost;
        }
        let Some(base) = base(used.base(), stack) else {
            continue;
        };
        if used.index() != Named::None {
            return Effect::Lost;
        }
        let at = base.wrapping_add(used.displacement().cast_signed());
        let size = i64::try_from(used.memory_size().size()).unwrap_or(WORD);
        let first = at.div_euclid(WORD);
        let last = at.wrapping_add(size.max(1) - 1).div_euclid(WORD);
        lost.extend((first..=last).map(|slot| Location::Slot(slot * WORD)));
    }
    Effect::Overwrite(lost)
}

pub(super) const fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// Where `test REGISTER,REGISTER` says whether a register is 0.
pub(super) fn tested(instruction: &Instruction) -> Option<Location> {
    let same = instruction.mnemonic() == Mnemonic::Test
        && instruction.op1_kind() == OpKind::Register
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == instruction.op1_register()
        && instruction.op0_register().is_gpr64();
    same.then(|| register(instruction, 0))?
}

/// Where the result of a function lies at its `ret`.
pub(super) const RESULT: Location = Location::Register(RAX);
/// Where the first argument of a function lies that is jumped to.
pub(super) const FIRST_ARGUMENT: Location = Location::Register(RDI);
