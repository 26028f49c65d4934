//! What happens when a probe is hit: [`enter`] at the entry of an allocation function, [`leave`]
//! at its return, [`release`] at the entry of a function that frees.

use htrace_ebpf_common::{
    control::Control,
    counters::Counter,
    wire::{AllocationRecord, Kind, Outcome, PointerRecord, ReallocRecord},
};

use crate::{
    call::{Call, Function},
    kernel::{Kernel, Registers},
    selection::is_chosen,
    stack,
    thread::{Pending, Thread},
};

/// How far below a call the calls lie that the allocator makes inside it, in bytes. Frames of an
/// allocator's wrappers are small. A signal frame is larger: red zone (128), `ucontext` and
/// `siginfo` (440) and at least the legacy floating-point state (512), so a handler's calls are
/// never taken for the allocator's own.
const NESTED_WITHIN: u64 = 1024;

/// Blocks are aligned so (`MALLOC_ALIGNMENT` of C libraries for x86-64).
const BLOCK_ALIGNMENT: u64 = 16;

/// What is known of a call's result where a probe stands. (Not an `Option`: compilers leave the
/// value of none undefined, and the verifier does not let it be moved.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Result {
    /// Whether it is known.
    pub is_known: bool,
    /// It, or 0.
    pub value: u64,
}

impl Result {
    /// At the entry.
    pub const UNKNOWN: Self = Self {
        is_known: false,
        value: 0,
    };
}

/// An allocation function is entered, or passes a point inside it. At points where its `result` is
/// known the call is recorded at once.
pub fn enter<K: Kernel>(
    kernel: &K,
    thread: &mut Thread,
    registers: &Registers,
    call: &Call,
    result: Result,
) {
    if result.is_known && !is_block(result.value) {
        kernel.count(Counter::Failed);
        return;
    }
    let control = kernel.control();
    let may_be_nested = thread.innermost().is_some();
    let mut chosen = false;
    if !may_be_nested {
        chosen = control.is_on() && is_chosen(kernel, &control, thread, call.size);
        if result.is_known && !chosen {
            return;
        }
    }
    let return_address = thread.walk.begin(kernel, registers, control.max_frames);
    if is_nested(&control, thread, registers, return_address, Some(call.size)) {
        // Others return unseen.
        if !call.is_seen_inside() {
            thread.nested = thread.nested.wrapping_add(1);
        }
        kernel.count(Counter::Nested);
        return;
    }
    if may_be_nested {
        chosen = control.is_on() && is_chosen(kernel, &control, thread, call.size);
    }
    let stack = chosen.then(|| stack::capture(kernel, thread));
    if result.is_known {
        // A point before may have begun the call, on a way on which another one ends it as well.
        if thread.innermost().is_some() {
            thread.take(registers.sp);
        }
        if let Some(stack) = stack {
            record_allocation(kernel, thread, call.size, stack, result.value);
        }
        return;
    }
    // There is no room for another one.
    if thread.is_full() && kernel.forget_left_by_exceptions(thread) {
        kernel.count(Counter::Abandoned);
    }
    let mut pending = Pending::new(call, registers.sp, return_address, stack);
    if control.is_on() && !chosen {
        pending = pending.left_out();
    }
    let again = is_entered_again(kernel, thread, &pending);
    if thread.push(pending) {
        if again {
            thread.nested = thread.nested.wrapping_add(1);
        }
        kernel.count(match again {
            true => Counter::Nested,
            false => Counter::Abandoned,
        });
    }
    let reallocates = matches!(call.function, Function::Realloc) && call.argument != 0;
    if reallocates
        && control.is_on()
        && !emit_pointer(kernel, Some(thread), Kind::ReallocBegin, call.argument)
    {
        kernel.count(Counter::ReallocBeginRingFull);
    }
}

/// True for what can be a block: an allocator that has found its memory damaged may be on its way
/// to an abort with something else.
const fn is_block(pointer: u64) -> bool {
    pointer != 0 && pointer.is_multiple_of(BLOCK_ALIGNMENT)
}

/// An allocation function has returned `value`; the return address stood at `slot`.
pub fn leave<K: Kernel>(kernel: &K, thread: &mut Thread, slot: u64, value: u64) {
    let recording = kernel.control().is_on();
    let Some(pending) = thread.take(slot) else {
        if thread.nested > 0 {
            thread.nested -= 1;
        } else if recording {
            kernel.count(Counter::ReturnWithoutEntry);
        }
        return;
    };
    if !recording {
        return;
    }
    if pending.is_recorded() {
        record_result(kernel, thread, &pending, value);
    } else if pending.is_left_out() {
        if pending.is(Function::Realloc) && pending.argument != 0 {
            record_realloc(kernel, thread, &pending, value);
        }
    } else {
        kernel.count(Counter::BeforeStart);
    }
}

/// A point is hit at which an `operator new`, or another function that is watched from inside, has
/// its result `value` and will return it to the address that stands at `slot`: its `ret`
/// instruction or one before. The code may be shared with other functions.
///
/// What was entered otherwise, or before the probes were there, is not this probe's to count.
pub fn leave_at_ret<K: Kernel>(kernel: &K, thread: &mut Thread, slot: u64, value: u64) {
    let begun = thread.innermost().is_some()
        && thread.holds(slot, Function::OperatorNew, kernel.read_user(slot));
    if begun {
        leave(kernel, thread, slot, value);
    }
}

/// Makes room among the pending calls by those of `operator new` that an exception has left: their
/// return addresses no longer stand where they stood. (Return probes replace other functions'
/// addresses, which therefore tell nothing.) Returns whether there were any.
pub fn forget_left_by_exceptions<K: Kernel>(kernel: &K, thread: &mut Thread) -> bool {
    thread.retain(|pending| {
        !pending.is(Function::OperatorNew)
            || kernel.read_user(pending.slot) == Some(pending.return_address)
    })
}

/// A function that frees is entered with `pointer`.
pub fn release<K: Kernel>(
    kernel: &K,
    thread: Option<&mut Thread>,
    registers: &Registers,
    pointer: u64,
) {
    let control = kernel.control();
    if pointer == 0 || !control.is_on() {
        return;
    }
    let nested = thread.as_ref().is_some_and(|thread| {
        thread.innermost().is_some() && {
            let return_address = kernel.read_user(registers.sp).unwrap_or(0);
            is_nested(&control, thread, registers, return_address, None)
        }
    });
    if nested {
        kernel.count(Counter::Nested);
        return;
    }
    if !emit_pointer(kernel, thread, Kind::Free, pointer) {
        kernel.count(Counter::FreeRingFull);
    }
}

/// True if the allocator itself makes this call inside the innermost pending one.
///
/// A call deeper in the stack is one if it lies close below the pending call and returns into
/// the allocator's own code. A call at the same stack pointer is one if the pending function
/// ended in a jump to this one: then the size is the same, and the return probe's address stands
/// where the pending call found its caller's. (Without a size, as for frees, no function is
/// known to end so.)
fn is_nested(
    control: &Control,
    thread: &Thread,
    registers: &Registers,
    return_address: u64,
    size: Option<u64>,
) -> bool {
    let Some(outer) = thread.innermost() else {
        return false;
    };
    if outer.is(Function::Malloc) || outer.is(Function::OperatorNew) {
        return false;
    }
    if registers.sp == outer.slot {
        return size == Some(outer.size) && return_address != outer.return_address;
    }
    let below = outer.slot.wrapping_sub(registers.sp);
    below < NESTED_WITHIN && return_address.abs_diff(registers.ip) < control.allocator_text
}

/// True if a `malloc` jumps to itself, as that of glibc before 2.34 does by a hook when it is
/// first called: it will return twice, to a return probe each. (One that was left by `longjmp`,
/// and was followed by another of the same size, looks the same; so what is known is replaced.)
fn is_entered_again<K: Kernel>(kernel: &K, thread: &Thread, pending: &Pending) -> bool {
    thread.innermost().is_some_and(|outer| {
        outer.is(Function::Malloc)
            && pending.is(Function::Malloc)
            && outer.slot == pending.slot
            && outer.size == pending.size
            && outer.return_address != pending.return_address
            && kernel.replaced_return_address(outer.slot) == outer.return_address
    })
}

/// Records what a call has led to.
fn record_result<K: Kernel>(kernel: &K, thread: &mut Thread, pending: &Pending, value: u64) {
    if pending.is(Function::Realloc) {
        record_realloc(kernel, thread, pending, value);
    } else if pending.is(Function::PosixMemalign) {
        // An `int`: the upper half of the register means nothing.
        match (value as u32, kernel.read_user(pending.argument)) {
            (0, Some(pointer)) => {
                record_allocation(kernel, thread, pending.size, pending.stack, pointer);
            }
            (0, None) => kernel.count(Counter::PointerUnreadable),
            _ => kernel.count(Counter::Failed),
        }
    } else {
        record_allocation(kernel, thread, pending.size, pending.stack, value);
    }
}

/// Records a new block; null is none.
#[inline(always)]
fn record_allocation<K: Kernel>(
    kernel: &K,
    thread: &mut Thread,
    size: u64,
    stack: u64,
    pointer: u64,
) {
    if pointer == 0 {
        kernel.count(Counter::Failed);
        return;
    }
    let record = AllocationRecord {
        header: thread.header(kernel, Kind::Allocation, 0),
        pointer,
        size,
        stack,
    };
    if !send(kernel, thread, record) {
        kernel.count(Counter::AllocationRingFull);
    }
}

/// Records what has become of a block that was given to realloc. A null pointer means that a
/// size of zero freed the block, or else that the block was left as it was.
fn record_realloc<K: Kernel>(kernel: &K, thread: &mut Thread, pending: &Pending, value: u64) {
    let old = pending.argument;
    if old == 0 {
        record_allocation(kernel, thread, pending.size, pending.stack, value);
        return;
    }
    let outcome = match (value, pending.size) {
        (0, 0) => Outcome::Freed,
        (0, _) => Outcome::Failed,
        // The new block is not recorded, but the old one is gone.
        _ if pending.is_left_out() => Outcome::Freed,
        _ => Outcome::Moved,
    };
    if outcome == Outcome::Failed {
        kernel.count(Counter::Failed);
    }
    let record = ReallocRecord {
        header: thread.header(kernel, Kind::ReallocEnd, outcome as u8),
        old,
        new: value,
        size: pending.size,
        stack: pending.stack,
    };
    if !send(kernel, thread, record) {
        kernel.count(Counter::ReallocRingFull);
    }
}

/// Sends a record that consists of a pointer; false if it found no room.
fn emit_pointer<K: Kernel>(
    kernel: &K,
    thread: Option<&mut Thread>,
    kind: Kind,
    pointer: u64,
) -> bool {
    let Some(thread) = thread else {
        let header = kernel.header(kind);
        return kernel.emit(PointerRecord { header, pointer }, true);
    };
    let header = thread.header(kernel, kind, 0);
    send(kernel, thread, PointerRecord { header, pointer })
}

/// Sends a record; false if it found no room.
#[inline(always)]
fn send<K: Kernel, R: Copy + 'static>(kernel: &K, thread: &mut Thread, record: R) -> bool {
    kernel.emit(record, thread.is_look_due(size_of::<R>()))
}

#[cfg(test)]
mod tests;
