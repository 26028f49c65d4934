//! The target's live blocks: which allocation info each pointer belongs to.
//!
//! Pure. A block that is being reallocated is set aside under its thread until the result is
//! known: its address may be handed out to another thread meanwhile, and a failed realloc brings
//! it back to life.

use htrace_trace_format::AllocationInfoIndex;
use rustc_hash::FxHashMap;

/// Live blocks. At most 58 bytes a block, while the table grows (two tables of 16-byte entries
/// and a control byte each, the old one 7/8 full); between 19 and 39 otherwise.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    live: FxHashMap<u64, AllocationInfoIndex>,
    /// By thread: the old block of a realloc that has begun.
    set_aside: FxHashMap<u32, (u64, Option<AllocationInfoIndex>)>,
    last_allocated: Option<u64>,
    /// Counts as the end of a recording reports them.
    pub(super) counts: Counts,
}

/// Counts over a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Successful allocations.
    pub allocations: u64,
    /// Frees of the block that was allocated by the event right before.
    pub temporary: u64,
    /// Frees of blocks that were not known: allocated before the recording, left out, or lost.
    pub unknown_frees: u64,
    /// Blocks that were handed out again without a free in between: their free was not seen.
    pub unseen_frees: u64,
}

impl Blocks {
    /// A new block. Returns the info of a block that must have been freed unseen.
    pub(super) fn allocate(
        &mut self,
        pointer: u64,
        info: AllocationInfoIndex,
    ) -> Option<AllocationInfoIndex> {
        self.counts.allocations += 1;
        self.last_allocated = Some(pointer);
        let replaced = self.live.insert(pointer, info);
        self.counts.unseen_frees += u64::from(replaced.is_some());
        replaced
    }

    /// A new block that is left out. Returns the info of a block that must have been freed unseen.
    pub(super) fn leave_out(&mut self, pointer: u64) -> Option<AllocationInfoIndex> {
        let replaced = self.live.remove(&pointer);
        self.counts.unseen_frees += u64::from(replaced.is_some());
        replaced
    }

    /// A block is freed. Returns its info if it is known.
    pub(super) fn free(&mut self, pointer: u64) -> Option<AllocationInfoIndex> {
        let was_last = self.last_allocated.take() == Some(pointer);
        let info = self.live.remove(&pointer);
        match info {
            Some(_) => self.counts.temporary += u64::from(was_last),
            None => self.counts.unknown_frees += 1,
        }
        info
    }

    /// A thread begins to reallocate a block.
    pub(super) fn begin_realloc(&mut self, thread: u32, pointer: u64) {
        let info = self.live.remove(&pointer);
        if let Some((old, Some(info))) = self.set_aside.insert(thread, (pointer, info)) {
            // The end of the thread's last realloc was lost; that it failed is the guess that
            // loses no block.
            self.live.entry(old).or_insert(info);
        }
    }

    /// The block that a thread has reallocated is gone. Returns its info if it is known.
    pub(super) fn finish_realloc(
        &mut self,
        thread: u32,
        pointer: u64,
    ) -> Option<AllocationInfoIndex> {
        match self.set_aside.remove(&thread) {
            Some((old, info)) if old == pointer => {
                let was_last = self.last_allocated.take() == Some(pointer);
                self.counts.temporary += u64::from(was_last && info.is_some());
                self.counts.unknown_frees += u64::from(info.is_none());
                info
            }
            other => {
                // The beginning was lost.
                if let Some((old, Some(info))) = other {
                    self.live.entry(old).or_insert(info);
                }
                self.free(pointer)
            }
        }
    }

    /// The block that a thread tried to reallocate lives on.
    pub(super) fn fail_realloc(&mut self, thread: u32) {
        if let Some((old, Some(info))) = self.set_aside.remove(&thread) {
            self.live.insert(old, info);
        }
    }

    /// Forgets all blocks; returns their infos.
    pub(super) fn forget_all(&mut self) -> impl Iterator<Item = AllocationInfoIndex> {
        self.last_allocated = None;
        let aside = std::mem::take(&mut self.set_aside)
            .into_values()
            .filter_map(|(_, info)| info);
        std::mem::take(&mut self.live).into_values().chain(aside)
    }

    /// Infos of the blocks that live.
    pub(super) fn live_infos(&self) -> impl Iterator<Item = AllocationInfoIndex> {
        let aside = self.set_aside.values().filter_map(|(_, info)| *info);
        self.live.values().copied().chain(aside)
    }

    /// Blocks that live.
    pub(super) fn live(&self) -> usize {
        self.live.len()
            + self
                .set_aside
                .values()
                .filter(|(_, info)| info.is_some())
                .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(number: u32) -> AllocationInfoIndex {
        AllocationInfoIndex::from_file(number)
    }

    #[test]
    fn a_block_lives_from_allocation_to_free() {
        let mut blocks = Blocks::default();
        assert_eq!(blocks.allocate(0x10, info(1)), None);
        assert_eq!(blocks.live(), 1);
        assert_eq!(blocks.free(0x10), Some(info(1)));
        assert_eq!(blocks.free(0x10), None);
        let counts = Counts {
            allocations: 1,
            temporary: 1,
            unknown_frees: 1,
            unseen_frees: 0,
        };
        assert_eq!((blocks.live(), blocks.counts), (0, counts));
    }

    #[test]
    fn only_a_free_right_behind_its_allocation_is_temporary() {
        let mut blocks = Blocks::default();
        blocks.allocate(0x10, info(1));
        blocks.allocate(0x20, info(1));
        blocks.free(0x10);
        blocks.free(0x20);
        assert_eq!(blocks.counts.temporary, 0);
    }

    #[test]
    fn an_address_handed_out_twice_was_freed_unseen() {
        let mut blocks = Blocks::default();
        blocks.allocate(0x10, info(1));
        assert_eq!(blocks.allocate(0x10, info(2)), Some(info(1)));
        assert_eq!((blocks.live(), blocks.counts.unseen_frees), (1, 1));
    }

    #[test]
    fn a_block_that_is_left_out_is_not_kept_but_tells_that_another_is_gone() {
        let mut blocks = Blocks::default();
        assert_eq!(blocks.leave_out(0x10), None);
        assert_eq!(blocks.free(0x10), None);
        blocks.allocate(0x10, info(1));
        assert_eq!(blocks.leave_out(0x10), Some(info(1)));
        let counts = Counts {
            allocations: 1,
            temporary: 0,
            unknown_frees: 1,
            unseen_frees: 1,
        };
        assert_eq!((blocks.live(), blocks.counts), (0, counts));
    }

    #[test]
    fn another_thread_may_get_the_address_of_a_block_that_is_being_moved() {
        let mut blocks = Blocks::default();
        blocks.allocate(0x10, info(1));
        blocks.begin_realloc(7, 0x10);
        assert_eq!(blocks.allocate(0x10, info(2)), None);
        assert_eq!(blocks.finish_realloc(7, 0x10), Some(info(1)));
        assert_eq!(blocks.free(0x10), Some(info(2)));
    }

    /// Bytes of the table: entries of 16 bytes, of which an eighth stays free, a control byte each.
    fn table_bytes(blocks: &Blocks) -> usize {
        let entry = size_of::<(u64, AllocationInfoIndex)>() + 1;
        (blocks.live.capacity() * 8).div_ceil(7) * entry
    }

    #[test]
    fn a_live_block_takes_less_than_64_bytes_even_while_the_table_grows() {
        const ENOUGH_TO_COUNT: usize = 1_000;
        let mut blocks = Blocks::default();
        let (mut before, mut worst, mut growths) = (0, 0, 0);
        for number in 1..=1_000_000 {
            blocks.allocate(number as u64 * 16, info(number as u32));
            let now = table_bytes(&blocks);
            // The old table is there until everything has moved.
            let most = if now == before { now } else { now + before };
            growths += usize::from(now != before);
            if number >= ENOUGH_TO_COUNT {
                worst = worst.max(most / number);
            }
            before = now;
        }
        assert!(growths > 10, "{growths}");
        assert!((20..64).contains(&worst), "{worst} bytes a block");
    }

    #[test]
    fn a_failed_realloc_brings_the_block_back() {
        let mut blocks = Blocks::default();
        blocks.allocate(0x10, info(1));
        blocks.begin_realloc(7, 0x10);
        assert_eq!(blocks.live(), 1);
        blocks.fail_realloc(7);
        assert_eq!(blocks.free(0x10), Some(info(1)));
        assert_eq!(blocks.counts.temporary, 1);
    }

    #[test]
    fn a_lost_beginning_or_end_loses_no_block() {
        let mut blocks = Blocks::default();
        blocks.allocate(0x10, info(1));
        assert_eq!(blocks.finish_realloc(7, 0x10), Some(info(1)));
        blocks.allocate(0x20, info(2));
        blocks.begin_realloc(7, 0x20);
        blocks.begin_realloc(7, 0x30);
        assert_eq!(blocks.free(0x20), Some(info(2)));
    }

    #[test]
    fn forgetting_includes_what_is_set_aside() {
        let mut blocks = Blocks::default();
        blocks.allocate(0x10, info(1));
        blocks.allocate(0x20, info(2));
        blocks.begin_realloc(7, 0x20);
        assert_eq!(blocks.forget_all().count(), 2);
        assert_eq!(blocks.live(), 0);
    }
}
