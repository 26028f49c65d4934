//! Mappings that were looked up before, for when the kernel's own are locked.
//!
//! A thread of the target that maps memory holds a lock, and while another one waits for it the
//! helper finds nothing, however often it is asked. Mappings of code change seldom, and are
//! forgotten together with the rules, so that nothing old is found.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_ANY,
    helpers::generated,
    macros::map,
    maps::{Array, HashMap},
};

use htrace_ebpf::Kernel;
use htrace_ebpf_common::counters::Counter;

use crate::{
    kernel::{BPF_F_NO_PREALLOC, BpfKernel, add},
    mappings::Mapping,
};

/// Mappings by their first address.
#[map]
static MAPPINGS: HashMap<u64, Remembered> = HashMap::with_max_entries(1024, BPF_F_NO_PREALLOC);

/// How often mappings were forgotten.
#[map]
static FORGOTTEN: Array<u64> = Array::with_max_entries(1, 0);

/// A mapping, and what [`generation`] was when it was looked up.
#[repr(C)]
struct Remembered {
    mapping: Mapping,
    generation: u64,
}

/// A number that changes when mappings are forgotten. To be read before a mapping is looked up.
#[inline(always)]
pub(crate) fn generation() -> u64 {
    let Some(forgotten) = FORGOTTEN.get_ptr(0) else {
        return 0;
    };
    // SAFETY: the element lives as long as the map; volatile, because other threads write to it.
    unsafe { forgotten.read_volatile() }
}

/// Forgets all mappings.
#[inline(always)]
pub(crate) fn forget() {
    if let Some(forgotten) = FORGOTTEN.get_ptr_mut(0) {
        add(forgotten, 1);
    }
}

/// Remembers what was found in a generation.
#[inline(always)]
pub(crate) fn remember(mapping: &Mapping, generation: u64) {
    let start = mapping.start();
    if let Some(known) = MAPPINGS.get_ptr(start) {
        // SAFETY: elements are replaced, not changed, and outlive the program's run.
        let known = unsafe { &*known };
        if known.generation == generation {
            return;
        }
    }
    let remembered = Remembered {
        mapping: *mapping,
        generation,
    };
    // Where there is no room, there is no second chance.
    let _not_remembered = MAPPINGS.insert(start, remembered, BPF_ANY.into());
}

/// A search among all that are remembered: there are a few dozen, and they are seldom needed.
#[repr(C)]
struct Search {
    address: u64,
    generation: u64,
    found: Mapping,
}

/// The mapping at `address`, if it is remembered.
#[inline(always)]
pub(crate) fn recall(address: u64) -> Option<Mapping> {
    let mut search = Search {
        address,
        generation: generation(),
        found: Mapping::NONE,
    };
    // SAFETY: the callback has the signature that the helper calls, and the context outlives the
    // call. Of the map nothing but its address is used.
    unsafe {
        generated::bpf_for_each_map_elem(
            (&raw const MAPPINGS).cast_mut().cast(),
            compare as *mut c_void,
            (&raw mut search).cast(),
            0,
        );
    }
    if !search.found.contains(address) {
        return None;
    }
    BpfKernel.count(Counter::MappingsRemembered);
    Some(search.found)
}

/// Returns 1 when the mapping is found.
#[inline(never)]
unsafe extern "C" fn compare(
    _map: *mut c_void,
    _start: *const u64,
    remembered: *const Remembered,
    search: *mut Search,
) -> i64 {
    // SAFETY: the helper passes an element of the map.
    let remembered = unsafe { &*remembered };
    // SAFETY: the context that `recall` has passed.
    let search = unsafe { &mut *search };
    let holds = remembered.generation == search.generation;
    if !holds || !remembered.mapping.contains(search.address) {
        return 0;
    }
    search.found = remembered.mapping;
    1
}
