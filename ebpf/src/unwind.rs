//! Walks the stack of a thread by unwind tables, one frame a step.
//!
//! The specification is the walker of `htrace-unwind-tables`, in plain Rust; this one does the same
//! in the shape that the BPF verifier accepts: the whole state lies in map memory ([`Walk`]), a
//! step is a straight line of small pieces, and the kernel repeats it ([`Kernel::walk`]).
//!
//! Invariants: a frame that fails a check that is independent of unwind data is left out, because
//! a wrong stack is worse than a short one; every walk ends with a reason, and only those of
//! [`StackEnd::is_whole`] mean that it is whole; frames are guessed only where the user asked for
//! it, and the end says so; "minus one" for return addresses happens in
//! [`Walk::lookup_address`] and nowhere else.

pub mod frame_pointers;
pub mod glide;
pub mod lookup;
pub mod rule_cache;
pub mod window;

use htrace_ebpf_common::{
    control::MAX_FRAMES,
    counters::Counter,
    encoding::{Rule, RuleKind, SIGNAL_FRAME_RBP, SIGNAL_FRAME_RIP, SIGNAL_FRAME_RSP},
    wire::StackEnd,
};

use self::{
    glide::{PREDICTIONS, Prediction},
    lookup::Lookup,
    window::Window,
};
use crate::kernel::{Kernel, Registers};

/// rsp is a multiple of this before each call, and the CFA is that value (System V ABI for
/// x86-64, 3.2.2).
const FRAME_ALIGNMENT: u64 = 16;

/// Bytes of a stack slot.
const SLOT: u64 = size_of::<u64>() as u64;

/// Odd, so that multiplication by it is a bijection.
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

/// State of a walk: the frame that comes next, and what is known of its registers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// Stack pointer at the entry of the function where it began.
    start: u64,
    /// Its return address, or the instruction that a signal interrupted.
    pc: u64,
    /// Its stack pointer.
    sp: u64,
    /// Its rbp, if that is known.
    bp: u64,
    /// Where its rbp was saved; 0 if `bp` is its value. It is read only when a rule needs it:
    /// most frames do not, and the slot cannot change during the walk.
    bp_at: u64,
    /// Hash of the frames so far.
    hash: u64,
    /// Number of frames so far.
    frames: u32,
    /// Largest number of frames, at most [`MAX_FRAMES`].
    limit: u32,
    /// 1 if a signal interrupted the frame, 0 if it waits for a call to return.
    interrupted: u32,
    /// A [`StackEnd`].
    end: u32,
    /// 1 once a caller was found by a frame pointer.
    guessed: u32,
    /// Number of the generation of rules, never 0.
    generation: u32,
    window: Window,
    predictions: [Prediction; PREDICTIONS],
}

/// Whether a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There may be more frames.
    Continues,
    /// The walk has ended.
    Ended,
}

impl Walk {
    /// A walk that has not begun.
    #[cfg(test)]
    pub(crate) const NEW: Self = Self {
        start: 0,
        pc: 0,
        sp: 0,
        bp: 0,
        bp_at: 0,
        hash: 0,
        frames: 0,
        limit: 0,
        interrupted: 0,
        end: 0,
        guessed: 0,
        generation: 1,
        window: Window::NEW,
        predictions: [Prediction::NONE; PREDICTIONS],
    };

    /// Begins a walk at the entry of a function, and returns the return address. It lies at the
    /// stack pointer, so that no table is needed for the first frame, the caller.
    #[inline(always)]
    pub fn begin<K: Kernel>(&mut self, kernel: &K, registers: &Registers, limit: u32) -> u64 {
        // The slot was written by the `call` just now, so it is readable.
        self.pc = self.window.fill(kernel, registers.sp).unwrap_or(0);
        self.start = registers.sp;
        self.sp = registers.sp.wrapping_add(SLOT);
        self.bp = registers.fp;
        self.bp_at = registers.fp_at;
        self.hash = 0;
        self.frames = 0;
        self.limit = if limit < MAX_FRAMES as u32 {
            limit
        } else {
            MAX_FRAMES as u32
        };
        self.interrupted = 0;
        self.guessed = 0;
        self.generation = kernel.rule_generation() | 1;
        self.end = StackEnd::Depth as u32;
        self.pc
    }

    /// Learns from the walk, which has ended, for the next.
    #[inline(always)]
    pub fn finish(&mut self) {
        self.window.learn(self.start, self.sp);
    }

    /// Number of frames.
    #[must_use]
    pub const fn frames(&self) -> usize {
        self.frames as usize
    }

    /// Number of the [`StackEnd`].
    #[must_use]
    pub const fn end(&self) -> u8 {
        self.end as u8
    }

    /// A 64-bit id of the frames and their end, never 0. Each frame's step is a bijection of the
    /// hash, so stacks that differ in one frame never collide, and others do with a probability of
    /// 2^-64.
    #[must_use]
    pub const fn stack_id(&self) -> u64 {
        let tail = (self.frames as u64) << 8 | self.end as u64;
        match mix(self.hash, tail) {
            // 0 stands for 'no stack'.
            0 => ODD,
            id => id,
        }
    }

    /// The address by which to look up a rule. A call may be the last instruction of its
    /// function, so a return address is looked up one byte earlier.
    const fn lookup_address(&self) -> u64 {
        self.pc.wrapping_sub(1 - self.interrupted as u64)
    }

    /// Adds the frame to the stack.
    #[inline(always)]
    fn push(&mut self, frames: &mut [u64; MAX_FRAMES]) -> Result<(), StackEnd> {
        if self.frames >= self.limit {
            return Err(StackEnd::Depth);
        }
        frames[self.frames as usize % MAX_FRAMES] = self.pc;
        self.hash = mix(self.hash, self.pc);
        self.frames += 1;
        Ok(())
    }

    #[inline(always)]
    fn read<K: Kernel>(&mut self, kernel: &K, address: u64) -> Result<u64, StackEnd> {
        self.window
            .read(kernel, address)
            .ok_or(StackEnd::Unreadable)
    }

    /// The reason for an end, given what the walk has gone through.
    const fn reason(&self, end: StackEnd) -> StackEnd {
        match end {
            StackEnd::Complete if self.guessed != 0 => StackEnd::Guessed,
            end => end,
        }
    }

    /// Whether the walk goes on after a step. If not, it keeps why.
    #[inline(always)]
    fn after(&mut self, step: Result<(), StackEnd>) -> Progress {
        match step {
            Ok(()) => Progress::Continues,
            Err(end) => {
                self.end = self.reason(end) as u32;
                Progress::Ended
            }
        }
    }

    /// The value of rbp.
    #[inline(always)]
    fn rbp<K: Kernel>(&mut self, kernel: &K) -> Result<u64, StackEnd> {
        if self.bp_at != 0 {
            self.bp = self.read(kernel, self.bp_at)?;
            self.bp_at = 0;
        }
        Ok(self.bp)
    }
}

const fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(ODD);
    product ^ product >> 32
}

/// Adds some frames: those that are predicted, or one.
#[inline(always)]
pub fn go_on<K: Kernel>(kernel: &K, walk: &mut Walk, frames: &mut [u64; MAX_FRAMES]) -> Progress {
    if glide::glide(walk, frames) {
        return Progress::Continues;
    }
    step(kernel, walk, frames)
}

/// Adds one frame and goes on to its caller.
#[inline(always)]
pub fn step<K: Kernel>(kernel: &K, walk: &mut Walk, frames: &mut [u64; MAX_FRAMES]) -> Progress {
    let stepped = frame(kernel, walk, frames);
    walk.after(stepped)
}

#[inline(always)]
fn frame<K: Kernel>(
    kernel: &K,
    walk: &mut Walk,
    frames: &mut [u64; MAX_FRAMES],
) -> Result<(), StackEnd> {
    let found = look_up(kernel, walk);
    found.is_frame()?;
    walk.push(frames)?;
    let end = match found.rule() {
        Ok(rule) => match to_caller(kernel, walk, rule) {
            Err(end) => end,
            Ok(()) => return Ok(()),
        },
        Err(end) => end,
    };
    let without_data = matches!(end, StackEnd::Gap | StackEnd::NoTable | StackEnd::Jit);
    if !without_data || walk.interrupted != 0 || kernel.control().guess_frame_pointers == 0 {
        return Err(end);
    }
    guessed_caller(kernel, walk).map_err(|_| end)
}

/// The rule for the frame. A return address that a return probe has replaced is translated back.
#[inline(always)]
fn look_up<K: Kernel>(kernel: &K, walk: &mut Walk) -> Lookup {
    let interrupted = walk.interrupted != 0;
    let found = rule_cache::look_up(kernel, walk.lookup_address(), interrupted);
    if interrupted {
        return found;
    }
    if let Ok(rule) = found.rule() {
        walk.predict(rule);
        return found;
    }
    let slot = walk.sp.wrapping_sub(SLOT);
    let original = kernel.replaced_return_address(slot);
    if original == 0 || original == walk.pc {
        return found;
    }
    kernel.count(Counter::Trampolines);
    walk.pc = original;
    rule_cache::look_up(kernel, walk.lookup_address(), false)
}

/// From the frame to its caller.
#[inline(always)]
fn to_caller<K: Kernel>(kernel: &K, walk: &mut Walk, rule: Rule) -> Result<(), StackEnd> {
    let offset = rule.cfa_offset();
    match rule.kind() {
        RuleKind::Rsp => call_frame(kernel, walk, walk.sp.wrapping_add(offset), rule),
        RuleKind::Rbp => {
            let base = walk.rbp(kernel)?;
            call_frame(kernel, walk, base.wrapping_add(offset), rule)
        }
        RuleKind::Plt => {
            let pushed = walk.pc % 16 >= rule.plt_threshold() as u64;
            let cfa = walk.sp.wrapping_add(SLOT + SLOT * pushed as u64);
            call_frame(kernel, walk, cfa, Rule::END_OF_STACK)
        }
        RuleKind::Drap => {
            let base = walk.rbp(kernel)?;
            let cfa = walk.read(kernel, base.wrapping_sub(offset))?;
            walk.bp_at = base;
            call_frame(kernel, walk, cfa, Rule::END_OF_STACK)
        }
        RuleKind::SignalFrame => interrupted_frame(kernel, walk),
        RuleKind::EndOfStack => Err(StackEnd::Complete),
        RuleKind::Gap => Err(StackEnd::Gap),
        RuleKind::Unsupported => Err(StackEnd::Unsupported),
    }
}

/// The caller of the frame whose CFA is given; `rule` says where rbp is saved, if it is.
#[inline(always)]
fn call_frame<K: Kernel>(
    kernel: &K,
    walk: &mut Walk,
    cfa: u64,
    rule: Rule,
) -> Result<(), StackEnd> {
    let alignment = match walk.interrupted {
        0 => FRAME_ALIGNMENT,
        // What a signal has interrupted may be called with any stack of words: code of the vdso is,
        // and assembly.
        _ => SLOT,
    };
    if cfa <= walk.sp || !cfa.is_multiple_of(alignment) {
        return Err(StackEnd::Suspect);
    }
    walk.pc = walk.read(kernel, cfa.wrapping_sub(SLOT))?;
    if let Some(below) = rule.rbp_below_cfa() {
        walk.bp_at = cfa.wrapping_sub(below);
    }
    walk.sp = cfa;
    walk.interrupted = 0;
    Ok(())
}

/// The caller by the frame pointer, of code without unwind data that may or may not keep one. Such
/// code need not align its frames to more than a slot. What is found must pass the checks of any
/// other return address.
#[inline(always)]
fn guessed_caller<K: Kernel>(kernel: &K, walk: &mut Walk) -> Result<(), StackEnd> {
    let fp = walk.rbp(kernel)?;
    if fp < walk.sp || !fp.is_multiple_of(SLOT) {
        return Err(StackEnd::Suspect);
    }
    walk.pc = walk.read(kernel, fp.wrapping_add(SLOT))?;
    walk.bp_at = fp;
    walk.sp = fp.wrapping_add(2 * SLOT);
    walk.guessed = 1;
    Ok(())
}

/// The code that a signal interrupted. Its stack may be another one, so nothing is known about
/// where its stack pointer lies.
#[inline(always)]
fn interrupted_frame<K: Kernel>(kernel: &K, walk: &mut Walk) -> Result<(), StackEnd> {
    let sp = walk.sp;
    walk.pc = walk.read(kernel, sp.wrapping_add(SIGNAL_FRAME_RIP))?;
    walk.bp_at = sp.wrapping_add(SIGNAL_FRAME_RBP);
    walk.sp = walk.read(kernel, sp.wrapping_add(SIGNAL_FRAME_RSP))?;
    walk.interrupted = 1;
    Ok(())
}

#[cfg(test)]
mod tests;
