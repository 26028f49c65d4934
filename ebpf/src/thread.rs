//! State that probes keep of one thread: the calls that have begun and not returned, and room to
//! build a stack in.
//!
//! It is per thread, not per CPU: a probe can be preempted in the middle of a stack by another
//! thread's probe on the same CPU, but one thread runs one probe at a time.
//!
//! Several calls can be pending at once when a signal handler that interrupted one of them
//! allocates, so they form a small stack of their own. A call is recognised at its return by the
//! stack pointer, which `ret` restores exactly. A call that never returns (longjmp out of a
//! signal handler, an exception out of `operator new`) is replaced when its stack slot is used
//! again.

use htrace_ebpf_common::wire::{Header, Kind, StackRecord};

use crate::{
    call::{Call, Function},
    kernel::Kernel,
    unwind::Walk,
};

/// A thread looks for room in the ring buffer once in so many bytes of records. What all threads send
/// between must fit into the part of it that is kept free.
const BYTES_A_LOOK: u16 = 512;

/// How many stacks a thread knows to have been sent, without asking others.
const SENT_STACKS: usize = 64;

/// Calls that can be pending in one thread. Each but the first needs a signal that arrives inside
/// the allocator; the count is a power of two so that indices can be masked.
pub const MAX_PENDING: usize = 4;

/// A call that has begun.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// Stack pointer at the entry: the slot of the return address.
    pub slot: u64,
    /// The return address that stood there.
    pub return_address: u64,
    /// Requested size in bytes.
    pub size: u64,
    /// `realloc`: the old block. `posix_memalign`: where the pointer is to be stored.
    pub argument: u64,
    /// Id of the stack at the entry.
    pub stack: u64,
    /// What was called; 0 in an element that was never used.
    function: u8,
    /// [`Pending::RECORDED`], [`Pending::LEFT_OUT`], or 0 if the call began before the recording.
    recorded: u8,
    /// Not of bytes: for zeros for an array of bytes the compiler makes a loop, too.
    half_padding: u16,
    padding: u32,
}

impl Pending {
    const RECORDED: u8 = 1;
    const LEFT_OUT: u8 = 2;

    /// A call that enters now.
    #[must_use]
    pub const fn new(call: &Call, slot: u64, return_address: u64, stack: Option<u64>) -> Self {
        let (stack, recorded) = match stack {
            Some(id) => (id, Self::RECORDED),
            None => (0, 0),
        };
        Self {
            slot,
            return_address,
            size: call.size,
            argument: call.argument,
            stack,
            function: call.function as u8,
            recorded,
            half_padding: 0,
            padding: 0,
        }
    }

    /// A copy, field by field: of an assignment the compiler makes a loop over bytes, each turn of
    /// which the verifier follows.
    #[inline(always)]
    const fn copied(&self) -> Self {
        Self {
            slot: self.slot,
            return_address: self.return_address,
            size: self.size,
            argument: self.argument,
            stack: self.stack,
            function: self.function,
            recorded: self.recorded,
            half_padding: 0,
            padding: 0,
        }
    }

    /// The same call, of which only what it does to an older block is recorded.
    #[must_use]
    pub const fn left_out(mut self) -> Self {
        self.recorded = Self::LEFT_OUT;
        self
    }

    /// True if the call began while a recording was on, and is part of it.
    #[must_use]
    pub const fn is_recorded(&self) -> bool {
        self.recorded == Self::RECORDED
    }

    /// True if the call is left out of the recording.
    #[must_use]
    pub const fn is_left_out(&self) -> bool {
        self.recorded == Self::LEFT_OUT
    }

    /// True if this is a call of `function`.
    #[must_use]
    pub const fn is(&self, function: Function) -> bool {
        self.function == function as u8
    }
}

/// State of one thread; all zero is the state of a thread that was never seen.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Its id.
    pub tid: u32,
    /// Bytes of records since it last looked for room.
    since_look: u16,
    /// What the clock said at its first record since `jiffies` changed.
    clock: u16,
    jiffies: u64,
    pending: [Pending; MAX_PENDING],
    /// Number of elements of `pending` in use.
    depth: u32,
    /// Calls made by the allocator inside a pending one that have not returned.
    pub nested: u32,
    /// Ids of stacks of late that are known to have been sent.
    sent_stacks: [u64; SENT_STACKS],
    /// Bytes to the next mark of the sample; 0 if it was not drawn yet.
    pub until_mark: u64,
    /// The walk of its stack.
    pub walk: Walk,
    /// Room to build a stack in.
    pub stack: StackRecord,
}

impl Thread {
    #[cfg(test)]
    pub(crate) fn for_tests(pending: [Pending; MAX_PENDING], stack: StackRecord) -> Self {
        Self {
            tid: 1,
            since_look: 0,
            clock: 0,
            jiffies: 0,
            pending,
            depth: 0,
            nested: 0,
            sent_stacks: [0; SENT_STACKS],
            until_mark: 0,
            walk: Walk::NEW,
            stack,
        }
    }

    /// Head of a record.
    #[inline(always)]
    pub fn header<K: Kernel>(&mut self, kernel: &K, kind: Kind, detail: u8) -> Header {
        let jiffies = kernel.jiffies();
        if jiffies != self.jiffies {
            self.jiffies = jiffies;
            self.clock = kernel.clock();
        }
        Header {
            kind: kind as u8,
            detail,
            clock: self.clock,
            tid: self.tid,
        }
    }

    /// True if it is time to look for room in the ring buffer, before a record of `bytes`.
    #[inline(always)]
    pub fn is_look_due(&mut self, bytes: usize) -> bool {
        self.since_look += bytes as u16;
        let is_due = self.since_look >= BYTES_A_LOOK;
        if is_due {
            self.since_look = 0;
        }
        is_due
    }

    /// True if the thread knows that the stack of that id was sent.
    #[inline(always)]
    #[must_use]
    pub const fn has_sent_stack(&self, id: u64) -> bool {
        self.sent_stacks[id as usize % SENT_STACKS] == id
    }

    /// Notes that the stack of that id was sent, by whomever.
    #[inline(always)]
    pub const fn note_sent_stack(&mut self, id: u64) {
        self.sent_stacks[id as usize % SENT_STACKS] = id;
    }

    /// The innermost pending call.
    #[must_use]
    pub fn innermost(&self) -> Option<&Pending> {
        match self.depth as usize {
            0 => None,
            depth => Some(&self.pending[masked(depth - 1)]),
        }
    }

    /// Adds a call. Calls that this one shows to be abandoned make room: one that used the same
    /// stack slot with all inside it, or the innermost when there is no room. Returns whether any
    /// was.
    pub fn push(&mut self, pending: Pending) -> bool {
        let depth = self.depth as usize;
        let kept = match self.find(pending.slot) {
            Some(index) => index,
            None => depth.min(MAX_PENDING - 1),
        };
        self.pending[masked(kept)] = pending;
        self.depth = kept as u32 + 1;
        kept < depth
    }

    /// Takes the call whose return address stood at `slot`, and forgets all inside it.
    pub fn take(&mut self, slot: u64) -> Option<Pending> {
        let index = self.find(slot)?;
        self.depth = index as u32;
        Some(self.pending[masked(index)])
    }

    /// True if a call of `function` is pending whose return address stands at `slot`, where
    /// `found` stands now.
    #[must_use]
    pub fn holds(&self, slot: u64, function: Function, found: Option<u64>) -> bool {
        self.find(slot).is_some_and(|index| {
            let pending = &self.pending[masked(index)];
            pending.is(function) && found == Some(pending.return_address)
        })
    }

    /// True if the next call finds no room, unless it uses a slot that is known.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.depth as usize >= MAX_PENDING
    }

    /// Forgets the pending calls that `is_live` does not hold for, and returns whether there
    /// were any.
    pub fn retain(&mut self, is_live: impl Fn(&Pending) -> bool) -> bool {
        let depth = self.depth as usize;
        let mut kept = 0;
        for index in 0..MAX_PENDING {
            if index < depth && is_live(&self.pending[index]) {
                self.pending[masked(kept)] = self.pending[index].copied();
                kept += 1;
            }
        }
        self.depth = kept as u32;
        kept < depth
    }

    /// Index of the pending call whose return address stood at `slot`.
    fn find(&self, slot: u64) -> Option<usize> {
        let depth = self.depth as usize;
        (0..MAX_PENDING).find(|&index| index < depth && self.pending[index].slot == slot)
    }
}

/// An index that the verifier can bound. The compiler would leave the mask out where it can prove
/// by branches that the index is small enough; verifiers before Linux 6.3 lose such proofs when a
/// register is spilled.
fn masked(index: usize) -> usize {
    core::hint::black_box(index) % MAX_PENDING
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::new_thread;

    fn at(slot: u64) -> Pending {
        Pending::new(&Call::malloc(1), slot, 0, Some(1))
    }

    #[test]
    fn calls_return_in_any_order_of_slots() {
        let mut thread = new_thread();
        assert!(thread.innermost().is_none());
        assert!(!thread.push(at(100)));
        // A handler on an alternate stack above the interrupted one.
        assert!(!thread.push(at(900)));
        assert_eq!(thread.innermost().unwrap().slot, 900);
        assert_eq!(thread.take(900).unwrap().slot, 900);
        assert_eq!(thread.take(100).unwrap().slot, 100);
        assert!(thread.take(100).is_none());
    }

    #[test]
    fn a_reused_slot_replaces_the_abandoned_call_and_all_inside_it() {
        let mut thread = new_thread();
        thread.push(at(100));
        thread.push(at(80));
        assert!(thread.push(at(100)));
        assert!(thread.take(80).is_none());
        assert!(thread.take(100).is_some());
        assert!(thread.innermost().is_none());
    }

    #[test]
    fn a_full_state_gives_up_the_innermost() {
        let mut thread = new_thread();
        for slot in 1..=MAX_PENDING as u64 {
            assert!(!thread.push(at(slot)));
        }
        assert!(thread.push(at(99)));
        assert!(thread.take(MAX_PENDING as u64).is_none());
        assert!(thread.take(99).is_some());
        assert!(thread.take(1).is_some());
    }
}
