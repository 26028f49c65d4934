//! The BPF programs: each reads the arguments of the function it is attached to and hands them to
//! the logic of the library. Everything that is not in safe Rust, helpers and maps, is in
//! [`kernel`].
//!
//! All programs are of type KPROBE, so that one tail-call array or link type serves them all.
//! Their names are what the recorder attaches by.

#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod kernel;

use aya_ebpf::{
    macros::{raw_tracepoint, uprobe, uretprobe},
    programs::{ProbeContext, RawTracePointContext, RetProbeContext},
};
use aya_log_ebpf::debug;
use htrace_ebpf::{Kernel, call::Call, probe};
use htrace_ebpf_common::{counters::Counter, wire::Kind};

use crate::kernel::BpfKernel;

/// Why programs return 0: the value is ignored for uprobes, and not used before 6.x reads it.
const DONE: u32 = 0;

/// An argument of the probed function; all are integers in registers, so none is missing.
fn argument(context: &ProbeContext, index: usize) -> u64 {
    context.arg(index).unwrap_or(0)
}

fn enter(context: &ProbeContext, call: Call) -> u32 {
    let registers = kernel::registers(context);
    debug!(
        context,
        "enter {:x} size {} argument {:x}", registers.ip, call.size, call.argument
    );
    if let Some(thread) = kernel::thread() {
        probe::enter(&BpfKernel, thread, &registers, &call);
    }
    DONE
}

/// `malloc(size)`.
#[uprobe]
fn enter_malloc(context: ProbeContext) -> u32 {
    enter(&context, Call::malloc(argument(&context, 0)))
}

/// `operator new(size)` in all its forms.
#[uprobe]
fn enter_operator_new(context: ProbeContext) -> u32 {
    enter(&context, Call::operator_new(argument(&context, 0)))
}

/// A `ret` instruction by which an `operator new` ends. A return probe would kill the target when
/// an exception leaves the function.
#[uprobe]
fn leave_at_ret(context: ProbeContext) -> u32 {
    let slot = kernel::registers(&context).sp;
    let value = kernel::return_value(&context);
    debug!(&context, "ret at slot {:x} with {:x}", slot, value);
    if let Some(thread) = kernel::thread_if_seen() {
        probe::leave_at_ret(&BpfKernel, thread, slot, value);
    }
    DONE
}

/// `calloc(count, size)`.
#[uprobe]
fn enter_calloc(context: ProbeContext) -> u32 {
    enter(
        &context,
        Call::calloc(argument(&context, 0), argument(&context, 1)),
    )
}

/// `valloc(size)` and `pvalloc(size)`.
#[uprobe]
fn enter_valloc(context: ProbeContext) -> u32 {
    enter(&context, Call::aligned(argument(&context, 0)))
}

/// `memalign(alignment, size)` and `aligned_alloc(alignment, size)`.
#[uprobe]
fn enter_memalign(context: ProbeContext) -> u32 {
    enter(&context, Call::aligned(argument(&context, 1)))
}

/// `posix_memalign(out, alignment, size)`.
#[uprobe]
fn enter_posix_memalign(context: ProbeContext) -> u32 {
    enter(
        &context,
        Call::posix_memalign(argument(&context, 0), argument(&context, 2)),
    )
}

/// `realloc(old, size)`.
#[uprobe]
fn enter_realloc(context: ProbeContext) -> u32 {
    enter(
        &context,
        Call::realloc(argument(&context, 0), argument(&context, 1)),
    )
}

/// `reallocarray(old, count, size)`.
#[uprobe]
fn enter_reallocarray(context: ProbeContext) -> u32 {
    let (old, count, size) = (
        argument(&context, 0),
        argument(&context, 1),
        argument(&context, 2),
    );
    enter(&context, Call::reallocarray(old, count, size))
}

/// The return of any of the functions above.
#[uretprobe]
fn leave_allocation(context: RetProbeContext) -> u32 {
    let (slot, value) = (kernel::return_slot(&context), context.ret::<u64>());
    debug!(&context, "leave to slot {:x} with {:x}", slot, value);
    if let Some(thread) = kernel::thread() {
        probe::leave(&BpfKernel, thread, slot, value);
    }
    DONE
}

/// `free(pointer)` and `cfree(pointer)`.
#[uprobe]
fn enter_free(context: ProbeContext) -> u32 {
    let registers = kernel::registers(&context);
    let thread = kernel::thread_if_seen().map(|thread| &*thread);
    let pointer = argument(&context, 0);
    debug!(&context, "free {:x}", pointer);
    probe::release(&BpfKernel, thread, &registers, pointer);
    DONE
}

/// `_dl_debug_state()`: the dynamic linker has changed, or is about to change, the list of
/// modules.
#[uprobe]
fn modules_changed(context: ProbeContext) -> u32 {
    debug!(&context, "modules changed");
    kernel::notice(Kind::ModulesChanged);
    DONE
}

/// A function of the recorder's own, by which it tests links.
#[uprobe]
fn self_test(_context: ProbeContext) -> u32 {
    BpfKernel.count(Counter::SelfTest);
    DONE
}

/// `sched_process_exec`: a process has replaced its program.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn process_exec(_context: RawTracePointContext) -> i32 {
    if kernel::is_target() {
        kernel::notice(Kind::Exec);
    }
    0
}

/// `sched_process_exit`: a thread has ended.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn thread_exit(_context: RawTracePointContext) -> i32 {
    if kernel::is_target() {
        kernel::forget_thread();
    }
    0
}

/// The kernel allows the helpers in use to programs under a GPL-compatible licence only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier refuses a program that can get here: an endless loop.
    loop {}
}
