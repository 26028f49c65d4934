//! Return probes up the stack: each replaces a return address by that of a trampoline, and the
//! kernel keeps the original in a list of the thread.

use core::ffi::c_void;

use aya_ebpf::helpers::generated;

use crate::{constants as at, mappings::word};

/// Return probes of one thread that can be pending (`MAX_URETPROBE_DEPTH` of the kernel).
const MAX_PENDING: u32 = 64;

/// A walk along the list.
#[repr(C)]
struct Walk {
    /// The next element; 0 behind the last.
    instance: u64,
    slot: u64,
    original: u64,
}

/// The return address that stood in a stack slot before a return probe replaced it; 0 if none has.
/// Of several probes on one function, the first to be pending has it, which is last in the list.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn replaced_return_address(slot: u64) -> u64 {
    if at::has_return_instances() == 0 {
        return 0;
    }
    // SAFETY: a helper without arguments.
    let task = unsafe { generated::bpf_get_current_task() };
    let utask = word(task.wrapping_add(at::task_utask()));
    if utask == 0 {
        return 0;
    }
    let mut walk = Walk {
        instance: word(utask.wrapping_add(at::utask_return_instances())),
        slot,
        original: 0,
    };
    // No loop of our own: the verifier would follow each of its turns.
    // SAFETY: the callback has the signature that the helper calls, and the context outlives the
    // call.
    unsafe {
        generated::bpf_loop(MAX_PENDING, step as *mut c_void, (&raw mut walk).cast(), 0);
    }
    walk.original
}

/// Returns 1 at the end of the list.
#[inline(never)]
unsafe extern "C" fn step(_turn: u64, walk: *mut Walk) -> i64 {
    // SAFETY: the context that `replaced_return_address` has passed.
    let walk = unsafe { &mut *walk };
    if walk.instance == 0 {
        return 1;
    }
    if word(walk.instance.wrapping_add(at::instance_stack())) == walk.slot {
        walk.original = word(walk.instance.wrapping_add(at::instance_original()));
    }
    walk.instance = word(walk.instance.wrapping_add(at::instance_next()));
    0
}
