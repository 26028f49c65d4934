//! The seam between probe logic and the kernel.
//!
//! Two implementations exist: helpers and maps inside the BPF programs, and a fake with memory,
//! records and counters that tests look into.

use htrace_ebpf_common::{
    control::Control,
    counters::Counter,
    wire::{Header, StackRecord},
};

/// Registers of the target at a hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer: the address of the probe.
    pub ip: u64,
    /// Stack pointer. At the entry of a function it points to the return address.
    pub sp: u64,
    /// Frame pointer register, whatever the function uses it for.
    pub fp: u64,
}

/// What probe logic needs of its surroundings.
pub trait Kernel {
    /// The recorder's settings.
    fn control(&self) -> Control;

    /// Head of a record: fills in clock and thread.
    fn header(&self, kind: htrace_ebpf_common::wire::Kind, detail: u8) -> Header;

    /// The word of the target's memory at `address`, if it can be read without waiting.
    fn read_user(&self, address: u64) -> Option<u64>;

    /// True if the stack of that id is already in the ring buffer.
    fn stack_is_known(&self, id: u64) -> bool;

    /// Notes that the stack of that id is in the ring buffer.
    fn stack_became_known(&self, id: u64);

    /// Sends a record of fixed size; false if it found no room.
    fn emit<R: Copy + 'static>(&self, record: R) -> bool;

    /// Sends the first `frames` frames of a stack record; false if it found no room.
    fn emit_stack(&self, record: &StackRecord, frames: usize) -> bool;

    /// Adds one to a counter.
    fn count(&self, counter: Counter);
}
