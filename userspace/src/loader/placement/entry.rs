//! Where a probe at the entry of a function stands: on its first instruction that the kernel
//! emulates, if all is still as at the entry.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic};
use object::ReadRef;

use super::{
    effects::{RBP, RDI, RDX, RSI, RSP, number, writes},
    emulated::{KernelVersion, is_emulated},
};
use crate::loader::operators::image::Image;

/// How many bytes of the function at `range` a probe may skip to stand on an instruction that the
/// kernel emulates, with memory, so many arguments and the stack as at the entry. `None` if there is
/// none that each call passes once.
pub(in crate::loader) fn skipped_at_entry<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    range: Range<u64>,
    arguments: usize,
    kernel: KernelVersion,
) -> Option<u64> {
    const MOST_BYTES: u64 = 64;
    let mut factory = InstructionInfoFactory::new();
    let mut address = range.start;
    while address - range.start < MOST_BYTES {
        if is_emulated(image.code(address)?, kernel) {
            let skipped = address - range.start;
            return (skipped == 0 || !is_returned_to(image, range, address)).then_some(skipped);
        }
        let instruction = image.instruction(address)?;
        if !keeps_entry(&instruction, arguments, &mut factory) {
            return None;
        }
        address = instruction.next_ip();
    }
    None
}

/// True if a branch of the function leads to its begin, up to `last`, so that a call could pass
/// there again. What lies between instructions is read as instructions too, which can only make
/// the answer true.
fn is_returned_to<'data, R: ReadRef<'data>>(
    image: &Image<'data, R>,
    range: Range<u64>,
    last: u64,
) -> bool {
    let mut address = range.start;
    while address < range.end {
        let Some(instruction) = image.instruction(address) else {
            return false;
        };
        let target = instruction.near_branch_target();
        let jumps = instruction.is_jcc_short_or_near() || instruction.is_jmp_short_or_near();
        if jumps && (range.start..=last).contains(&target) {
            return true;
        }
        address = instruction.next_ip();
    }
    false
}

/// True if an instruction goes on to the next one and changes nothing that a probe at the entry of
/// a function looks at: memory, its first `arguments`, rbp and the stack pointer.
fn keeps_entry(
    instruction: &Instruction,
    arguments: usize,
    factory: &mut InstructionInfoFactory,
) -> bool {
    const ARGUMENTS: [u8; 3] = [RDI, RSI, RDX];
    if instruction.flow_control() != FlowControl::Next || instruction.mnemonic() == Mnemonic::Hlt {
        return false;
    }
    let is_looked_at = |number: u8| {
        let mut looked_at = ARGUMENTS.iter().take(arguments).chain(&[RSP, RBP]);
        looked_at.any(|register| *register == number)
    };
    let info = factory.info(instruction);
    let memory = info.used_memory().iter().any(|used| writes(used.access()));
    let registers = info
        .used_registers()
        .iter()
        .any(|used| writes(used.access()) && number(used.register()).is_some_and(is_looked_at));
    !memory && !registers
}
