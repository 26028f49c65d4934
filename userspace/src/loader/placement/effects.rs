//! What an instruction does to registers and stack slots, as far as values are moved about.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register as Named,
};

use super::code::{Graph, Node};

/// Where a value can be: a general register by its number, or a stack slot by its distance from
/// the slot of the return address in bytes (negative: below it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Location {
    Register(u8),
    Slot(i64),
}

/// An instruction's effect. `sp` is its stack pointer, relative to the slot of the return address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The whole word at `from` is copied to `to`.
    Copy { from: Location, to: Location },
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
const RAX: u8 = 0;
const RSP: u8 = 4;
/// Where the first argument is.
pub(super) const RDI: u8 = 7;

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

/// What a node does at a stack pointer, and the stack pointer behind it.
pub(super) fn effect(node: &Node, sp: i64, factory: &mut InstructionInfoFactory) -> (Effect, i64) {
    let instruction = &node.instruction;
    // A system call loses rax, rcx and r11, all of which a call loses as well.
    if node.calls || instruction.mnemonic() == Mnemonic::Syscall {
        return (Effect::Call, sp);
    }
    if node.returns {
        return (Effect::Overwrite(Vec::new()), sp + WORD);
    }
    match instruction.code() {
        Code::Push_r64 => {
            let from = register(instruction, 0);
            let to = Location::Slot(sp - WORD);
            (copy(from, Some(to)), sp - WORD)
        }
        Code::Pop_r64 => {
            let to = register(instruction, 0);
            (copy(Some(Location::Slot(sp)), to), sp + WORD)
        }
        _ => match moved_stack(instruction) {
            Some(by) => (Effect::Overwrite(Vec::new()), sp + by),
            None => (plain(instruction, sp, factory), sp),
        },
    }
}

fn copy(from: Option<Location>, to: Option<Location>) -> Effect {
    match (from, to) {
        (Some(from), Some(to)) => Effect::Copy { from, to },
        _ => Effect::Lost,
    }
}

/// By how many bytes a constant moves the stack pointer.
fn moved_stack(instruction: &Instruction) -> Option<i64> {
    if instruction.op0_kind() != OpKind::Register || instruction.op0_register() != Named::RSP {
        return None;
    }
    let constant = || instruction.try_immediate(1).ok().map(u64::cast_signed);
    match instruction.mnemonic() {
        Mnemonic::Sub => constant().map(i64::wrapping_neg),
        Mnemonic::Add => constant(),
        Mnemonic::Lea if instruction.memory_base() == Named::RSP => {
            let displacement = instruction.memory_displacement64().cast_signed();
            (instruction.memory_index() == Named::None).then_some(displacement)
        }
        _ => None,
    }
}

fn plain(instruction: &Instruction, sp: i64, factory: &mut InstructionInfoFactory) -> Effect {
    if let Some(zeroed) = zeroed(instruction) {
        return Effect::Zero(zeroed);
    }
    if matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Mov_rm64_r64) {
        let (to, from) = (operand(instruction, 0, sp), operand(instruction, 1, sp));
        if let (Some(from), Some(to)) = (from, to)
            && to != Location::Register(RSP)
            && from != Location::Register(RSP)
        {
            return Effect::Copy { from, to };
        }
    }
    overwritten(instruction, sp, factory)
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
fn operand(instruction: &Instruction, index: u32, sp: i64) -> Option<Location> {
    match instruction.op_kind(index) {
        OpKind::Register => register(instruction, index),
        OpKind::Memory if is_on_stack(instruction) => {
            let at = sp.wrapping_add(instruction.memory_displacement64().cast_signed());
            (at % WORD == 0).then_some(Location::Slot(at))
        }
        _ => None,
    }
}

fn is_on_stack(instruction: &Instruction) -> bool {
    instruction.memory_base() == Named::RSP
        && instruction.memory_index() == Named::None
        && instruction.segment_prefix() == Named::None
}

/// Numbers of the registers that an instruction writes to; a call's are not among them.
pub(super) fn written(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Vec<u8> {
    let used = factory.info(instruction).used_registers();
    let written = used.iter().filter(|used| writes(used.access()));
    written.filter_map(|used| number(used.register())).collect()
}

/// What an instruction writes to, in any way.
fn overwritten(instruction: &Instruction, sp: i64, factory: &mut InstructionInfoFactory) -> Effect {
    let registers = written(instruction, factory);
    if registers.contains(&RSP) {
        return Effect::Lost;
    }
    let mut lost: Vec<Location> = registers.into_iter().map(Location::Register).collect();
    for used in factory.info(instruction).used_memory() {
        if writes(used.access()) && used.base() == Named::RSP {
            if used.index() != Named::None {
                return Effect::Lost;
            }
            let at = sp.wrapping_add(used.displacement().cast_signed());
            let size = i64::try_from(used.memory_size().size()).unwrap_or(WORD);
            let first = at.div_euclid(WORD);
            let last = at.wrapping_add(size.max(1) - 1).div_euclid(WORD);
            lost.extend((first..=last).map(|slot| Location::Slot(slot * WORD)));
        }
    }
    Effect::Overwrite(lost)
}

const fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// True if nobody but the function writes to its stack slots, because it tells nobody where they
/// are.
pub(super) fn slots_are_own(graph: &Graph) -> bool {
    !graph
        .values()
        .any(|node| tells_stack_address(&node.instruction))
}

fn tells_stack_address(instruction: &Instruction) -> bool {
    let lea = instruction.mnemonic() == Mnemonic::Lea
        && instruction.memory_base() == Named::RSP
        && instruction.op0_register() != Named::RSP;
    let copied = (1..instruction.op_count()).any(|index| {
        instruction.op_kind(index) == OpKind::Register
            && instruction.op_register(index) == Named::RSP
    });
    lea || copied
}

/// True if an instruction goes on to the next one and changes nothing that a probe at the entry of
/// a function looks at: memory, arguments, rbp and the stack pointer.
pub(super) fn keeps_entry(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    /// rdx, rcx, rsp, rbp, rsi, rdi.
    const LOOKED_AT: [u8; 6] = [2, 1, RSP, 5, 6, 7];
    if instruction.flow_control() != FlowControl::Next || instruction.mnemonic() == Mnemonic::Hlt {
        return false;
    }
    let info = factory.info(instruction);
    let memory = info.used_memory().iter().any(|used| writes(used.access()));
    let registers = info.used_registers().iter().any(|used| {
        writes(used.access())
            && number(used.register()).is_some_and(|number| LOOKED_AT.contains(&number))
    });
    !memory && !registers
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
