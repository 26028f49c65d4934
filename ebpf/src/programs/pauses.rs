//! Lets threads of the target wait when the ring buffer is filling up, so that nothing is lost.
//!
//! A thread waits inside its probe, before its record takes its place in the ring buffer. The wait
//! ends when the drain has caught up, or at a bound of time: then the record is dropped if there is
//! no room for it, counted, and the thread goes on. So nothing can leave the target stopped, and
//! nobody sees signals. The CPU goes to whoever wants it meanwhile, the drain for one.
//!
//! Records of programs that cannot wait (exec) find the quarter of the ring buffer that is left.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_CONS_POS, BPF_RB_FORCE_WAKEUP},
    helpers::generated,
    macros::map,
    maps::Array,
};
use htrace_ebpf::Kernel;
use htrace_ebpf_common::counters::Counter;

use crate::{
    kernel::{self, BpfKernel, EVENTS},
    waits::{self, MAX_LOOPS},
};

/// How far the drain was when a thread last waited in vain. While it is no farther nobody waits
/// again.
#[map]
static GAVE_UP_AT: Array<u64> = Array::with_max_entries(1, 0);

/// A thread that waits for room.
#[repr(C)]
struct Pause {
    /// Bytes in the ring buffer at which it ends.
    until_filled: u64,
    deadline: u64,
    now: u64,
    done: u64,
}

/// Waits while the ring buffer is fuller than it may be.
#[inline(always)]
pub(crate) fn for_room() {
    let control = BpfKernel.control();
    if EVENTS.query(BPF_RB_AVAIL_DATA.into()) >= control.pause_at {
        pause(control.resume_at, control.max_pause_ns);
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pause(until_filled: u64, max_ns: u64) -> u64 {
    let position = EVENTS.query(BPF_RB_CONS_POS.into());
    if gave_up_at() == position.wrapping_add(1) {
        return 0;
    }
    wake_drain();
    let began = waits::now();
    let mut pause = Pause {
        until_filled,
        deadline: began.saturating_add(max_ns),
        now: began,
        done: 0,
    };
    // SAFETY: the callback has the signature that the helper calls, and the context outlives it.
    unsafe {
        generated::bpf_loop(MAX_LOOPS, look as *mut c_void, (&raw mut pause).cast(), 0);
    }
    kernel::add_to(Counter::Pauses, 1);
    kernel::add_to(Counter::PausedNs, pause.now.wrapping_sub(began));
    if pause.done == 0 {
        kernel::add_to(Counter::PauseTooLong, 1);
        // Not 0, which stands for never.
        give_up_at(EVENTS.query(BPF_RB_CONS_POS.into()).wrapping_add(1));
    }
    pause.done
}

/// Returns 1 when the pause is over.
#[inline(never)]
unsafe extern "C" fn look(_iteration: u64, pause: *mut Pause) -> i64 {
    // SAFETY: the context that `pause` has passed.
    let pause = unsafe { &mut *pause };
    pause.now = waits::now();
    if EVENTS.query(BPF_RB_AVAIL_DATA.into()) <= pause.until_filled {
        pause.done = 1;
        return 1;
    }
    if pause.now >= pause.deadline {
        return 1;
    }
    waits::give_cpu_away(waits::own_stack());
    0
}

/// The drain looks by itself only every few milliseconds.
#[inline(always)]
fn wake_drain() {
    if let Some(entry) = EVENTS.reserve::<u64>(0) {
        entry.discard(BPF_RB_FORCE_WAKEUP.into());
    }
}

#[inline(always)]
fn gave_up_at() -> u64 {
    let Some(position) = GAVE_UP_AT.get_ptr(0) else {
        return 0;
    };
    // SAFETY: the element lives as long as the map; volatile, because other threads write to it.
    unsafe { position.read_volatile() }
}

#[inline(always)]
fn give_up_at(position: u64) {
    if let Some(element) = GAVE_UP_AT.get_ptr_mut(0) {
        // SAFETY: as in `gave_up_at`.
        unsafe { element.write_volatile(position) };
    }
}
