//! Counters that the BPF programs keep, one 64-bit number a slot.
//!
//! The first group counts what is missing from a recording; the recorder reports each by its
//! name. The second counts what is left out by choice. The third counts what was recognised and
//! handled; it is shown on request only.

/// A counter, and its slot in the map of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Counter {
    /// An allocation whose record found no room in the ring buffer.
    AllocationRingFull = 0,
    /// A free whose record found no room in the ring buffer.
    FreeRingFull = 1,
    /// The result of a realloc that found no room in the ring buffer.
    ReallocRingFull = 2,
    /// A call that could not be followed because the map of threads was full.
    ThreadsFull = 3,
    /// A return for which no entry was on record.
    ReturnWithoutEntry = 4,
    /// A stack whose record found no room; the allocation itself was recorded without one.
    StackRingFull = 5,
    /// The out-parameter of a successful `posix_memalign` that could not be read.
    PointerUnreadable = 6,
    /// A notice that modules were loaded or unloaded that found no room.
    ModulesRingFull = 7,
    /// The begin of a realloc that found no room in the ring buffer. Its end tells the same, but
    /// not that another thread may be given the old address in between.
    ReallocBeginRingFull = 8,

    /// A call for fewer bytes than are recorded.
    LeftOutBySize = 9,
    /// A call by a thread that is not chosen.
    LeftOutByThread = 10,
    /// A call while the recording paused, or waited for its begin.
    LeftOutByPause = 11,

    /// A call made by the allocator itself inside another recorded call.
    Nested = 16,
    /// An entry that never returned, found by its stack pointer being used again.
    Abandoned = 17,
    /// Calls that began before the recording did.
    BeforeStart = 18,
    /// Calls that returned null: no allocation.
    Failed = 19,
    /// Waits for the recorder to look at new modules.
    Waits = 20,
    /// Waits for the recorder that ran into their bound: the first stacks through new modules may
    /// end early, names may be missing.
    WaitTooLong = 25,
    /// Waits for the recorder that did not begin, because as many threads as may waited already.
    WaitRefused = 26,
    /// Look-ups of an address's mapping that met a lock.
    MappingsLocked = 21,
    /// Look-ups that met a lock, and for which what was found before did.
    MappingsRemembered = 27,
    /// Return addresses of return probes that were translated back.
    Trampolines = 22,
    /// Times that remembered unwind rules were forgotten because modules had changed.
    RulesForgotten = 23,
    /// Return addresses whose unwind rule was not remembered.
    RuleMisses = 24,
    /// Times that a thread waited for room in the ring buffer.
    Pauses = 30,
    /// Nanoseconds that threads waited for room, all threads together.
    PausedNs = 28,
    /// Waits for room that ran into their bound.
    PauseTooLong = 29,
    /// Calls of the function with which a recording begins.
    Awaited = 15,
}

impl Counter {
    /// Number of slots in the map of counters.
    pub const SLOTS: u32 = 31;

    /// Counters of what is missing from the recording, with the words under which files and
    /// messages name them.
    pub const LOST: [(Self, &'static str); 9] = [
        (Self::AllocationRingFull, "allocations-ring-full"),
        (Self::FreeRingFull, "frees-ring-full"),
        (Self::ReallocRingFull, "reallocs-ring-full"),
        (Self::ReallocBeginRingFull, "realloc-begins-ring-full"),
        (Self::ThreadsFull, "calls-too-many-threads"),
        (Self::ReturnWithoutEntry, "allocations-entry-unseen"),
        (Self::StackRingFull, "stacks-ring-full"),
        (Self::PointerUnreadable, "allocations-result-unreadable"),
        (Self::ModulesRingFull, "module-changes-ring-full"),
    ];

    /// Counters of calls that are left out by choice, with the words under which files name
    /// them. A call that was going to fail is counted as well.
    pub const LEFT_OUT: [(Self, &'static str); 3] = [
        (Self::LeftOutBySize, "min-size"),
        (Self::LeftOutByThread, "threads"),
        (Self::LeftOutByPause, "paused"),
    ];

    /// Counters of what was recognised and handled, with the words under which they are shown.
    pub const HANDLED: [(Self, &'static str); 12] = [
        (Self::Nested, "nested-calls"),
        (Self::Abandoned, "abandoned-calls"),
        (Self::BeforeStart, "calls-before-start"),
        (Self::Failed, "failed-calls"),
        (Self::Waits, "waits-for-modules"),
        (Self::WaitTooLong, "waits-too-long"),
        (Self::WaitRefused, "waits-refused"),
        (Self::MappingsLocked, "mappings-locked"),
        (Self::MappingsRemembered, "mappings-remembered"),
        (Self::Trampolines, "return-probes-translated"),
        (Self::RulesForgotten, "unwind-rules-forgotten"),
        (Self::RuleMisses, "unwind-rule-misses"),
    ];

    /// The slot in the map of counters.
    #[must_use]
    pub const fn slot(self) -> u32 {
        self as u32
    }
}
