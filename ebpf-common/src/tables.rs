//! Unwind tables as they lie in maps.
//!
//! All tables share one array of 64-bit words. A table is two stretches of it: one word a block
//! of code ([`BlockWord`]), and the rows ([`crate::encoding::Row`]). A [`Table`], found by the
//! file's [`FileKey`], says where they are and which parts of the file are code.

use crate::encoding::BLOCK_SHIFT;

/// A file as the kernel knows it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// Number of the device in the kernel's own form: major number << 20 | minor number
    /// (`MKDEV` in `include/linux/kdev_t.h`).
    pub device: u64,
    /// Number of the inode.
    pub inode: u64,
}

impl FileKey {
    /// What stands for the kernel's own shared object, which is mapped at `start`: it is in no
    /// file.
    #[must_use]
    pub const fn vdso(start: u64) -> Self {
        /// Device numbers have 32 bits.
        const NO_DEVICE: u64 = u64::MAX;
        Self {
            device: NO_DEVICE,
            inode: start,
        }
    }
}

/// Part of a file that is code.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeSegment {
    /// First byte in the file.
    pub file_offset: u64,
    /// Length in bytes; 0 in an element that is not used.
    pub size: u64,
    /// Address of the first byte, counted from the table's base.
    pub rel_address: u64,
}

/// Segments that a table can have.
pub const MAX_CODE_SEGMENTS: usize = 4;

/// Where a file's unwind table lies.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Index of the word of the first block.
    pub first_block: u32,
    /// Number of blocks; 0 for a file that has no table.
    pub blocks: u32,
    /// 1 if the table answers rightly for return addresses only.
    pub call_sites_only: u64,
    /// The code.
    pub segments: [CodeSegment; MAX_CODE_SEGMENTS],
}

impl Table {
    /// The address, counted from the table's base, of the byte of code at an offset in the file.
    #[must_use]
    #[inline(always)]
    pub fn rel_pc(&self, file_offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let inside = file_offset.wrapping_sub(segment.file_offset);
            (inside < segment.size).then(|| segment.rel_address.wrapping_add(inside))
        })
    }

    /// Index of the word of the block that holds an address; `None` beyond the last block.
    #[must_use]
    #[inline(always)]
    pub fn block_word(&self, rel_pc: u64) -> Option<u32> {
        let block = rel_pc >> BLOCK_SHIFT;
        (block < self.blocks as u64).then(|| self.first_block.wrapping_add(block as u32))
    }
}

/// Which rows a block of code needs, as indices into the array of words, both inclusive: the
/// first is the last row that begins at or before the block's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockWord(u64);

impl BlockWord {
    /// The rows from `first` to `last`.
    #[must_use]
    pub const fn new(first: u32, last: u32) -> Self {
        Self((last as u64) << 32 | first as u64)
    }

    /// The word with these bits.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Index of the first row.
    #[must_use]
    pub const fn first(self) -> u32 {
        self.0 as u32
    }

    /// Index of the last row.
    #[must_use]
    pub const fn last(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table {
            first_block: 100,
            blocks: 3,
            ..Table::default()
        };
        table.segments[0] = CodeSegment {
            file_offset: 0x1010,
            size: 0x80,
            rel_address: 0x10,
        };
        table.segments[1] = CodeSegment {
            file_offset: 0x3000,
            size: 0x100,
            rel_address: 0x200,
        };
        table
    }

    #[test]
    fn offsets_in_code_have_addresses_and_others_none() {
        let table = table();
        assert_eq!(table.rel_pc(0x100f), None);
        assert_eq!(table.rel_pc(0x1010), Some(0x10));
        assert_eq!(table.rel_pc(0x108f), Some(0x8f));
        assert_eq!(table.rel_pc(0x1090), None);
        assert_eq!(table.rel_pc(0x3001), Some(0x201));
        assert_eq!(table.rel_pc(u64::MAX), None);
        assert_eq!(Table::default().rel_pc(0), None);
    }

    #[test]
    fn addresses_have_blocks_up_to_the_last() {
        let table = table();
        assert_eq!(table.block_word(0), Some(100));
        assert_eq!(table.block_word(0x2ff), Some(102));
        assert_eq!(table.block_word(0x300), None);
        assert_eq!(table.block_word(u64::MAX), None);
    }

    #[test]
    fn a_block_word_keeps_both_indices() {
        let word = BlockWord::new(7, u32::MAX);
        assert_eq!((word.first(), word.last()), (7, u32::MAX));
        assert_eq!(BlockWord::from_bits(word.bits()), word);
    }
}
