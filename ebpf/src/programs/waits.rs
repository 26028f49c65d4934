//! Lets the target wait until the recorder has looked at new modules.
//!
//! The wait is a loop inside the program that ends when the recorder has done its part, or at a
//! bound of time. So nothing can leave the target stopped, whatever becomes of the recorder, and
//! nobody sees signals.
//!
//! A program that may sleep gives its CPU away while it waits. All others keep it busy, so at most
//! [`Control::max_waiting`](htrace_ebpf_common::control::Control) of them may wait at once.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{BPF_ANY, pt_regs},
    helpers::{bpf_ktime_get_ns, generated},
    macros::map,
    maps::{Array, LruHashMap},
};
use htrace_ebpf::Kernel;
use htrace_ebpf_common::{
    counters::Counter,
    tables::FileKey,
    wire::{Kind, TableWantedRecord},
};

use crate::{
    kernel::{BPF_F_MMAPABLE, BpfKernel, add, submit_notice},
    mappings, rules,
};

/// Stamp of the last notice that the recorder has dealt with. The recorder writes it.
#[map]
static ACKNOWLEDGED: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// When the recorder was asked for a table, by file.
#[map]
static ASKED: LruHashMap<FileKey, u64> = LruHashMap::with_max_entries(1024, 0);

/// Number of threads that wait.
#[map]
static WAITING: Array<u64> = Array::with_max_entries(1, 0);

/// The kernel does not loop more often (`BPF_MAX_LOOPS`).
pub(crate) const MAX_LOOPS: u32 = 1 << 23;

/// What is waited for.
#[repr(C)]
#[derive(Default)]
struct Wait {
    /// The table of a file, unless there is a stamp.
    file: FileKey,
    /// The acknowledgement of this stamp, unless 0.
    stamp: u64,
    deadline: u64,
    /// An address of the thread's stack.
    stack: u64,
    done: u64,
}

/// Asks for the table of a file, once, and returns when it was. A function of its own, so that its
/// stack is not added to that of the wait: all calls together have 512 bytes.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn ask_for_table(device: u64, inode: u64, address: u64) -> u64 {
    let file = FileKey { device, inode };
    match ASKED.get_ptr(file) {
        // SAFETY: elements are not changed, and outlive the program's run.
        Some(asked) => unsafe { *asked },
        None => ask(file, address),
    }
}

/// Waits for the table of a file, which was asked for at a time.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn for_table(device: u64, inode: u64, asked: u64) -> u64 {
    wait(Wait {
        file: FileKey { device, inode },
        deadline: deadline(asked),
        ..Wait::default()
    })
}

/// Waits for the acknowledgement of a notice.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn for_acknowledgement(stamp: u64) -> u64 {
    wait(Wait {
        stamp,
        deadline: deadline(stamp),
        ..Wait::default()
    })
}

/// As [`for_acknowledgement`], for programs that may sleep. `stack` is an address of the thread's
/// stack.
#[inline(always)]
pub(crate) fn asleep_for_acknowledgement(stamp: u64, stack: u64) {
    let mut wait = Wait {
        stamp,
        deadline: stamp.saturating_add(BpfKernel.control().sleep_ns),
        stack,
        ..Wait::default()
    };
    // SAFETY: as in `wait`.
    unsafe {
        generated::bpf_loop(
            MAX_LOOPS,
            look_and_yield as *mut c_void,
            (&raw mut wait).cast(),
            0,
        );
    }
    count(&wait);
}

/// Waits until the mapping at an address can be looked up, for programs that may sleep; false if that
/// takes too long.
///
/// To give the CPU away takes the lock of the mappings, and so sleeps while somebody changes them.
/// But the helper that looks up finds nothing even if somebody only waits to change them, and then
/// nobody sleeps: hence the loop.
#[inline(never)]
pub(crate) fn asleep_for_mappings(address: u64) -> bool {
    let mut wait = LockWait {
        address,
        stack: own_stack(),
        deadline: now().saturating_add(BpfKernel.control().sleep_ns),
        done: 0,
    };
    // SAFETY: as in `wait`.
    unsafe {
        generated::bpf_loop(
            MAX_LOOPS,
            look_for_lock as *mut c_void,
            (&raw mut wait).cast(),
            0,
        );
    }
    wait.done != 0
}

/// A wait for the lock of the mappings.
#[repr(C)]
struct LockWait {
    /// What is to be looked up.
    address: u64,
    /// An address of the thread's stack.
    stack: u64,
    deadline: u64,
    done: u64,
}

/// Returns 1 when the wait is over.
#[inline(never)]
unsafe extern "C" fn look_for_lock(_iteration: u64, wait: *mut LockWait) -> i64 {
    // SAFETY: the context that `asleep_for_mappings` has passed.
    let wait = unsafe { &mut *wait };
    let goes_on = give_cpu_away(wait.stack);
    let free = !mappings::are_locked(wait.address);
    wait.done = free as u64;
    (free || !goes_on || now() >= wait.deadline) as i64
}

/// Sends for a table, and returns the time.
#[inline(always)]
fn ask(file: FileKey, address: u64) -> u64 {
    let asked = now();
    // When it is not remembered the recorder is asked again.
    let _asked_again = ASKED.insert(file, asked, BPF_ANY.into());
    let header = BpfKernel.header(Kind::TableWanted);
    if !submit_notice(TableWantedRecord {
        header,
        file,
        address,
    }) {
        BpfKernel.count(Counter::ModulesRingFull);
    }
    asked
}

#[inline(always)]
fn wait(mut wait: Wait) -> u64 {
    if wait.deadline <= now() {
        return 0;
    }
    let Some(waiting) = WAITING.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: the element lives as long as the map; volatile, because other threads write to it.
    if unsafe { waiting.read_volatile() } >= BpfKernel.control().max_waiting {
        BpfKernel.count(Counter::WaitRefused);
        return 0;
    }
    add(waiting, 1);
    // SAFETY: the callback has the signature that the helper calls, and the context outlives it.
    unsafe {
        generated::bpf_loop(MAX_LOOPS, look as *mut c_void, (&raw mut wait).cast(), 0);
    }
    add(waiting, u64::MAX);
    count(&wait);
    wait.done
}

#[inline(always)]
fn count(wait: &Wait) {
    BpfKernel.count(match wait.done {
        0 => Counter::WaitTooLong,
        _ => Counter::Waits,
    });
}

/// As [`look`], and lets others have the CPU if they want it.
#[inline(never)]
unsafe extern "C" fn look_and_yield(iteration: u64, wait: *mut Wait) -> i64 {
    // SAFETY: the caller's promise.
    if unsafe { look(iteration, wait) } != 0 {
        return 1;
    }
    // SAFETY: as in `look`.
    let stack = unsafe { (*wait).stack };
    !give_cpu_away(stack) as i64
}

/// Lets others have the CPU if they want it; false if the thread is being killed, and there is
/// nothing to wait for any more. `stack` is an address of its stack. Only for programs that may
/// sleep.
#[inline(always)]
pub(crate) fn give_cpu_away(stack: u64) -> bool {
    let mut word = 0_u64;
    // Pages of another task's memory are got under the lock of its mappings, in a loop that
    // reschedules, also in a kernel that does not preempt itself (`cond_resched` in
    // `__get_user_pages`, Linux 5.18 to 7.2). It fails for a thread that is being killed.
    // SAFETY: the helper writes at most so many bytes into the word.
    let result = unsafe {
        generated::bpf_copy_from_user_task(
            (&raw mut word).cast(),
            size_of::<u64>() as u32,
            stack as *const c_void,
            generated::bpf_get_current_task_btf(),
            0,
        )
    };
    result == 0
}

/// The thread's stack pointer in the target.
#[inline(always)]
pub(crate) fn own_stack() -> u64 {
    // SAFETY: helpers of sleepable programs; the kernel keeps a thread's registers while it lives.
    unsafe {
        let task = generated::bpf_get_current_task_btf();
        (*(generated::bpf_task_pt_regs(task) as *const pt_regs)).rsp
    }
}

/// Returns 1 when the wait is over.
#[inline(never)]
unsafe extern "C" fn look(_iteration: u64, wait: *mut Wait) -> i64 {
    // SAFETY: the context that `wait` has passed.
    let wait = unsafe { &mut *wait };
    let done = match wait.stamp {
        0 => rules::known_table(&wait.file).is_some(),
        stamp => acknowledged() >= stamp,
    };
    wait.done = done as u64;
    (done || now() >= wait.deadline) as i64
}

#[inline(always)]
fn acknowledged() -> u64 {
    let Some(stamp) = ACKNOWLEDGED.get_ptr(0) else {
        return u64::MAX;
    };
    // SAFETY: the element lives as long as the map; volatile, because the recorder writes to it.
    unsafe { stamp.read_volatile() }
}

#[inline(always)]
fn deadline(from: u64) -> u64 {
    from.saturating_add(BpfKernel.control().wait_ns)
}

#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_ktime_get_ns() }
}
