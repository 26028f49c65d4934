//! Mappings of code that were looked up before: for when the kernel's own are locked, and to know
//! whether memory that goes away is any from which rules are known.
//!
//! A thread of the target that maps memory holds a lock, and while another one waits for it the
//! helper finds nothing, however often it is asked. Mappings of code change seldom, and are
//! forgotten together with the rules, so that nothing old is found.
//!
//! Invariant: each rule in the cache is of a mapping that is in the map here, or the map was full.

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
static MAPPINGS: HashMap<u64, Remembered> = HashMap::with_max_entries(4096, BPF_F_NO_PREALLOC);

/// How often mappings were forgotten.
#[map]
static FORGOTTEN: Array<u64> = Array::with_max_entries(1, 0);

/// Not 0 once there was no room for a mapping.
#[map]
static FULL: Array<u64> = Array::with_max_entries(1, 0);

/// A mapping, and what [`generation`] was when it was looked up.
#[repr(C)]
struct Remembered {
    mapping: Mapping,
    generation: u64,
}

/// A number that changes when mappings are forgotten. To be read before a mapping is looked up.
#[inline(always)]
pub(crate) fn generation() -> u64 {
    first_of(&FORGOTTEN)
}

#[inline(always)]
fn first_of(map: &Array<u64>) -> u64 {
    map.get_ptr(0).map_or(0, |element| {
        // SAFETY: the element lives as long as the map; volatile, because other threads write to
        // it.
        unsafe { element.read_volatile() }
    })
}

/// Forgets all mappings.
#[inline(always)]
pub(crate) fn forget() {
    if let Some(forgotten) = FORGOTTEN.get_ptr_mut(0) {
        add(forgotten, 2);
    }
}

/// Remembers what was found in a generation. Not inlined, so that its stack is not added to that of
/// all else that is called after it.
#[inline(never)]
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
    if MAPPINGS.insert(start, remembered, BPF_ANY.into()).is_err()
        && let Some(full) = FULL.get_ptr_mut(0)
    {
        add(full, 1);
    }
}

/// Memory that goes away.
#[repr(C)]
struct Range {
    start: u64,
    end: u64,
    has_code: u64,
}

/// Drops the mappings of code in a range of memory that is about to go away or to be replaced, and
/// returns true if there may be rules of it.
#[inline(always)]
pub(crate) fn drop_range(start: u64, length: u64) -> bool {
    let mut range = Range {
        start,
        end: start.saturating_add(length),
        has_code: first_of(&FULL),
    };
    // SAFETY: as in `recall`.
    unsafe {
        generated::bpf_for_each_map_elem(
            (&raw const MAPPINGS).cast_mut().cast(),
            drop_overlapping as *mut c_void,
            (&raw mut range).cast(),
            0,
        );
    }
    range.has_code != 0
}

/// Returns 0, to go on.
#[inline(never)]
unsafe extern "C" fn drop_overlapping(
    _map: *mut c_void,
    _start: *const u64,
    remembered: *const Remembered,
    range: *mut Range,
) -> i64 {
    // SAFETY: the helper passes an element of the map.
    let remembered = unsafe { &*remembered };
    // SAFETY: the context that `drop_range` has passed.
    let range = unsafe { &mut *range };
    if remembered.mapping.overlaps(range.start, range.end) {
        range.has_code = 1;
        // It may be gone already, by another thread.
        let _gone = MAPPINGS.remove(remembered.mapping.start());
    }
    0
}

/// A search among all that are remembered: there are a few dozen, and they are seldom needed.
#[repr(C)]
struct Search {
    address: u64,
    generation: u64,
    /// Where to store the mapping: room for another one here would be more than the stack has left.
    to: *mut Mapping,
    is_found: u64,
}

/// Stores the mapping at `address`, if it is remembered; else returns false. Not inlined, as
/// [`remember`].
#[inline(never)]
pub(crate) fn recall(address: u64, mapping: &mut Mapping) -> bool {
    let mut search = Search {
        address,
        generation: generation(),
        to: &raw mut *mapping,
        is_found: 0,
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
    if search.is_found == 0 {
        return false;
    }
    BpfKernel.count(Counter::MappingsRemembered);
    true
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
    // SAFETY: `recall` has the only other reference, and does not use it meanwhile.
    unsafe { &mut *search.to }.become_like(&remembered.mapping);
    search.is_found = 1;
    1
}
