//! Which functions are probed, and by which program: the table to extend for another function.

/// A function and the programs that are attached to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbedFunction {
    /// Symbol name.
    pub name: &'static str,
    /// Program at the entry.
    pub enter: &'static str,
    /// Program at the return. None of these functions can throw: an exception through a frame
    /// with a return probe would kill the target.
    pub leave: Option<&'static str>,
}

const LEAVE: Option<&str> = Some("leave_allocation");

const fn allocates(name: &'static str, enter: &'static str) -> ProbedFunction {
    ProbedFunction {
        name,
        enter,
        leave: LEAVE,
    }
}

const fn frees(name: &'static str) -> ProbedFunction {
    ProbedFunction {
        name,
        enter: "enter_free",
        leave: None,
    }
}

/// The allocation functions of C libraries. `cfree` is exported by glibc before 2.26; the sized
/// frees are C23's.
pub const ALLOCATOR: [ProbedFunction; 13] = [
    allocates("malloc", "enter_malloc"),
    allocates("calloc", "enter_calloc"),
    allocates("realloc", "enter_realloc"),
    allocates("reallocarray", "enter_reallocarray"),
    allocates("memalign", "enter_memalign"),
    allocates("aligned_alloc", "enter_memalign"),
    allocates("posix_memalign", "enter_posix_memalign"),
    allocates("valloc", "enter_valloc"),
    allocates("pvalloc", "enter_valloc"),
    frees("free"),
    frees("cfree"),
    frees("free_sized"),
    frees("free_aligned_sized"),
];

/// The function without which a file has no allocator.
pub const ESSENTIAL: &str = "malloc";

/// What the dynamic linker calls when the list of modules changes.
pub const DYNAMIC_LINKER: [ProbedFunction; 1] = [ProbedFunction {
    name: "_dl_debug_state",
    enter: "modules_changed",
    leave: None,
}];

/// Programs at raw tracepoints.
pub const TRACEPOINTS: [(&str, &str); 2] = [
    ("process_exec", "sched_process_exec"),
    ("thread_exit", "sched_process_exit"),
];

/// The program by which links are tested.
pub const SELF_TEST: &str = "self_test";
