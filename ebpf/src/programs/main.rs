//! The BPF programs: each reads the arguments of the function it is attached to and hands them to
//! the logic of the library. Everything that is not in safe Rust, helpers and maps, is in the
//! other modules.
//!
//! All programs at functions are of type KPROBE, so that one link type serves them all. Their
//! names are what the recorder attaches by. Names that end in `_old` are for kernels before 5.17,
//! which have neither `bpf_loop` nor `bpf_find_vma`; names that end in `_sleepable` are tried before
//! the ones without.

#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod chosen_threads;
mod constants;
mod kernel;
mod mappings;
mod pauses;
mod private_stacks;
mod remembered;
mod return_probes;
mod rules;
mod waits;

use aya_ebpf::{
    EbpfContext,
    helpers::generated::bpf_get_attach_cookie,
    macros::{raw_tracepoint, uprobe, uretprobe},
    programs::{ProbeContext, RawTracePointContext, RetProbeContext},
};
use aya_log_ebpf::debug;
use htrace_ebpf::{Kernel, call::Call, probe};
use htrace_ebpf_common::{
    counters::Counter,
    function::Function,
    point::{Point, Register},
    wire::Kind,
};

use crate::kernel::{BpfKernel, OldKernel, SleepingKernel};

/// Why programs return 0: the value is ignored for uprobes, and not used before 6.x reads it.
const DONE: u32 = 0;

/// The first argument of the probed function.
#[inline(always)]
fn first_argument(context: &ProbeContext) -> u64 {
    let [first, ..] = Register::ARGUMENTS;
    kernel::register(context, first)
}

/// The second argument of the probed function.
#[inline(always)]
fn second_argument(context: &ProbeContext) -> u64 {
    let [_, second, _] = Register::ARGUMENTS;
    kernel::register(context, second)
}

/// The place of the probe. The recorder puts its number into the link, or in place of the
/// helper's call into the code where links carry none.
#[inline(always)]
fn point(context: &ProbeContext) -> Point {
    // SAFETY: the helper takes the program's own context.
    let number = unsafe { bpf_get_attach_cookie(context.as_ptr()) };
    if constants::inside() {
        return Point::from_bits(number);
    }
    Point {
        function: Function::from_number(number),
        ..Point::default()
    }
}

/// The call that has hit a point.
#[inline(always)]
fn call(context: &ProbeContext, point: Point) -> Option<Call> {
    if let Some(size) = point.size_in {
        return Some(Call::operator_new(kernel::register(context, size)));
    }
    let arguments = Register::ARGUMENTS.map(|at| kernel::register(context, at));
    Some(Call::entered(point.function?, arguments))
}

#[inline(always)]
fn enter<K: Kernel>(kernel: &K, context: &ProbeContext) -> u32 {
    private_stacks::refuse();
    let point = point(context);
    let Some(call) = call(context, point) else {
        return DONE;
    };
    let registers = kernel::registers(context, point);
    debug!(
        context,
        "enter {:x} size {} argument {:x}", registers.ip, call.size, call.argument
    );
    let result = probe::Result {
        is_known: point.result_in.is_some(),
        value: match point.result_in {
            Some(at) => kernel::register(context, at),
            None => 0,
        },
    };
    if let Some(thread) = kernel::thread() {
        probe::enter(kernel, thread, &registers, &call, result);
    }
    DONE
}

/// The entry of any function that allocates.
#[uprobe]
fn enter_allocation(context: ProbeContext) -> u32 {
    enter(&BpfKernel, &context)
}

/// As [`enter_allocation`].
#[uprobe]
fn enter_allocation_old(context: ProbeContext) -> u32 {
    enter(&OldKernel, &context)
}

/// As [`enter_allocation`], and waits when the ring buffer fills up.
#[uprobe(sleepable)]
fn enter_allocation_sleepable(context: ProbeContext) -> u32 {
    enter(&SleepingKernel, &context)
}

#[inline(always)]
fn leave_at_ret_of<K: Kernel>(kernel: &K, context: &ProbeContext) -> u32 {
    private_stacks::refuse();
    let point = point(context);
    let slot = kernel::slot(context, point);
    let value = kernel::register(context, point.result_in.unwrap_or(Register::RAX));
    debug!(context, "ret at slot {:x} with {:x}", slot, value);
    if let Some(thread) = kernel::thread_if_seen() {
        probe::leave_at_ret(kernel, thread, slot, value);
    }
    DONE
}

/// A point at which a function that was entered has its result: a `ret` instruction of an
/// `operator new`, on which a return probe would kill the target when an exception leaves it, or a
/// point inside `malloc`.
#[uprobe]
fn leave_at_ret(context: ProbeContext) -> u32 {
    leave_at_ret_of(&BpfKernel, &context)
}

/// As [`leave_at_ret`], and waits when the ring buffer fills up.
#[uprobe(sleepable)]
fn leave_at_ret_sleepable(context: ProbeContext) -> u32 {
    leave_at_ret_of(&SleepingKernel, &context)
}

#[inline(always)]
fn leave<K: Kernel>(kernel: &K, context: &RetProbeContext) -> u32 {
    private_stacks::refuse();
    let (slot, value) = (kernel::return_slot(context), context.ret::<u64>());
    debug!(context, "leave to slot {:x} with {:x}", slot, value);
    // A return probe that is a perf event is run for all processes in which anybody has probed
    // the function (Linux 6.1, `uretprobe_dispatcher`); only entries are scoped. A thread that
    // never entered is not ours.
    if let Some(thread) = kernel::thread_if_seen() {
        probe::leave(kernel, thread, slot, value);
    }
    DONE
}

/// The return of any function that allocates.
#[uretprobe]
fn leave_allocation(context: RetProbeContext) -> u32 {
    leave(&BpfKernel, &context)
}

/// As [`leave_allocation`], and waits when the ring buffer fills up.
#[uretprobe(sleepable)]
fn leave_allocation_sleepable(context: RetProbeContext) -> u32 {
    leave(&SleepingKernel, &context)
}

#[inline(always)]
fn free<K: Kernel>(kernel: &K, context: &ProbeContext) -> u32 {
    private_stacks::refuse();
    let registers = kernel::registers(context, Point::default());
    let thread = kernel::thread_if_seen();
    let pointer = first_argument(context);
    debug!(context, "free {:x}", pointer);
    probe::release(kernel, thread, &registers, pointer);
    DONE
}

/// `free(pointer)` and `cfree(pointer)`.
#[uprobe]
fn enter_free(context: ProbeContext) -> u32 {
    free(&BpfKernel, &context)
}

/// As [`enter_free`], and waits when the ring buffer fills up.
#[uprobe(sleepable)]
fn enter_free_sleepable(context: ProbeContext) -> u32 {
    free(&SleepingKernel, &context)
}

/// `_dl_debug_state()`: the dynamic linker has changed, or is about to change, the list of
/// modules. It goes on when the recorder has looked at them.
#[uprobe]
fn modules_changed(context: ProbeContext) -> u32 {
    private_stacks::refuse();
    debug!(&context, "modules changed");
    rules::forget_rules();
    waits::for_acknowledgement(kernel::notice(Kind::ModulesChanged));
    DONE
}

/// As [`modules_changed`], where programs may sleep: Linux 6.0.
#[uprobe(sleepable)]
fn modules_changed_sleepable(context: ProbeContext) -> u32 {
    private_stacks::refuse();
    debug!(&context, "modules changed");
    rules::forget_rules();
    let stack = kernel::slot(&context, Point::default());
    waits::asleep_for_acknowledgement(kernel::notice(Kind::ModulesChanged), stack);
    DONE
}

/// As [`modules_changed`], but nobody waits.
#[uprobe]
fn modules_changed_old(context: ProbeContext) -> u32 {
    private_stacks::refuse();
    debug!(&context, "modules changed");
    kernel::notice(Kind::ModulesChanged);
    DONE
}

/// The entry of `munmap`, `mremap` and `mmap`, all of which begin with an address and a length: what
/// lies there may go away. Another thread that still runs there can bring no rule back, for it would
/// fault.
#[uprobe]
fn code_unmapped(context: ProbeContext) -> u32 {
    private_stacks::refuse();
    let (start, length) = (first_argument(&context), second_argument(&context));
    if kernel::is_target() && remembered::drop_range(start, length) {
        debug!(&context, "unmapping {:x} bytes at {:x}", length, start);
        rules::forget_rules();
    }
    DONE
}

/// The return of `mmap`. Code that comes without the dynamic linker is looked at like any other, so
/// that names are of what lay there at each time. Rules of what it replaces are forgotten already.
#[uretprobe]
fn code_mapped(context: RetProbeContext) -> u32 {
    private_stacks::refuse();
    if kernel::is_target() && mappings::is_code_of_file(context.ret::<u64>()) {
        waits::for_acknowledgement(kernel::notice(Kind::ModulesChanged));
    }
    DONE
}

/// As [`code_mapped`], where programs may sleep: Linux 6.0.
#[uretprobe(sleepable)]
fn code_mapped_sleepable(context: RetProbeContext) -> u32 {
    private_stacks::refuse();
    if kernel::is_target() && mappings::is_code_of_file(context.ret::<u64>()) {
        let stack = kernel::return_slot(&context);
        waits::asleep_for_acknowledgement(kernel::notice(Kind::ModulesChanged), stack);
    }
    DONE
}

/// The function with which the recording begins, if it waits for one.
#[uprobe]
fn awaited_called(_context: ProbeContext) -> u32 {
    private_stacks::refuse();
    BpfKernel.count(Counter::Awaited);
    DONE
}

/// `sched_process_exec`: a process has replaced its program.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn process_exec(_context: RawTracePointContext) -> i32 {
    if kernel::is_target() {
        rules::forget_rules();
        kernel::notice(Kind::Exec);
    }
    0
}

/// As [`process_exec`].
#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn process_exec_old(_context: RawTracePointContext) -> i32 {
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
