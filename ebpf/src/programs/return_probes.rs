//! Return probes up the stack: each replaces a return address by that of a trampoline, and the
//! kernel keeps the original in a list of the thread.

use aya_ebpf::helpers::generated;

use crate::{constants as at, mappings::word};

/// Return probes of one thread that can be pending (`MAX_URETPROBE_DEPTH` of the kernel).
const MAX_PENDING: usize = 64;

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
    let mut instance = word(utask.wrapping_add(at::utask_return_instances()));
    let mut original = 0;
    for _ in 0..MAX_PENDING {
        if instance == 0 {
            break;
        }
        if word(instance.wrapping_add(at::instance_stack())) == slot {
            original = word(instance.wrapping_add(at::instance_original()));
        }
        instance = word(instance.wrapping_add(at::instance_next()));
    }
    original
}
