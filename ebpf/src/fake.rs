//! A kernel for tests: memory, a ring buffer and counters that can be looked into.

extern crate std;

use core::cell::{Cell, RefCell};
use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use htrace_ebpf_common::{
    control::{Control, MAX_FRAMES},
    counters::Counter,
    wire::{
        AllocationRecord, Header, Kind, Outcome, PointerRecord, ReallocRecord, StackEnd,
        StackRecord,
    },
};

use htrace_ebpf_common::{call_pattern::may_end_call, encoding::RuleKind};
use htrace_unwind_tables::{Coverage, walker::Found};

use crate::{
    call::Call,
    kernel::Kernel,
    thread::{MAX_PENDING, Pending, Thread},
    unwind::{Progress, frame_pointers, go_on, lookup::Lookup, window::WINDOW_WORDS},
};

/// A record as a test wants to see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Stack,
    Allocation {
        pointer: u64,
        size: u64,
    },
    Free {
        pointer: u64,
    },
    ReallocBegin {
        pointer: u64,
    },
    ReallocEnd {
        outcome: u8,
        old: u64,
        new: u64,
        size: u64,
    },
}

impl Sent {
    pub(crate) fn realloc(outcome: Outcome, old: u64, new: u64, size: u64) -> Self {
        Self::ReallocEnd {
            outcome: outcome as u8,
            old,
            new,
            size,
        }
    }
}

pub(crate) type SentStack = (u64, Vec<u64>, StackEnd);

#[derive(Debug, Default)]
pub(crate) struct FakeKernel {
    control: Cell<Control>,
    is_other_thread: Cell<bool>,
    memory: RefCell<BTreeMap<u64, u64>>,
    known: RefCell<BTreeSet<u64>>,
    sent: RefCell<Vec<Sent>>,
    stacks: RefCell<Vec<SentStack>>,
    counters: RefCell<BTreeMap<u32, u64>>,
    full: Cell<bool>,
    reads: Cell<u64>,
    looks: Cell<u64>,
    clock: Cell<u16>,
    jiffies: Cell<u64>,
    generation: Cell<u32>,
    rules: RefCell<Option<BTreeMap<u64, Found>>>,
    remembered: RefCell<BTreeMap<u32, u64>>,
    replaced: RefCell<BTreeMap<u64, u64>>,
    drawn: Cell<u64>,
}

const PAGE: u64 = 4096;

impl FakeKernel {
    pub(crate) fn recording() -> Self {
        let kernel = Self::default();
        kernel.set_phase(Control::RECORDING);
        kernel
    }

    /// Whether the current thread is none of the chosen.
    pub(crate) fn set_other_thread(&self, is_other: bool) {
        self.is_other_thread.set(is_other);
    }

    pub(crate) fn set_phase(&self, phase: u32) {
        self.control.set(Control {
            phase,
            max_frames: MAX_FRAMES as u32,
            allocator_text: 0x10000,
            ..self.control.get()
        });
    }

    /// Changes the settings.
    pub(crate) fn set(&self, change: impl Fn(&mut Control)) {
        let mut control = self.control.get();
        change(&mut control);
        self.control.set(control);
    }

    pub(crate) fn write(&self, address: u64, word: u64) {
        self.memory.borrow_mut().insert(address, word);
    }

    /// The word at an address. Memory comes in whole pages: a page that was written to is there,
    /// and what was not written in it is 0.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let memory = self.memory.borrow();
        let last = address.checked_add(7)?;
        let there = |page: u64| memory.range(page..=page | (PAGE - 1)).next().is_some();
        (there(address & !(PAGE - 1)) && there(last & !(PAGE - 1)))
            .then(|| memory.get(&address).copied().unwrap_or(0))
    }

    /// Number of times that memory was read.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// Gives the rule for an address. Without any, walks go by frame pointers.
    pub(crate) fn set_rule(&self, address: u64, found: Option<Found>) {
        let mut rules = self.rules.borrow_mut();
        let rules = rules.get_or_insert_default();
        if let Some(found) = found {
            rules.insert(address, found);
        }
    }

    /// The rule for an address.
    pub(crate) fn rule(&self, address: u64) -> Option<Found> {
        self.rules.borrow().as_ref()?.get(&address).copied()
    }

    /// Forgets all rules, as when the dynamic linker changes the list of modules.
    pub(crate) fn forget_rules(&self) {
        self.generation.set(self.generation.get() + 2);
        self.remembered.borrow_mut().clear();
    }

    /// Lets the kernel's timer tick, when the clock says so much.
    pub(crate) fn tick(&self, clock: u16) {
        self.clock.set(clock);
        self.jiffies.set(self.jiffies.get() + 1);
    }

    /// How often room was looked for.
    pub(crate) fn looks(&self) -> u64 {
        self.looks.get()
    }

    /// Lets a return probe replace what stands in a slot.
    pub(crate) fn replace_return_address(&self, slot: u64, trampoline: u64) {
        let original = self.word(slot).expect("a slot");
        self.replaced.borrow_mut().insert(slot, original);
        self.write(slot, trampoline);
    }

    pub(crate) fn set_max_frames(&self, max_frames: u32) {
        self.control.set(Control {
            max_frames,
            ..self.control.get()
        });
    }

    pub(crate) fn guess_frame_pointers(&self) {
        self.control.set(Control {
            guess_frame_pointers: 1,
            ..self.control.get()
        });
    }

    pub(crate) fn fill_ring(&self, full: bool) {
        self.full.set(full);
    }

    /// Records sent so far but for stacks, which are then forgotten.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        let mut sent = self.sent.take();
        sent.retain(|record| *record != Sent::Stack);
        sent
    }

    pub(crate) fn order(&self) -> Vec<Sent> {
        self.sent.take()
    }

    pub(crate) fn stacks(&self) -> Vec<SentStack> {
        self.stacks.borrow().clone()
    }

    pub(crate) fn counted(&self, counter: Counter) -> u64 {
        self.counters
            .borrow()
            .get(&counter.slot())
            .copied()
            .unwrap_or(0)
    }
}

impl Kernel for FakeKernel {
    fn control(&self) -> Control {
        self.control.get()
    }

    fn thread_is_chosen(&self) -> bool {
        !self.is_other_thread.get()
    }

    /// The same numbers in each test: splitmix64.
    fn random(&self) -> u32 {
        let state = self.drawn.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.drawn.set(state);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed >> 32) as u32
    }

    fn tid(&self) -> u32 {
        1
    }

    fn clock(&self) -> u16 {
        self.clock.get()
    }

    fn jiffies(&self) -> u64 {
        self.jiffies.get()
    }

    fn read_user(&self, address: u64) -> Option<u64> {
        self.reads.set(self.reads.get() + 1);
        self.word(address)
    }

    fn read_user_words(&self, address: u64, words: &mut [u64; WINDOW_WORDS], length: u64) -> bool {
        self.reads.set(self.reads.get() + 1);
        let words = &mut words[..length as usize / 8];
        for (index, word) in (0..).zip(words.iter_mut()) {
            match address
                .checked_add(index * 8)
                .and_then(|address| self.word(address))
            {
                Some(value) => *word = value,
                None => return false,
            }
        }
        true
    }

    fn walk(&self, thread: &mut Thread) {
        let (walk, frames) = (&mut thread.walk, &mut thread.stack.frames);
        let by_tables = self.rules.borrow().is_some();
        let mut next = || match by_tables {
            true => go_on(self, walk, frames),
            false => frame_pointers::step(self, walk, frames),
        };
        while next() == Progress::Continues {}
    }

    fn find_rule(&self, address: u64, interrupted: bool) -> Lookup {
        let found = self.rule(address);
        let planted = found.is_some_and(|found| {
            let kind = found.rule.kind();
            matches!(kind, RuleKind::SignalFrame | RuleKind::EndOfStack)
        });
        if !interrupted && !planted {
            match self.word(address.wrapping_sub(7)) {
                None => return Lookup::refused(StackEnd::Unreadable),
                Some(before) if !may_end_call(before) => {
                    return Lookup::refused(StackEnd::Suspect);
                }
                Some(_) => {}
            }
        }
        match found {
            None => Lookup::last(StackEnd::NoTable),
            Some(found) if interrupted && found.coverage == Coverage::CallSites => {
                Lookup::last(StackEnd::Unsupported)
            }
            Some(found) => Lookup::found(found.rule),
        }
    }

    fn rule_generation(&self) -> u32 {
        self.generation.get()
    }

    fn remembered_word(&self, index: u32) -> u64 {
        self.remembered.borrow().get(&index).copied().unwrap_or(0)
    }

    fn remember_word(&self, index: u32, word: u64) {
        self.remembered.borrow_mut().insert(index, word);
    }

    fn replaced_return_address(&self, slot: u64) -> u64 {
        self.replaced.borrow().get(&slot).copied().unwrap_or(0)
    }

    fn stack_is_known(&self, id: u64) -> bool {
        self.known.borrow().contains(&id)
    }

    fn stack_became_known(&self, id: u64) {
        self.known.borrow_mut().insert(id);
    }

    fn emit<R: Copy + 'static>(&self, record: R, is_due: bool) -> bool {
        self.looks.set(self.looks.get() + u64::from(is_due));
        if self.full.get() {
            return false;
        }
        let record: &dyn Any = &record;
        let sent = if let Some(record) = record.downcast_ref::<AllocationRecord>() {
            Sent::Allocation {
                pointer: record.pointer,
                size: record.size,
            }
        } else if let Some(record) = record.downcast_ref::<ReallocRecord>() {
            let (old, new, size) = (record.old, record.new, record.size);
            Sent::ReallocEnd {
                outcome: record.header.detail,
                old,
                new,
                size,
            }
        } else if let Some(record) = record.downcast_ref::<PointerRecord>() {
            match record.header.kind == Kind::Free as u8 {
                true => Sent::Free {
                    pointer: record.pointer,
                },
                false => Sent::ReallocBegin {
                    pointer: record.pointer,
                },
            }
        } else {
            panic!("a record of unknown type")
        };
        self.sent.borrow_mut().push(sent);
        true
    }

    fn emit_stack(&self, record: &StackRecord, frames: usize) -> bool {
        if self.full.get() {
            return false;
        }
        let end = StackEnd::from_byte(record.header.detail).expect("a known reason");
        self.stacks
            .borrow_mut()
            .push((record.id, record.frames[..frames].to_vec(), end));
        self.sent.borrow_mut().push(Sent::Stack);
        true
    }

    fn count(&self, counter: Counter) {
        *self
            .counters
            .borrow_mut()
            .entry(counter.slot())
            .or_default() += 1;
    }
}

/// A thread that was never seen.
pub(crate) fn new_thread() -> Thread {
    let header = Header {
        kind: 0,
        detail: 0,
        clock: 0,
        tid: 0,
    };
    let stack = StackRecord {
        header,
        id: 0,
        frames: [0; MAX_FRAMES],
    };
    let pending = [Pending::new(&Call::malloc(0), 0, 0, None); MAX_PENDING];
    Thread::for_tests(pending, stack)
}
