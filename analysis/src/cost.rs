//! The four costs of a backtrace, and the choice of one of them.

use std::ops::{AddAssign, SubAssign};

/// What a backtrace, a group of them or a whole trace costs. Signed, because a diff subtracts.
/// Arithmetic wraps: sums of hostile input are meaningless but must not panic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Calls to allocation functions.
    pub allocations: i64,
    /// Allocations whose block was freed before anything else was allocated or freed.
    pub temporary: i64,
    /// Bytes live at the end.
    pub leaked: i64,
    /// Bytes live at the moment when most bytes were live in the whole process.
    pub peak: i64,
}

/// One of the four costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CostKind {
    /// [`Costs::allocations`].
    Allocations,
    /// [`Costs::temporary`].
    Temporary,
    /// [`Costs::leaked`].
    Leaked,
    /// [`Costs::peak`].
    Peak,
}

impl CostKind {
    /// All kinds, in the order in which help texts list them.
    pub const ALL: [Self; 4] = [Self::Allocations, Self::Temporary, Self::Leaked, Self::Peak];

    /// The word of the command line for this kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocations => "allocations",
            Self::Temporary => "temporary",
            Self::Leaked => "leaked",
            Self::Peak => "peak",
        }
    }

    /// The kind with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether the cost is a number of bytes rather than of calls.
    #[must_use]
    pub const fn is_bytes(self) -> bool {
        matches!(self, Self::Leaked | Self::Peak)
    }
}

impl Costs {
    /// The cost of one kind.
    #[must_use]
    pub const fn get(&self, kind: CostKind) -> i64 {
        match kind {
            CostKind::Allocations => self.allocations,
            CostKind::Temporary => self.temporary,
            CostKind::Leaked => self.leaked,
            CostKind::Peak => self.peak,
        }
    }

    /// Whether all four are 0.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for Costs {
    fn add_assign(&mut self, other: Self) {
        self.allocations = self.allocations.wrapping_add(other.allocations);
        self.temporary = self.temporary.wrapping_add(other.temporary);
        self.leaked = self.leaked.wrapping_add(other.leaked);
        self.peak = self.peak.wrapping_add(other.peak);
    }
}

impl SubAssign for Costs {
    fn sub_assign(&mut self, other: Self) {
        self.allocations = self.allocations.wrapping_sub(other.allocations);
        self.temporary = self.temporary.wrapping_sub(other.temporary);
        self.leaked = self.leaked.wrapping_sub(other.leaked);
        self.peak = self.peak.wrapping_sub(other.peak);
    }
}
