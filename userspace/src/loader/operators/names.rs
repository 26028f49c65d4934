//! What functions mean for an operator that reaches them, by their names.
//!
//! C++ names are mangled as the Itanium C++ ABI says; `m` is the `std::size_t` of 64-bit Linux.

use crate::loader::functions::{ALLOCATOR, ProbedFunction};

/// All forms of `operator new` and `operator new[]`: each takes the size as its first argument.
const NEW: [&str; 8] = [
    "_Znwm",
    "_Znam",
    "_ZnwmRKSt9nothrow_t",
    "_ZnamRKSt9nothrow_t",
    "_ZnwmSt11align_val_t",
    "_ZnamSt11align_val_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t",
    "_ZnamSt11align_val_tRKSt9nothrow_t",
];

/// All forms of `operator delete` and `operator delete[]`: each takes the block first.
const DELETE: [&str; 12] = [
    "_ZdlPv",
    "_ZdaPv",
    "_ZdlPvm",
    "_ZdaPvm",
    "_ZdlPvRKSt9nothrow_t",
    "_ZdaPvRKSt9nothrow_t",
    "_ZdlPvSt11align_val_t",
    "_ZdaPvSt11align_val_t",
    "_ZdlPvmSt11align_val_t",
    "_ZdaPvmSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
];

/// `std::get_new_handler()`, and `std::set_new_handler()`, by which it was asked for before C++11.
const NEW_HANDLER: [&str; 2] = ["_ZSt15get_new_handlerv", "_ZSt15set_new_handlerPFvvE"];

/// Functions that return without having allocated, or freed, what an operator is about: system
/// calls, locks, memory and strings, messages, and the C++ runtime. Some allocate for themselves
/// (an exception object, a stream's buffer); that is no block of the operator's.
const RETURNS: [&str; 56] = [
    "__cxa_allocate_exception",
    "__cxa_begin_catch",
    "__cxa_end_catch",
    "__cxa_free_exception",
    "__cxa_guard_abort",
    "__cxa_guard_acquire",
    "__cxa_guard_release",
    "__cxa_init_primary_exception",
    "__errno_location",
    "__fprintf_chk",
    "__memcpy_chk",
    "__memmove_chk",
    "__memset_chk",
    "__printf_chk",
    "__tls_get_addr",
    "__tunable_get_val",
    "__tunable_is_initialized",
    "_ZNSt9bad_allocC1Ev",
    "_ZNSt9bad_allocC2Ev",
    "_ZNSt9bad_allocD1Ev",
    "_ZNSt9bad_allocD2Ev",
    "_ZNSt9exceptionD2Ev",
    "backtrace",
    "brk",
    "clock_gettime",
    "fprintf",
    "fputs",
    "fwrite",
    "getenv",
    "getpagesize",
    "getpid",
    "madvise",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "mlock",
    "mmap",
    "mmap64",
    "mprotect",
    "mremap",
    "munmap",
    "nanosleep",
    "perror",
    "printf",
    "puts",
    "sbrk",
    "sched_getcpu",
    "sched_yield",
    "snprintf",
    "strlen",
    "syscall",
    "sysconf",
    "usleep",
    "vfprintf",
    "write",
];

/// Beginnings of names of more such functions.
const RETURNS_PREFIXES: [&str; 8] = [
    "pthread_mutex_",
    "__pthread_mutex_",
    "pthread_spin_",
    "pthread_rwlock_",
    "pthread_getspecific",
    "pthread_setspecific",
    "pthread_self",
    "pthread_once",
];

/// Functions that never return.
const ENDS: [&str; 17] = [
    "_Unwind_Resume",
    "_ZSt10unexpectedv",
    "_ZSt17__throw_bad_allocv",
    "_ZSt20__throw_length_errorPKc",
    "_ZSt20__throw_system_errori",
    "_ZSt28__throw_bad_array_new_lengthv",
    "_ZSt9terminatev",
    "__assert_fail",
    "__clang_call_terminate",
    "__cxa_bad_cast",
    "__cxa_call_terminate",
    "__cxa_rethrow",
    "__cxa_throw",
    "__cxa_throw_bad_array_new_length",
    "__stack_chk_fail",
    "abort",
    "exit",
];

/// Functions of C that return their first argument (C17, 7.24).
const RETURN_FIRST: [&str; 3] = ["memcpy", "memmove", "memset"];

/// True for the name of a function that returns its first argument.
pub(super) fn returns_first(name: &str) -> bool {
    RETURN_FIRST.contains(&name)
}

/// What a function means for an operator that reaches it. Where functions share an address, the
/// least of them counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::loader) enum Role {
    /// A probed function that allocates.
    Allocates(&'static str),
    /// A probed function that allocates and frees.
    Reallocates(&'static str),
    /// A probed function that frees.
    Frees(&'static str),
    /// A form of `operator new`.
    New(&'static str),
    /// A form of `operator delete`.
    Delete(&'static str),
    /// Hands out the handler that `operator new` calls when memory runs out.
    AsksForHandler,
    /// Returns without having to do with the operator's block.
    Returns,
    /// Never returns.
    Ends,
}

impl Role {
    /// The role of a function of that name, if it is known.
    pub(super) fn of(name: &str) -> Option<Self> {
        let probed = ALLOCATOR.iter().find(|function| function.name == name);
        probed
            .map(Self::of_probed)
            .or_else(|| Self::of_operator(name))
            .or_else(|| Self::of_other(name))
    }

    fn of_probed(function: &ProbedFunction) -> Self {
        let name = function.name;
        match (function.leave, name) {
            (None, _) => Self::Frees(name),
            (Some(_), "realloc" | "reallocarray") => Self::Reallocates(name),
            (Some(_), _) => Self::Allocates(name),
        }
    }

    /// The role of a form of an operator, if the name is one's.
    pub(super) fn of_operator(name: &str) -> Option<Self> {
        if !name.starts_with("_Zn") && !name.starts_with("_Zd") {
            return None;
        }
        let among = |forms: &[&'static str]| forms.iter().copied().find(|form| *form == name);
        among(&NEW)
            .map(Self::New)
            .or_else(|| among(&DELETE).map(Self::Delete))
    }

    fn of_other(name: &str) -> Option<Self> {
        let returns = || {
            RETURNS.contains(&name) || RETURNS_PREFIXES.iter().any(|start| name.starts_with(start))
        };
        if NEW_HANDLER.contains(&name) {
            Some(Self::AsksForHandler)
        } else if ENDS.contains(&name) {
            Some(Self::Ends)
        } else {
            returns().then_some(Self::Returns)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_roles() {
        let cases = [
            ("malloc", Some(Role::Allocates("malloc"))),
            ("realloc", Some(Role::Reallocates("realloc"))),
            ("cfree", Some(Role::Frees("cfree"))),
            (
                "_ZnamSt11align_val_t",
                Some(Role::New("_ZnamSt11align_val_t")),
            ),
            ("_ZdaPvm", Some(Role::Delete("_ZdaPvm"))),
            ("_ZSt15get_new_handlerv", Some(Role::AsksForHandler)),
            ("pthread_mutex_lock", Some(Role::Returns)),
            ("__cxa_throw", Some(Role::Ends)),
            ("_ZnwmPv", None),
            ("my_pool_allocate", None),
            ("", None),
        ];
        for (name, role) in cases {
            assert_eq!(Role::of(name), role, "{name}");
        }
    }

    #[test]
    fn a_probed_function_outweighs_an_operator_at_its_address() {
        assert!(Role::Allocates("malloc") < Role::New("_Znwm"));
        assert!(Role::Frees("free") < Role::Delete("_ZdlPv"));
    }
}
