//! The seam between probe logic and the kernel.
//!
//! Two implementations exist: helpers and maps inside the BPF programs, and a fake with memory,
//! records and counters that tests look into.

use htrace_ebpf_common::{
    control::Control,
    counters::Counter,
    wire::{Header, Kind, StackRecord},
};

use crate::{
    probe, selection,
    thread::Thread,
    unwind::{lookup::Lookup, window::WINDOW_WORDS},
};

/// Registers of the target at the entry of the function that was hit. For probes further inside
/// they are worked out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer: the address of the probe.
    pub ip: u64,
    /// Stack pointer. At the entry of a function it points to the return address.
    pub sp: u64,
    /// Frame pointer register, whatever the function uses it for.
    pub fp: u64,
    /// Where the function has saved that register; 0 if `fp` is its value.
    pub fp_at: u64,
}

/// What probe logic needs of its surroundings.
pub trait Kernel {
    /// The recorder's settings.
    fn control(&self) -> Control;

    /// True if the current thread is one of those whose allocations are recorded.
    fn thread_is_chosen(&self) -> bool;

    /// A random number, all of them as likely.
    fn random(&self) -> u32;

    /// Id of the current thread.
    fn tid(&self) -> u32;

    /// The time in ticks: see [`Header::clock`].
    fn clock(&self) -> u16;

    /// Head of a record of the current thread, where that thread's state is not at hand.
    #[inline(always)]
    fn header(&self, kind: Kind) -> Header {
        Header {
            kind: kind as u8,
            detail: 0,
            clock: self.clock(),
            tid: self.tid(),
        }
    }

    /// A number that grows by one at each interrupt of the kernel's timer, 10 ms apart at most. To read
    /// it takes an instruction, the clock 60 ns (measured on Linux 6.18).
    fn jiffies(&self) -> u64;

    /// The word of the target's memory at `address`, if it can be read without waiting.
    fn read_user(&self, address: u64) -> Option<u64>;

    /// Copies `length` bytes of the target's memory from `address` on, at most all that the words
    /// take; false if not all can be read without waiting, and then the words are of no use.
    fn read_user_words(&self, address: u64, words: &mut [u64; WINDOW_WORDS], length: u64) -> bool;

    /// Repeats a step of the thread's walk until it has ended: [`crate::unwind::step`], or
    /// [`crate::unwind::frame_pointers::step`] where there are no unwind tables.
    fn walk(&self, thread: &mut Thread);

    /// The rule for an address, from the table of the file that is mapped there. Unless it was
    /// `interrupted`, the address is that of a return less one, and the bytes before the return
    /// must be those of a call; what a kernel or `makecontext` has put there instead of a call
    /// ([`htrace_ebpf_common::encoding::RuleKind::SignalFrame`] and `EndOfStack`) is exempt.
    fn find_rule(&self, address: u64, interrupted: bool) -> Lookup;

    /// How often rules were forgotten, in steps of 2.
    fn rule_generation(&self) -> u32;

    /// A word of the cache of rules.
    fn remembered_word(&self, index: u32) -> u64;

    /// Stores a word of the cache of rules.
    fn remember_word(&self, index: u32, word: u64);

    /// The return address that a return probe has replaced in that stack slot; 0 if none has.
    fn replaced_return_address(&self, slot: u64) -> u64;

    /// True if the stack of that id is already in the ring buffer.
    fn stack_is_known(&self, id: u64) -> bool;

    /// Notes that the stack of that id is in the ring buffer.
    fn stack_became_known(&self, id: u64);

    /// Sends a record of fixed size; false if it found no room. Whether there is much, and whether the
    /// recorder is to be woken, is looked at only `if_due`.
    fn emit<R: Copy + 'static>(&self, record: R, is_due: bool) -> bool;

    /// Sends the first `frames` frames of a stack record; false if it found no room.
    fn emit_stack(&self, record: &StackRecord, frames: usize) -> bool;

    /// Adds one to a counter.
    fn count(&self, counter: Counter);

    /// Bytes to the next mark of a sample with a mean distance of `mean`: [`selection::distance`].
    /// A call of its own, because it is long and needed in several places.
    fn draw_distance(&self, mean: u64) -> u64 {
        selection::distance(self.random(), mean)
    }

    /// [`probe::forget_left_by_exceptions`]: a call of its own, because it is long and seldom needed.
    fn forget_left_by_exceptions(&self, thread: &mut Thread) -> bool
    where
        Self: Sized,
    {
        probe::forget_left_by_exceptions(self, thread)
    }
}
