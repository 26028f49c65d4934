//! How many of the leaks may be false, when frees were lost.
//!
//! Pure arithmetic over counts. A free that was lost leaves a block alive that is not. What is known
//! of it: how many frees were lost, how many of their blocks were handed out again (which tells that
//! they had been freed), and how many allocations were lost as well, whose frees do not matter.

use std::collections::BTreeMap;

/// Frees by which a C library gives back what the program has freed before: glibc's `free` is called
/// so at a thread's end, for what its cache holds (76 sizes of 16 blocks in glibc 2.42, fewer before).
const CACHED_BLOCKS: u64 = 76 * 16;

/// What is known of lost calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Evidence {
    /// Calls of `free` that were lost.
    pub(super) frees: u64,
    /// Calls of `realloc` that were lost: each may have freed a block.
    pub(super) reallocs: u64,
    /// Most allocations that were lost, those of `realloc` included.
    pub(super) allocations: u64,
    /// Blocks that were handed out again although their free was not seen.
    pub(super) reused: u64,
    /// Threads that were seen.
    pub(super) threads: u64,
    /// True if all blocks are known from their beginning: the program was started by us, and no
    /// allocations are left out by choice.
    pub(super) knows_all_blocks: bool,
}

/// Blocks, and the bytes in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) blocks: u64,
    pub(super) bytes: u64,
}

/// Between what and what of the leaks may be false.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FalseLeaks {
    pub(super) at_least: Amount,
    pub(super) at_most: Amount,
}

impl Evidence {
    /// Bounds for blocks of these `sizes` (number of blocks by size) that seem to live.
    pub(super) fn bounds(&self, sizes: &BTreeMap<u64, u64>) -> FalseLeaks {
        let live: u64 = sizes.values().sum();
        let most = (self.frees + self.reallocs).saturating_sub(self.reused);
        FalseLeaks {
            at_least: amount(sizes.iter(), self.fewest().min(live)),
            at_most: amount(sizes.iter().rev(), most.min(live)),
        }
    }

    /// Lost frees that cannot be explained but by a block that seems to live.
    fn fewest(&self) -> u64 {
        if !self.knows_all_blocks {
            // They may all be of other blocks.
            return 0;
        }
        let explained = self.reused + self.allocations + self.threads * CACHED_BLOCKS;
        self.frees.saturating_sub(explained)
    }
}

/// The first `blocks` of the sizes.
fn amount<'a>(sizes: impl Iterator<Item = (&'a u64, &'a u64)>, blocks: u64) -> Amount {
    let mut left = blocks;
    let bytes = sizes.fold(0_u64, |bytes, (size, count)| {
        let taken = left.min(*count);
        left -= taken;
        bytes.saturating_add(size.saturating_mul(taken))
    });
    Amount { blocks, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes() -> BTreeMap<u64, u64> {
        BTreeMap::from([(10, 3), (100, 2)])
    }

    #[test]
    fn without_losses_no_leak_is_false() {
        assert_eq!(Evidence::default().bounds(&sizes()), FalseLeaks::default());
    }

    #[test]
    fn lost_frees_bound_it_from_above_by_the_largest_blocks() {
        let evidence = Evidence {
            frees: 4,
            reallocs: 1,
            reused: 2,
            ..Evidence::default()
        };
        let bounds = evidence.bounds(&sizes());
        assert_eq!(
            bounds.at_most,
            Amount {
                blocks: 3,
                bytes: 210
            }
        );
        assert_eq!(bounds.at_least, Amount::default());
    }

    #[test]
    fn no_more_can_be_false_than_there_are() {
        let evidence = Evidence {
            frees: 1_000_000,
            knows_all_blocks: true,
            ..Evidence::default()
        };
        let bounds = evidence.bounds(&sizes());
        assert_eq!(
            bounds.at_most,
            Amount {
                blocks: 5,
                bytes: 230
            }
        );
        assert_eq!(bounds.at_least, bounds.at_most);
    }

    #[test]
    fn what_nothing_else_explains_bounds_it_from_below_by_the_smallest_blocks() {
        let evidence = Evidence {
            frees: CACHED_BLOCKS + 9,
            allocations: 4,
            reused: 1,
            threads: 1,
            knows_all_blocks: true,
            ..Evidence::default()
        };
        let at_least = evidence.bounds(&sizes()).at_least;
        assert_eq!(
            at_least,
            Amount {
                blocks: 4,
                bytes: 130
            }
        );
        let attached = Evidence {
            knows_all_blocks: false,
            ..evidence
        };
        assert_eq!(attached.bounds(&sizes()).at_least, Amount::default());
    }

    #[test]
    fn hostile_sizes_do_not_overflow() {
        let sizes = BTreeMap::from([(u64::MAX, 2)]);
        let evidence = Evidence {
            frees: 5,
            ..Evidence::default()
        };
        assert_eq!(evidence.bounds(&sizes).at_most.bytes, u64::MAX);
    }
}
