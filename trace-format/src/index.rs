//! Typed indices into the tables of a heaptrack file.
//!
//! The file numbers strings, instruction pointers and traces from 1, and 0 means "none";
//! allocation infos are numbered from 0. The types keep these conventions in one place: code
//! outside never adds or subtracts the 1 by hand.

macro_rules! one_based_index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The index 0 of the file: no entry.
            pub const NONE: Self = Self(0);

            /// The index as the file writes it: 0 is "none", 1 the first entry.
            #[must_use]
            pub const fn from_file(index: u32) -> Self {
                Self(index)
            }

            /// The index of the entry at `position` (from 0) of the table. `None` when the table
            /// is larger than the format can number.
            #[must_use]
            pub fn from_position(position: usize) -> Option<Self> {
                let index = u32::try_from(position).ok()?.checked_add(1)?;
                Some(Self(index))
            }

            /// The number that stands in the file.
            #[must_use]
            pub const fn get(self) -> u32 {
                self.0
            }

            /// Whether this is the index 0, "none".
            #[must_use]
            pub const fn is_none(self) -> bool {
                self.0 == 0
            }

            /// Position in a table counted from 0; `None` for the index 0.
            #[must_use]
            pub const fn position(self) -> Option<usize> {
                match self.0 {
                    0 => None,
                    index => Some(index as usize - 1),
                }
            }
        }
    };
}

one_based_index!(
    /// A string: function name, source file or module path. Index 0: unknown.
    StringIndex
);
one_based_index!(
    /// An instruction pointer with its frames. Index 0: none.
    IpIndex
);
one_based_index!(
    /// A node of the trace tree. Index 0: the root, that is an unknown backtrace.
    TraceIndex
);

/// A distinct pair of size and trace; numbered from 0, so there is no "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllocationInfoIndex(u32);

impl AllocationInfoIndex {
    /// The index as the file writes it.
    #[must_use]
    pub const fn from_file(index: u32) -> Self {
        Self(index)
    }

    /// The number that stands in the file.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Position in the table of allocation infos.
    #[must_use]
    pub const fn position(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_none_and_one_is_the_first_position() {
        assert_eq!(StringIndex::from_file(0).position(), None);
        assert_eq!(StringIndex::from_file(1).position(), Some(0));
        assert_eq!(
            StringIndex::from_position(0),
            Some(StringIndex::from_file(1))
        );
        assert!(TraceIndex::NONE.is_none());
    }

    #[test]
    fn a_table_larger_than_the_format_can_number_is_refused() {
        assert_eq!(IpIndex::from_position(u32::MAX as usize), None);
        assert_eq!(
            IpIndex::from_position(u32::MAX as usize - 1).map(IpIndex::get),
            Some(u32::MAX)
        );
    }
}
