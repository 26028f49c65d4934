//! One call of an allocation function, as its entry shows it.

use htrace_ebpf_common::function::Function as Probed;

/// An allocation function, as far as probes treat it differently from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Function {
    /// `malloc` and all that take a size alone and never call another probed function.
    Malloc = 1,
    /// `calloc`.
    Calloc = 2,
    /// `memalign`, `aligned_alloc`, `valloc` and `pvalloc`.
    Aligned = 3,
    /// `posix_memalign`: the pointer comes back through an argument.
    PosixMemalign = 4,
    /// `realloc` and `reallocarray`.
    Realloc = 5,
    /// A C++ `operator new` that calls no other probed function. It can be left by an exception,
    /// so its returns are seen at its `ret` instructions. Also a `malloc` or `calloc` that is watched
    /// at points inside it: it may go on unseen when it fails.
    OperatorNew = 6,
}

impl Function {
    /// True if an allocator may call another probed function inside this one. glibc calls
    /// `malloc` for `realloc(NULL, n)` and for small alignments, `free` for `realloc(p, 0)` and
    /// `realloc` for `reallocarray`; musl builds `calloc` and the aligned ones on `malloc`.
    #[must_use]
    pub const fn may_contain_calls(self) -> bool {
        !matches!(self, Self::Malloc | Self::OperatorNew)
    }
}

/// A call at its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What was called.
    pub function: Function,
    /// Requested size in bytes; `u64::MAX` when the request overflows and must fail.
    pub size: u64,
    /// `realloc`: the old block, or 0. `posix_memalign`: where the pointer is to be stored.
    pub argument: u64,
}

impl Call {
    /// The call of a probed function with its first three arguments.
    #[must_use]
    #[inline(always)]
    pub const fn entered(function: Probed, arguments: [u64; 3]) -> Self {
        let [first, second, third] = arguments;
        match function {
            Probed::Malloc => Self::malloc(first),
            Probed::Calloc => Self::calloc(first, second),
            Probed::Valloc => Self::aligned(first),
            Probed::Memalign => Self::aligned(second),
            Probed::PosixMemalign => Self::posix_memalign(first, third),
            Probed::Realloc => Self::realloc(first, second),
            Probed::Reallocarray => Self::reallocarray(first, second, third),
            Probed::OperatorNew => Self::operator_new(first),
        }
    }

    /// True if the call's end is seen at points inside the function, not by a return probe.
    #[must_use]
    pub const fn is_seen_inside(&self) -> bool {
        matches!(self.function, Function::OperatorNew)
    }

    /// `malloc(size)` and the like.
    #[must_use]
    pub const fn malloc(size: u64) -> Self {
        Self {
            function: Function::Malloc,
            size,
            argument: 0,
        }
    }

    /// `operator new(size)` in all its forms.
    #[must_use]
    pub const fn operator_new(size: u64) -> Self {
        Self {
            function: Function::OperatorNew,
            size,
            argument: 0,
        }
    }

    /// `calloc(count, size)`.
    #[must_use]
    pub const fn calloc(count: u64, size: u64) -> Self {
        Self {
            function: Function::Calloc,
            size: product(count, size),
            argument: 0,
        }
    }

    /// `memalign(_, size)` and the like.
    #[must_use]
    pub const fn aligned(size: u64) -> Self {
        Self {
            function: Function::Aligned,
            size,
            argument: 0,
        }
    }

    /// `posix_memalign(out, _, size)`.
    #[must_use]
    pub const fn posix_memalign(out: u64, size: u64) -> Self {
        Self {
            function: Function::PosixMemalign,
            size,
            argument: out,
        }
    }

    /// `realloc(old, size)`.
    #[must_use]
    pub const fn realloc(old: u64, size: u64) -> Self {
        Self {
            function: Function::Realloc,
            size,
            argument: old,
        }
    }

    /// `reallocarray(old, count, size)`.
    #[must_use]
    pub const fn reallocarray(old: u64, count: u64, size: u64) -> Self {
        Self::realloc(old, product(count, size))
    }
}

/// The product, or `u64::MAX` if it does not fit: from products of halves, because the BPF target
/// has neither the 128-bit multiplication nor the overflow flag that the standard library's
/// saturating one is built on.
const fn product(a: u64, b: u64) -> u64 {
    const HALF: u64 = u32::MAX as u64;
    let (a_high, b_high) = (a >> 32, b >> 32);
    if a_high != 0 && b_high != 0 {
        return u64::MAX;
    }
    // One of the terms is 0.
    let cross = a_high * (b & HALF) + b_high * (a & HALF);
    let low = (a & HALF) * (b & HALF);
    let sum = (cross << 32).wrapping_add(low);
    if cross > HALF || sum < low {
        u64::MAX
    } else {
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_saturate() {
        let factors = [
            0,
            1,
            2,
            3,
            1 << 31,
            1 << 32,
            (1 << 32) + 1,
            1 << 33,
            1 << 62,
            u64::MAX,
        ];
        for a in factors {
            for b in factors {
                assert_eq!(product(a, b), a.saturating_mul(b), "{a} * {b}");
            }
        }
    }
}
