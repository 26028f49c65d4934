//! The probe logic's [`Kernel`] on real helpers and maps.
//!
//! This is the one place of the programs with `unsafe`: every use rests on what the verifier
//! proves at load time (map values and context fields lie where they are said to).

use core::ptr;

use aya_ebpf::{
    bindings::{BPF_ANY, BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns, bpf_probe_read_user, generated},
    macros::map,
    maps::{Array, HashMap, LruHashMap, RingBuf},
    programs::{ProbeContext, RetProbeContext},
};
use htrace_ebpf::{Kernel, Registers, thread::Thread};
use htrace_ebpf_common::{
    control::{Control, MAX_FRAMES},
    counters::Counter,
    wire::{Header, Kind, NoticeRecord, StackRecord, TICK_NS},
};

/// Flag of `bpf(BPF_MAP_CREATE)`: elements are allocated when they are inserted. Linux UAPI.
const BPF_F_NO_PREALLOC: u32 = 1;

/// The recorder's settings: one element.
#[map]
static CONTROL: Array<Control> = Array::with_max_entries(1, 0);

/// What [`Counter`] counts, one slot each.
#[map]
static COUNTERS: Array<u64> = Array::with_max_entries(Counter::SLOTS, 0);

/// The records. The recorder sets the size.
#[map]
static EVENTS: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// State of each thread of the target, by thread id. The recorder sets the size.
#[map]
static THREADS: HashMap<u32, Thread> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

/// A thread that was never seen: too large for the stack of a program.
#[map]
static NEW_THREAD: Array<Thread> = Array::with_max_entries(1, 0);

/// Ids of the stacks that are in the ring buffer. When it is full the oldest are forgotten, and
/// sent again at their next use. The recorder sets the size.
#[map]
static KNOWN_STACKS: LruHashMap<u64, u8> = LruHashMap::with_max_entries(1, 0);

/// Registers at a hit.
pub(crate) fn registers(context: &ProbeContext) -> Registers {
    // SAFETY: a uprobe's context is a `pt_regs`.
    let regs = unsafe { &*context.regs };
    Registers {
        ip: regs.rip,
        sp: regs.rsp,
        fp: regs.rbp,
    }
}

/// The stack slot from which the function has just returned.
pub(crate) fn return_slot(context: &RetProbeContext) -> u64 {
    // SAFETY: a uprobe's context is a `pt_regs`.
    let regs = unsafe { &*context.regs };
    regs.rsp.wrapping_sub(size_of::<u64>() as u64)
}

/// What a function that is at its `ret` instruction returns.
pub(crate) fn return_value(context: &ProbeContext) -> u64 {
    // SAFETY: a uprobe's context is a `pt_regs`.
    let regs = unsafe { &*context.regs };
    regs.rax
}

/// State of the current thread, made when it is seen for the first time.
pub(crate) fn thread() -> Option<&'static mut Thread> {
    if let Some(thread) = thread_if_seen() {
        return Some(thread);
    }
    let new = NEW_THREAD.get(0)?;
    if THREADS.insert(current_tid(), new, BPF_ANY.into()).is_err() {
        BpfKernel.count(Counter::ThreadsFull);
        return None;
    }
    thread_if_seen()
}

/// State of the current thread, if there is one.
pub(crate) fn thread_if_seen() -> Option<&'static mut Thread> {
    let thread = THREADS.get_ptr_mut(current_tid())?;
    // SAFETY: the element is this thread's alone, a thread runs one program at a time, and the
    // element is removed only by the thread itself, at its end.
    Some(unsafe { &mut *thread })
}

/// Forgets the state of the current thread.
pub(crate) fn forget_thread() {
    // There is nothing to do when the thread was never seen.
    let _absent = THREADS.remove(current_tid());
}

/// True if the current process is the target. It is known only after the first hit.
pub(crate) fn is_target() -> bool {
    BpfKernel.control().tgid == current_tgid()
}

/// Sends a notice at once: the recorder has to look at the target while it is as it is now.
pub(crate) fn notice(kind: Kind) {
    note_target();
    let header = BpfKernel.header(kind, 0);
    if !submit(NoticeRecord { header }, Some(BPF_RB_FORCE_WAKEUP)) {
        BpfKernel.count(Counter::ModulesRingFull);
    }
}

fn note_target() {
    if let Some(control) = CONTROL.get_ptr_mut(0) {
        // SAFETY: the element lives as long as the map; all writers store the same number.
        unsafe { ptr::addr_of_mut!((*control).tgid).write_volatile(current_tgid()) };
    }
}

fn current_tid() -> u32 {
    bpf_get_current_pid_tgid() as u32
}

fn current_tgid() -> u32 {
    (bpf_get_current_pid_tgid() >> 32) as u32
}

/// Copies a record into the ring buffer; false if there is no room.
fn submit<R: Copy + 'static>(record: R, wake: Option<u32>) -> bool {
    let Some(mut entry) = EVENTS.reserve::<R>(0) else {
        return false;
    };
    let flags = wake.unwrap_or_else(|| wake_if_filling(size_of::<R>()));
    entry.write(record);
    entry.submit(flags.into());
    true
}

/// The recorder polls, because waking it costs an interrupt of another CPU. It is woken by the
/// record that fills the ring buffer to a certain mark, and by no later one.
fn wake_if_filling(length: usize) -> u32 {
    /// Several threads may pass the mark at once, each seeing the others' records as well.
    const SLACK: u64 = 4;
    let filled = EVENTS.query(BPF_RB_AVAIL_DATA.into());
    let mark = BpfKernel.control().wake_at;
    if filled.wrapping_sub(mark) < SLACK * length as u64 {
        BPF_RB_FORCE_WAKEUP
    } else {
        BPF_RB_NO_WAKEUP
    }
}

/// Helpers and maps.
pub(crate) struct BpfKernel;

impl Kernel for BpfKernel {
    fn control(&self) -> Control {
        CONTROL.get(0).copied().unwrap_or_default()
    }

    fn header(&self, kind: Kind, detail: u8) -> Header {
        // SAFETY: a helper without arguments.
        let now = unsafe { bpf_ktime_get_ns() };
        Header {
            kind: kind as u8,
            detail,
            clock: (now / TICK_NS) as u16,
            tid: current_tid(),
        }
    }

    fn read_user(&self, address: u64) -> Option<u64> {
        // SAFETY: the helper reads any address and fails where there is nothing to read.
        unsafe { bpf_probe_read_user(address as *const u64) }.ok()
    }

    fn stack_is_known(&self, id: u64) -> bool {
        KNOWN_STACKS.get_ptr(id).is_some()
    }

    fn stack_became_known(&self, id: u64) {
        // When it fails the stack is sent again at its next use.
        let _sent_again = KNOWN_STACKS.insert(id, 1, BPF_ANY.into());
    }

    fn emit<R: Copy + 'static>(&self, record: R) -> bool {
        submit(record, None)
    }

    fn emit_stack(&self, record: &StackRecord, frames: usize) -> bool {
        let frames = if frames > MAX_FRAMES {
            MAX_FRAMES
        } else {
            frames
        };
        let length = StackRecord::HEAD + frames * size_of::<u64>();
        let flags = wake_if_filling(length);
        let data = ptr::from_ref(record).cast_mut().cast();
        // SAFETY: `length` does not exceed the record, and the map is a ring buffer.
        let result = unsafe {
            generated::bpf_ringbuf_output(
                ptr::addr_of!(EVENTS).cast_mut().cast(),
                data,
                length as u64,
                flags.into(),
            )
        };
        result == 0
    }

    fn count(&self, counter: Counter) {
        let Some(slot) = COUNTERS.get_ptr_mut(counter.slot()) else {
            return;
        };
        // SAFETY: the slot lives as long as the map. The addition is atomic, because programs run
        // on all CPUs and can be preempted; Rust's atomics are not available for this target.
        unsafe {
            core::arch::asm!("lock *(u64 *)({0} + 0) += {1}", in(reg) slot, in(reg) 1_u64);
        }
    }
}
