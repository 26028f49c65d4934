//! The fast way through frames that are as in the thread's stacks before.
//!
//! A thread has a [`Prediction`] for each place of its stack: which address returned there last, and
//! that address's rule. So the place of the next frame follows from that of this one, and the CPU
//! need not wait for one load after the other: that an address is the predicted one is checked on the
//! side. All that a glide does a [step](super::step) would do as well, and it leaves to steps whatever
//! is not predicted, not a plain frame, not in the [window](super::window), or wrong.
//!
//! Predictions are of a generation of rules; when rules are forgotten, so are they.

use htrace_ebpf_common::{
    control::MAX_FRAMES,
    encoding::{Rule, RuleKind},
};

use super::{FRAME_ALIGNMENT, SLOT, Walk, mix};

/// Number of a thread's predictions: those of a stack of 4 KiB do not meet.
pub const PREDICTIONS: usize = 256;

/// The rule of the address that returned to a place of the stack. All zero is one of nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Prediction {
    return_address: u64,
    /// In the lower half the rule, in the upper one its generation, which is never 0.
    rule: u64,
}

impl Prediction {
    /// Of nothing.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self {
        return_address: 0,
        rule: 0,
    };
}

/// Where the prediction is of a frame with that stack pointer.
const fn place_of(sp: u64) -> usize {
    (sp / FRAME_ALIGNMENT) as usize % PREDICTIONS
}

impl Walk {
    /// Notes the rule of the frame, for the next stack.
    #[inline(always)]
    pub(super) const fn predict(&mut self, rule: Rule) {
        let prediction = &mut self.predictions[place_of(self.sp)];
        prediction.return_address = self.pc;
        prediction.rule = (self.generation as u64) << 32 | rule.bits() as u64;
    }
}

/// Adds as many frames as are predicted, up to four; true if there may be more of them.
#[inline(always)]
pub fn glide(walk: &mut Walk, frames: &mut [u64; MAX_FRAMES]) -> bool {
    if walk.interrupted != 0 {
        return false;
    }
    // Not a loop: the compiler would count its turns by the frames, whose number the verifier does not
    // know.
    let mut next = || frame(walk, frames).is_some();
    next() && next() && next() && next()
}

/// Adds one frame and goes on to its caller; `None`, and nothing has changed, if a step has to.
#[inline(always)]
fn frame(walk: &mut Walk, frames: &mut [u64; MAX_FRAMES]) -> Option<()> {
    let (pc, sp) = (walk.pc, walk.sp);
    let prediction = &walk.predictions[place_of(sp)];
    let word = prediction.rule;
    if prediction.return_address != pc || word >> 32 != walk.generation as u64 {
        return None;
    }
    let rule = Rule::from_bits(word as u32);
    let base = match rule.kind() {
        RuleKind::Rsp => sp,
        RuleKind::Rbp => rbp(walk)?,
        _ => return None,
    };
    let cfa = base.wrapping_add(rule.cfa_offset());
    if cfa <= sp || !cfa.is_multiple_of(FRAME_ALIGNMENT) || walk.frames >= walk.limit {
        return None;
    }
    walk.pc = walk.window.word(cfa.wrapping_sub(SLOT))?;
    walk.sp = cfa;
    if let Some(below) = rule.rbp_below_cfa() {
        walk.bp_at = cfa.wrapping_sub(below);
    }
    frames[walk.frames as usize % MAX_FRAMES] = pc;
    walk.hash = mix(walk.hash, pc);
    walk.frames += 1;
    Some(())
}

/// The value of rbp, if it is known or in the window.
#[inline(always)]
const fn rbp(walk: &Walk) -> Option<u64> {
    if walk.bp_at == 0 {
        return Some(walk.bp);
    }
    if !walk.bp_at.is_multiple_of(SLOT) {
        return None;
    }
    walk.window.word(walk.bp_at)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::{
        fake::{FakeKernel, new_thread},
        kernel::{Kernel as _, Registers},
        thread::Thread,
    };
    use htrace_ebpf_common::counters::Counter;
    use htrace_unwind_tables::{Coverage, walker::Found};

    const STACK: u64 = 0x7fff_0000;
    const FRAMES: u64 = 9;

    const fn behind_call(function: u64) -> u64 {
        0x40_0020 + 0x100 * function
    }

    /// Functions of 32 bytes of stack each that call each other; the last is the outermost.
    fn chain() -> FakeKernel {
        let kernel = FakeKernel::recording();
        for frame in 0..FRAMES {
            kernel.write(STACK + 8 + 32 * frame, behind_call(frame));
            kernel.write(behind_call(frame) - 8, 0xe8 << 24);
            set_rule(&kernel, frame, Rule::rsp(32, 0));
        }
        set_rule(&kernel, FRAMES - 1, Some(Rule::END_OF_STACK));
        kernel
    }

    fn set_rule(kernel: &FakeKernel, function: u64, rule: Option<Rule>) {
        let coverage = Coverage::Everywhere;
        let found = rule.map(|rule| Found { rule, coverage });
        kernel.set_rule(behind_call(function) - 1, found);
    }

    fn begin(kernel: &FakeKernel, thread: &mut Thread) {
        let registers = Registers {
            sp: STACK + 8,
            ..Registers::default()
        };
        thread.walk.begin(kernel, &registers, MAX_FRAMES as u32);
    }

    fn walked(kernel: &FakeKernel, thread: &mut Thread) -> Vec<u64> {
        begin(kernel, thread);
        kernel.walk(thread);
        thread.walk.finish();
        thread.stack.frames[..thread.walk.frames()].to_vec()
    }

    /// How many frames of the thread's next stack are predicted.
    fn glided(kernel: &FakeKernel, thread: &mut Thread) -> usize {
        begin(kernel, thread);
        while glide(&mut thread.walk, &mut thread.stack.frames) {}
        thread.walk.frames()
    }

    #[test]
    fn a_stack_as_before_is_glided_through_to_its_outermost_frame() {
        let (kernel, mut thread) = (chain(), new_thread());
        assert_eq!(glided(&kernel, &mut thread), 0);
        let first = walked(&kernel, &mut thread);
        let id = thread.walk.stack_id();
        assert_eq!(glided(&kernel, &mut thread), FRAMES as usize - 1);
        let misses = kernel.counted(Counter::RuleMisses);
        assert_eq!(walked(&kernel, &mut thread), first);
        assert_eq!(thread.walk.stack_id(), id);
        assert_eq!(kernel.counted(Counter::RuleMisses), misses);
    }

    #[test]
    fn another_address_in_the_same_place_is_no_predicted_one() {
        let (kernel, mut thread) = (chain(), new_thread());
        walked(&kernel, &mut thread);
        kernel.write(STACK + 8 + 32 * 2, behind_call(5));
        assert_eq!(glided(&kernel, &mut thread), 2);
        assert_eq!(walked(&kernel, &mut thread)[2], behind_call(5));
        assert_eq!(walked(&kernel, &mut thread).len(), FRAMES as usize);
    }

    #[test]
    fn predictions_end_with_the_rules() {
        let (kernel, mut thread) = (chain(), new_thread());
        walked(&kernel, &mut thread);
        kernel.forget_rules();
        set_rule(&kernel, 0, Rule::rsp(64, 0));
        assert_eq!(glided(&kernel, &mut thread), 0);
        let frames = walked(&kernel, &mut thread);
        assert_eq!(frames[..2], [behind_call(0), behind_call(2)]);
    }

    #[test]
    fn the_limit_holds_for_glides() {
        let (kernel, mut thread) = (chain(), new_thread());
        walked(&kernel, &mut thread);
        begin(&kernel, &mut thread);
        thread.walk.limit = 3;
        while glide(&mut thread.walk, &mut thread.stack.frames) {}
        assert_eq!(thread.walk.frames(), 3);
    }
}
