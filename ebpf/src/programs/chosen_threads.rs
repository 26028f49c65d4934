//! The threads whose allocations are recorded, when not all are. The recorder fills both maps.

use aya_ebpf::{helpers::bpf_get_current_comm, macros::map, maps::HashMap};
use htrace_ebpf_common::control::MAX_CHOSEN_THREADS;

use htrace_ebpf::Kernel;

use crate::kernel::BpfKernel;

/// Names of threads as the kernel keeps them: 15 bytes at most, then zeros.
#[map]
static THREAD_NAMES: HashMap<[u8; 16], u8> = HashMap::with_max_entries(MAX_CHOSEN_THREADS, 0);

/// Ids of threads in the initial pid namespace.
#[map]
static THREAD_IDS: HashMap<u32, u8> = HashMap::with_max_entries(MAX_CHOSEN_THREADS, 0);

/// 1 if the current thread is among them, by the name that it has now or by its id; else 0. Not
/// inlined, so that its stack is not added to that of all else that is called after it, and global,
/// so that the verifier checks it once.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn current_thread_is_chosen() -> u64 {
    is_chosen() as u64
}

#[inline(always)]
fn is_chosen() -> bool {
    if THREAD_IDS.get_ptr(BpfKernel.tid()).is_some() {
        return true;
    }
    match bpf_get_current_comm() {
        Ok(name) => THREAD_NAMES.get_ptr(name).is_some(),
        Err(_) => false,
    }
}
