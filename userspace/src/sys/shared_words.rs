//! Words of memory that are shared with the kernel: the elements of an array map.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

const WORD: usize = size_of::<AtomicU64>();

/// The elements of an array map that was made with `BPF_F_MMAPABLE` (Linux 5.5) and has elements of
/// 8 bytes.
#[derive(Debug)]
pub struct SharedWords {
    words: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the memory is valid in all threads until it is unmapped, and accessed atomically only.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps the first `count` elements.
    ///
    /// # Errors
    /// What the kernel returns; `EINVAL` for no elements, or more than the map has.
    pub fn map(map: BorrowedFd<'_>, count: usize) -> io::Result<Self> {
        let length = count.checked_mul(WORD).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let address = unsafe {
            let (null, fd) = (std::ptr::null_mut(), map.as_raw_fd());
            libc::mmap(null, length, protection, libc::MAP_SHARED, fd, 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(address.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { words, count })
    }

    /// Number of words.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// True without words.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Stores words from `first` on; false if there are not so many.
    #[must_use]
    pub fn store(&self, first: usize, values: impl ExactSizeIterator<Item = u64>) -> bool {
        let end = first.checked_add(values.len());
        let Some(words) = end.and_then(|end| self.words().get(first..end)) else {
            return false;
        };
        for (word, value) in words.iter().zip(values) {
            word.store(value, Ordering::Release);
        }
        true
    }

    /// A word; 0 if there are not so many.
    #[must_use]
    pub fn get(&self, index: usize) -> u64 {
        let word = self.words().get(index);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Raises a word to `value` if it is lower.
    pub fn raise(&self, index: usize, value: u64) {
        if let Some(word) = self.words().get(index) {
            word.fetch_max(value, Ordering::Release);
        }
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds so many words, is aligned to a page, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, and nobody uses it any more.
        let _unmapped = unsafe { libc::munmap(self.words.as_ptr().cast(), self.count * WORD) };
    }
}
