//! Which functions are probed, and by which program: the table to extend for another function.

use htrace_ebpf_common::function::Function;

/// A function and the programs that are attached to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbedFunction {
    /// Symbol name.
    pub name: &'static str,
    /// Program at the entry.
    pub enter: &'static str,
    /// What the program at the entry is to know of the function, if it serves several.
    pub function: Option<Function>,
    /// Program at the return. None of these functions can throw: an exception through a frame
    /// with a return probe would kill the target.
    pub leave: Option<&'static str>,
}

impl ProbedFunction {
    /// How many of its arguments a probe at its entry looks at; of those that do not allocate at
    /// most two, an address and a length.
    #[must_use]
    pub const fn arguments(&self) -> usize {
        match self.function {
            Some(function) => function.arguments(),
            None => 2,
        }
    }
}

/// The program that serves all functions that allocate.
pub const ENTER: &str = "enter_allocation";
const LEAVE: Option<&str> = Some("leave_allocation");

const fn allocates(name: &'static str, function: Function) -> ProbedFunction {
    ProbedFunction {
        name,
        enter: ENTER,
        function: Some(function),
        leave: LEAVE,
    }
}

const fn frees(name: &'static str) -> ProbedFunction {
    ProbedFunction {
        name,
        enter: ENTER_FREE,
        function: None,
        leave: None,
    }
}

/// The allocation functions of C libraries. `cfree` is exported by glibc before 2.26; the sized
/// frees are C23's.
pub const ALLOCATOR: [ProbedFunction; 13] = [
    allocates("malloc", Function::Malloc),
    allocates("calloc", Function::Calloc),
    allocates("realloc", Function::Realloc),
    allocates("reallocarray", Function::Reallocarray),
    allocates("memalign", Function::Memalign),
    allocates("aligned_alloc", Function::Memalign),
    allocates("posix_memalign", Function::PosixMemalign),
    allocates("valloc", Function::Valloc),
    allocates("pvalloc", Function::Valloc),
    frees("free"),
    frees("cfree"),
    frees("free_sized"),
    frees("free_aligned_sized"),
];

/// All functions that [`ENTER`] serves; some come several times.
pub fn entered_functions() -> impl Iterator<Item = Function> {
    let of_c = ALLOCATOR.iter().filter_map(|probed| probed.function);
    of_c.chain([Function::OperatorNew])
}

/// Program at the `ret` instructions of an `operator new` that allocates by itself, which can
/// throw and thus must have no return probe.
pub const LEAVE_AT_RET: &str = "leave_at_ret";
/// Program at the entry of what frees.
pub const ENTER_FREE: &str = "enter_free";

/// The function without which a file has no allocator.
pub const ESSENTIAL: &str = "malloc";

/// What the dynamic linker calls when the list of modules changes.
pub const DYNAMIC_LINKER: [ProbedFunction; 1] = [ProbedFunction {
    name: "_dl_debug_state",
    enter: "modules_changed",
    function: None,
    leave: None,
}];

/// The functions of a C library by which code comes and goes without the dynamic linker.
pub const MAPPERS: [ProbedFunction; 4] = [
    maps("mmap", Some(CODE_MAPPED)),
    maps("mmap64", Some(CODE_MAPPED)),
    maps("munmap", None),
    maps("mremap", None),
];

const CODE_MAPPED: &str = "code_mapped";
/// The program at the entry of all [`MAPPERS`].
pub const CODE_UNMAPPED: &str = "code_unmapped";

/// Programs that need what kernels before 5.17 lack. They keep rules from being used for code that
/// has gone, and there are no rules where stacks are walked by frame pointers.
pub const NOT_FOR_OLD: [&str; 2] = [CODE_MAPPED, CODE_UNMAPPED];

const fn maps(name: &'static str, leave: Option<&'static str>) -> ProbedFunction {
    ProbedFunction {
        name,
        enter: CODE_UNMAPPED,
        function: None,
        leave,
    }
}

/// Programs at raw tracepoints.
pub const TRACEPOINTS: [(&str, &str); 2] = [
    ("process_exec", "sched_process_exec"),
    ("thread_exit", "sched_process_exit"),
];

/// The program at the function that a recording waits for.
pub const AWAITED: &str = "awaited_called";

/// Ending of the names of programs for kernels before 5.17.
pub const OLD: &str = "_old";

/// Ending of the names of programs that may sleep, for kernels since 6.0. Where they cannot be
/// loaded the programs without it serve.
pub const SLEEPABLE: &str = "_sleepable";
