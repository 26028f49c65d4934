//! Allocation functions by the number that a probe carries.
//!
//! One program serves all allocation functions. It learns which one it is on from a number: the
//! cookie of its link, or a constant in its code where links have no cookies.

/// An allocation function, told apart by where its arguments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Function {
    /// `malloc(size)`.
    Malloc = 1,
    /// `calloc(count, size)`.
    Calloc = 2,
    /// `valloc(size)` and `pvalloc(size)`.
    Valloc = 3,
    /// `memalign(alignment, size)` and `aligned_alloc(alignment, size)`.
    Memalign = 4,
    /// `posix_memalign(out, alignment, size)`.
    PosixMemalign = 5,
    /// `realloc(old, size)`.
    Realloc = 6,
    /// `reallocarray(old, count, size)`.
    Reallocarray = 7,
    /// `operator new(size)` in all its forms.
    OperatorNew = 8,
}

impl Function {
    /// The number by which a probe knows the function; never 0.
    #[must_use]
    pub const fn number(self) -> u64 {
        self as u64
    }

    /// How many of its arguments a probe at its entry looks at.
    #[must_use]
    pub const fn arguments(self) -> usize {
        match self {
            Self::Malloc | Self::Valloc | Self::OperatorNew => 1,
            Self::Calloc | Self::Memalign | Self::Realloc => 2,
            Self::PosixMemalign | Self::Reallocarray => 3,
        }
    }

    /// The function with that number.
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Malloc,
            2 => Self::Calloc,
            3 => Self::Valloc,
            4 => Self::Memalign,
            5 => Self::PosixMemalign,
            6 => Self::Realloc,
            7 => Self::Reallocarray,
            8 => Self::OperatorNew,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Function;

    #[test]
    fn numbers_and_functions_belong_together() {
        let known = (0..=u64::from(u8::MAX)).filter_map(|number| {
            let function = Function::from_number(number)?;
            assert_eq!(function.number(), number);
            Some(function)
        });
        assert_eq!(known.count(), 8);
        assert_eq!(Function::from_number(0), None);
        assert_eq!(Function::from_number(0x100 + 1), None);
    }
}
