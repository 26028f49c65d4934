//! The probe logic's [`Kernel`] on real helpers and maps.
//!
//! This is the one place of the programs with `unsafe`: every use rests on what the verifier
//! proves at load time (map values and context fields lie where they are said to).

use core::{ffi::c_void, mem::offset_of, ptr};

use aya_ebpf::{
    bindings::{BPF_ANY, BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP, pt_regs},
    helpers::{bpf_get_current_pid_tgid, bpf_probe_read_user, generated},
    macros::map,
    maps::{Array, HashMap, LruHashMap, RingBuf},
    programs::{ProbeContext, RetProbeContext},
};
use htrace_ebpf::{
    Kernel, Registers, probe, selection,
    thread::Thread,
    unwind::{self, Progress, Walk, lookup::Lookup, window::WINDOW_WORDS},
};
use htrace_ebpf_common::{
    control::{Control, MAX_FRAMES},
    counters::Counter,
    point::{Point, Register},
    wire::{Kind, NoticeRecord, StackRecord, TICK_NS},
};

use crate::{chosen_threads, constants, pauses, remembered, return_probes, rules, waits};

/// Flags of `bpf(BPF_MAP_CREATE)`, Linux UAPI: elements are allocated when they are inserted; user
/// space can map the elements.
pub(crate) const BPF_F_NO_PREALLOC: u32 = 1;
pub(crate) const BPF_F_MMAPABLE: u32 = 1 << 10;

/// The recorder's settings: one element.
#[map]
static CONTROL: Array<Control> = Array::with_max_entries(1, 0);

/// Process id of the target in the initial pid namespace, 0 while it is not known. The programs
/// learn it at the first notice, because probes are scoped to the target and the recorder may sit
/// in another pid namespace, where that number cannot be seen.
#[map]
static TARGET: Array<u32> = Array::with_max_entries(1, 0);

/// What [`Counter`] counts, one slot each.
#[map]
static COUNTERS: Array<u64> = Array::with_max_entries(Counter::SLOTS, 0);

/// The records. The recorder sets the size.
#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// Copies of the records that the recorder must see at once, because the target waits.
#[map]
static NOTICES: RingBuf = RingBuf::with_byte_size(1 << 16, 0);

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

/// Registers as they were at the entry of the function that was hit at a point.
#[inline(always)]
pub(crate) fn registers(context: &ProbeContext, point: Point) -> Registers {
    // SAFETY: a uprobe's context is a `pt_regs`.
    let regs = unsafe { &*context.regs };
    let sp = above(regs.rsp, point.stack_words);
    let fp_at = match point.rbp_words {
        0 => 0,
        words => sp.wrapping_sub(words as u64 * WORD),
    };
    Registers {
        ip: regs.rip,
        sp,
        fp: regs.rbp,
        fp_at,
    }
}

/// The slot of the return address of the function that was hit at a point.
#[inline(always)]
pub(crate) fn slot(context: &ProbeContext, point: Point) -> u64 {
    // SAFETY: as in `registers`.
    above(unsafe { &*context.regs }.rsp, point.stack_words)
}

const WORD: u64 = size_of::<u64>() as u64;

#[inline(always)]
const fn above(sp: u64, words: u16) -> u64 {
    sp.wrapping_add(words as u64 * WORD)
}

/// The value of a register.
#[inline(always)]
pub(crate) fn register(context: &ProbeContext, register: Register) -> u64 {
    /// Loads a field by an instruction of its own: the compiler would choose an address first and
    /// load from that, and the verifier allows only loads at constant distances from the context.
    macro_rules! field {
        ($name:ident) => {{
            let value: u64;
            // SAFETY: as in `registers`.
            unsafe {
                core::arch::asm!(
                    "{0} = *(u64 *)({1} + {2})",
                    out(reg) value,
                    in(reg) context.regs,
                    const offset_of!(pt_regs, $name),
                    options(pure, readonly, nostack),
                );
            }
            value
        }};
    }
    match register.number() {
        0 => field!(rax),
        1 => field!(rcx),
        2 => field!(rdx),
        3 => field!(rbx),
        4 => field!(rsp),
        5 => field!(rbp),
        6 => field!(rsi),
        7 => field!(rdi),
        8 => field!(r8),
        9 => field!(r9),
        10 => field!(r10),
        11 => field!(r11),
        12 => field!(r12),
        13 => field!(r13),
        14 => field!(r14),
        _ => field!(r15),
    }
}

/// The stack slot from which the function has just returned.
pub(crate) fn return_slot(context: &RetProbeContext) -> u64 {
    // SAFETY: a uprobe's context is a `pt_regs`.
    let regs = unsafe { &*context.regs };
    regs.rsp.wrapping_sub(size_of::<u64>() as u64)
}

/// State of the current thread, made when it is seen for the first time.
pub(crate) fn thread() -> Option<&'static mut Thread> {
    let tid = BpfKernel.tid();
    if let Some(thread) = known_thread(tid) {
        return Some(thread);
    }
    note_target();
    let new = NEW_THREAD.get(0)?;
    if THREADS.insert(tid, new, BPF_ANY.into()).is_err() {
        BpfKernel.count(Counter::ThreadsFull);
        return None;
    }
    let thread = known_thread(tid)?;
    thread.tid = tid;
    Some(thread)
}

/// State of the current thread, if there is one.
pub(crate) fn thread_if_seen() -> Option<&'static mut Thread> {
    known_thread(BpfKernel.tid())
}

#[inline(always)]
fn known_thread(tid: u32) -> Option<&'static mut Thread> {
    let thread = THREADS.get_ptr_mut(tid)?;
    // SAFETY: the element is this thread's alone, a thread runs one program at a time, and the
    // element is removed only by the thread itself, at its end.
    Some(unsafe { &mut *thread })
}

/// Forgets the state of the current thread.
pub(crate) fn forget_thread() {
    // There is nothing to do when the thread was never seen.
    let _absent = THREADS.remove(BpfKernel.tid());
}

/// True if the current process is the target. It is known only after the first hit.
pub(crate) fn is_target() -> bool {
    TARGET.get(0).copied() == Some(current_tgid())
}

/// Sends a notice at once, and returns its stamp: the recorder has to look at the target while it
/// is as it is now.
pub(crate) fn notice(kind: Kind) -> u64 {
    note_target();
    let header = BpfKernel.header(kind);
    let stamp = waits::now();
    let record = NoticeRecord { header, stamp };
    // One keeps its place among the events, the other is seen sooner.
    if !submit(record, Wake::Always) || !submit_notice(record) {
        BpfKernel.count(Counter::ModulesRingFull);
    }
    stamp
}

/// Notes the first process that hits a probe as the target. A child that shares its memory for a
/// while (vfork) may hit probes as well, but not before it.
fn note_target() {
    if let Some(target) = TARGET.get_ptr_mut(0) {
        // SAFETY: the element lives as long as the map; all writers store the same number.
        unsafe {
            if target.read_volatile() == 0 {
                target.write_volatile(current_tgid());
            }
        }
    }
}

fn current_tgid() -> u32 {
    (bpf_get_current_pid_tgid() >> 32) as u32
}

/// Whether a record wakes the recorder, which otherwise polls: to wake it costs an interrupt of
/// another CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wake {
    Always,
    /// If there is much to do.
    IfFilling,
    Never,
}

impl Wake {
    #[inline(always)]
    const fn when(is_due: bool) -> Self {
        match is_due {
            true => Self::IfFilling,
            false => Self::Never,
        }
    }

    #[inline(always)]
    fn flags(self) -> u32 {
        let wakes = match self {
            Self::Always => true,
            Self::IfFilling => {
                EVENTS.query(BPF_RB_AVAIL_DATA.into()) >= BpfKernel.control().wake_at
            }
            Self::Never => false,
        };
        match wakes {
            true => BPF_RB_FORCE_WAKEUP,
            false => BPF_RB_NO_WAKEUP,
        }
    }
}

/// Copies a record into the ring buffer; false if there is no room.
#[inline(always)]
fn submit<R: Copy + 'static>(record: R, wake: Wake) -> bool {
    let Some(mut entry) = EVENTS.reserve::<R>(0) else {
        return false;
    };
    entry.write(record);
    entry.submit(wake.flags().into());
    true
}

/// Copies a record into the ring buffer of notices and wakes the recorder; false if there is no
/// room.
pub(crate) fn submit_notice<R: Copy + 'static>(record: R) -> bool {
    NOTICES
        .output::<R>(&record, BPF_RB_FORCE_WAKEUP.into())
        .is_ok()
}

/// What a walk's steps work on: the parts of a [`Thread`].
#[repr(C)]
struct Walked {
    walk: *mut Walk,
    frames: *mut [u64; MAX_FRAMES],
}

impl Walked {
    fn of(thread: &mut Thread) -> Self {
        Self {
            walk: &raw mut thread.walk,
            frames: &raw mut thread.stack.frames,
        }
    }
}

/// One more than frames, because the step that finds the stack too deep adds none.
const LOOPS: u32 = MAX_FRAMES as u32 + 1;
/// Where the kernel cannot repeat a step by itself, walks end sooner.
const BOUNDED_STEPS: u32 = 128;

/// A function that walks the stack of a thread, and the callback with which the kernel repeats that
/// which goes on (Linux 5.17). The function is global in the sense of the verifier, which checks it
/// once, on its own, and not for each way that leads to it.
macro_rules! walk {
    ($walk:ident, $callback:ident, $kernel:expr, $go:path) => {
        #[unsafe(no_mangle)]
        #[inline(never)]
        extern "C" fn $walk(thread: *mut Thread) -> u64 {
            // SAFETY: null, which the verifier wants to be ruled out, or the current thread's state.
            let Some(thread) = (unsafe { thread.as_mut() }) else {
                return 0;
            };
            let mut walked = Walked::of(thread);
            let (callback, context) = ($callback as *mut c_void, (&raw mut walked).cast());
            // SAFETY: the callback takes what `walked` is, which outlives the call.
            unsafe { generated::bpf_loop(LOOPS, callback, context, 0) };
            0
        }

        /// Goes on with the walk; returns 1 when it has ended.
        #[inline(never)]
        unsafe extern "C" fn $callback(_iteration: u64, walked: *mut Walked) -> i64 {
            // SAFETY: the context is what the walk has passed, and the parts are the thread's own.
            let (walk, frames) = unsafe { (&mut *(*walked).walk, &mut *(*walked).frames) };
            match $go(&$kernel, walk, frames) {
                Progress::Ended => 1,
                Progress::Continues => 0,
            }
        }
    };
}

walk!(by_tables, steps_by_tables, BpfKernel, unwind::go_on);
walk!(
    by_tables_asleep,
    steps_by_tables_asleep,
    SleepingKernel,
    unwind::go_on
);
walk!(
    by_frame_pointers,
    steps_by_frame_pointers,
    BpfKernel,
    unwind::frame_pointers::step
);

/// Helpers and maps.
pub(crate) struct BpfKernel;

/// As [`BpfKernel`], in programs that may sleep: records wait for room, and walks while mappings are
/// locked.
pub(crate) struct SleepingKernel;

/// Helpers and maps of kernels before 5.17: walks follow frame pointers, in a loop with a bound.
pub(crate) struct OldKernel;

impl Kernel for BpfKernel {
    fn control(&self) -> Control {
        let control = CONTROL.get(0).copied().unwrap_or_default();
        match control.phase {
            Control::WAITING => control.after(awaited_calls()),
            _ => control,
        }
    }

    fn thread_is_chosen(&self) -> bool {
        chosen_threads::current_thread_is_chosen() != 0
    }

    fn random(&self) -> u32 {
        // SAFETY: a helper without arguments.
        unsafe { generated::bpf_get_prandom_u32() }
    }

    #[inline(always)]
    fn tid(&self) -> u32 {
        bpf_get_current_pid_tgid() as u32
    }

    #[inline(always)]
    fn clock(&self) -> u16 {
        (waits::now() / TICK_NS) as u16
    }

    #[inline(always)]
    fn jiffies(&self) -> u64 {
        // SAFETY: a helper without arguments.
        unsafe { generated::bpf_jiffies64() }
    }

    fn read_user(&self, address: u64) -> Option<u64> {
        // SAFETY: the helper reads any address and fails where there is nothing to read.
        unsafe { bpf_probe_read_user(address as *const u64) }.ok()
    }

    #[inline(always)]
    fn read_user_words(&self, address: u64, words: &mut [u64; WINDOW_WORDS], length: u64) -> bool {
        // The verifier has to see the bound.
        let length = core::hint::black_box(length) as u32;
        let all = size_of_val(words) as u32;
        let size = if length < all { length } else { all };
        let to = (&raw mut *words).cast();
        // SAFETY: the helper writes `size` bytes to the array; as for `read_user`.
        unsafe { generated::bpf_probe_read_user(to, size, address as *const c_void) == 0 }
    }

    #[inline(always)]
    fn walk(&self, thread: &mut Thread) {
        match constants::by_tables() {
            true => by_tables(thread),
            false => by_frame_pointers(thread),
        };
    }

    fn find_rule(&self, address: u64, interrupted: bool) -> Lookup {
        Lookup::from_bits(rules::find_rule(address, interrupted as u64))
    }

    #[inline(always)]
    fn rule_generation(&self) -> u32 {
        remembered::generation() as u32
    }

    fn remembered_word(&self, index: u32) -> u64 {
        rules::remembered_word(index)
    }

    fn remember_word(&self, index: u32, word: u64) {
        rules::remember_word(index, word);
    }

    fn replaced_return_address(&self, slot: u64) -> u64 {
        return_probes::replaced_return_address(slot)
    }

    fn stack_is_known(&self, id: u64) -> bool {
        KNOWN_STACKS.get_ptr(id).is_some()
    }

    fn stack_became_known(&self, id: u64) {
        // When it fails the stack is sent again at its next use.
        let _sent_again = KNOWN_STACKS.insert(id, 1, BPF_ANY.into());
    }

    fn emit<R: Copy + 'static>(&self, record: R, is_due: bool) -> bool {
        submit(record, Wake::when(is_due))
    }

    fn emit_stack(&self, record: &StackRecord, frames: usize) -> bool {
        let frames = if frames > MAX_FRAMES {
            MAX_FRAMES
        } else {
            frames
        };
        let length = StackRecord::HEAD + frames * size_of::<u64>();
        let flags = Wake::IfFilling.flags();
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
        add_to(counter, 1);
    }

    fn draw_distance(&self, mean: u64) -> u64 {
        distance_to_mark(mean)
    }

    fn forget_left_by_exceptions(&self, thread: &mut Thread) -> bool {
        left_by_exceptions_are_forgotten(thread) != 0
    }
}

/// See [`Kernel::forget_left_by_exceptions`]. Global, as a step of a walk is: Linux 5.17.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn left_by_exceptions_are_forgotten(thread: *mut Thread) -> u64 {
    // SAFETY: null, which the verifier wants to be ruled out, or the current thread's state.
    match unsafe { thread.as_mut() } {
        Some(thread) => probe::forget_left_by_exceptions(&BpfKernel, thread) as u64,
        None => 0,
    }
}

/// See [`Kernel::draw_distance`]. Global, so that the verifier checks it once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn distance_to_mark(mean: u64) -> u64 {
    selection::distance(BpfKernel.random(), mean)
}

/// How often the function was called with which the recording begins.
#[inline(always)]
fn awaited_calls() -> u64 {
    let calls = COUNTERS.get_ptr(Counter::Awaited.slot());
    // SAFETY: the element lives as long as the map; volatile, because other threads write to it.
    calls.map_or(0, |calls| unsafe { calls.read_volatile() })
}

/// Adds to a counter.
#[inline(always)]
pub(crate) fn add_to(counter: Counter, number: u64) {
    if let Some(slot) = COUNTERS.get_ptr_mut(counter.slot()) {
        add(slot, number);
    }
}

/// Adds to a word of a map. The addition is atomic, because programs run on all CPUs and can be
/// preempted; Rust's atomics are not available for this target.
#[inline(always)]
pub(crate) fn add(word: *mut u64, number: u64) {
    // SAFETY: callers pass elements of maps, which live as long as the map.
    unsafe {
        core::arch::asm!("lock *(u64 *)({0} + 0) += {1}", in(reg) word, in(reg) number);
    }
}

/// Methods that are those of [`BpfKernel`].
macro_rules! as_in_bpf_kernel {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(
            #[inline(always)]
            fn $name(&self, $($argument: $type),*) $(-> $result)? {
                BpfKernel.$name($($argument),*)
            }
        )*
    };
}

impl Kernel for SleepingKernel {
    as_in_bpf_kernel! {
        fn control() -> Control;
        fn thread_is_chosen() -> bool;
        fn random() -> u32;
        fn tid() -> u32;
        fn clock() -> u16;
        fn jiffies() -> u64;
        fn read_user(address: u64) -> Option<u64>;
        fn read_user_words(address: u64, words: &mut [u64; WINDOW_WORDS], length: u64) -> bool;
        fn rule_generation() -> u32;
        fn remembered_word(index: u32) -> u64;
        fn remember_word(index: u32, word: u64);
        fn replaced_return_address(slot: u64) -> u64;
        fn stack_is_known(id: u64) -> bool;
        fn stack_became_known(id: u64);
        fn count(counter: Counter);
        fn draw_distance(mean: u64) -> u64;
        fn forget_left_by_exceptions(thread: &mut Thread) -> bool;
    }

    #[inline(always)]
    fn walk(&self, thread: &mut Thread) {
        match constants::by_tables() {
            true => by_tables_asleep(thread),
            false => by_frame_pointers(thread),
        };
    }

    fn find_rule(&self, address: u64, interrupted: bool) -> Lookup {
        Lookup::from_bits(rules::find_rule_asleep(address, interrupted as u64))
    }

    #[inline(always)]
    fn emit<R: Copy + 'static>(&self, record: R, is_due: bool) -> bool {
        if is_due {
            pauses::for_room();
        }
        BpfKernel.emit(record, is_due)
    }

    fn emit_stack(&self, record: &StackRecord, frames: usize) -> bool {
        pauses::for_room();
        BpfKernel.emit_stack(record, frames)
    }
}

impl Kernel for OldKernel {
    #[inline(always)]
    fn walk(&self, thread: &mut Thread) {
        for _ in 0..BOUNDED_STEPS {
            let (walk, frames) = (&mut thread.walk, &mut thread.stack.frames);
            if unwind::frame_pointers::step(self, walk, frames) == Progress::Ended {
                break;
            }
        }
    }

    fn find_rule(&self, _address: u64, _interrupted: bool) -> Lookup {
        Lookup::last(htrace_ebpf_common::wire::StackEnd::NoTable)
    }

    fn rule_generation(&self) -> u32 {
        0
    }

    fn remembered_word(&self, _index: u32) -> u64 {
        0
    }

    fn remember_word(&self, _index: u32, _word: u64) {}

    fn replaced_return_address(&self, _slot: u64) -> u64 {
        0
    }

    as_in_bpf_kernel! {
        fn control() -> Control;
        fn thread_is_chosen() -> bool;
        fn random() -> u32;
        fn tid() -> u32;
        fn clock() -> u16;
        fn jiffies() -> u64;
        fn read_user(address: u64) -> Option<u64>;
        fn read_user_words(address: u64, words: &mut [u64; WINDOW_WORDS], length: u64) -> bool;
        fn stack_is_known(id: u64) -> bool;
        fn stack_became_known(id: u64);
        fn emit_stack(record: &StackRecord, frames: usize) -> bool;
        fn count(counter: Counter);
        fn draw_distance(mean: u64) -> u64;
    }

    fn emit<R: Copy + 'static>(&self, record: R, is_due: bool) -> bool {
        BpfKernel.emit(record, is_due)
    }
}
