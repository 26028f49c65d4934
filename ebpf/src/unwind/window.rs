//! A piece of the target's stack, copied at once.
//!
//! A copy of 2 KiB costs little more than one of 8 bytes (measured on Linux 6.18: 178 and 94 ns),
//! and a walk reads a slot or two of each frame. So the first copy is as large as the walks of late
//! were long, and further ones are of 2 KiB.

use crate::kernel::Kernel;

/// Words in a window.
pub const WINDOW_WORDS: usize = 256;
const WINDOW_BYTES: u64 = (WINDOW_WORDS * size_of::<u64>()) as u64;

/// Bytes of the smallest first copy, and steps of its size.
const STEP: u64 = 128;

/// Walks shorter than the first copy make it shorter by one part in so many of the difference.
const INERTIA: u64 = 16;

/// How far below a wanted word a window begins: a saved rbp lies just below the return address,
/// and may be wanted after it.
const SLACK: u64 = 64;
const PAGE: u64 = 4096;

/// A copy of the words from `base` on, which is a multiple of 8, as are the lengths.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Window {
    base: u64,
    /// Bytes that were copied.
    length: u64,
    /// How long walks were of late, in bytes.
    reach: u64,
    words: [u64; WINDOW_WORDS],
}

impl Window {
    /// A window that was never filled.
    #[cfg(test)]
    pub(crate) const NEW: Self = Self {
        base: 0,
        length: 0,
        reach: 0,
        words: [0; WINDOW_WORDS],
    };

    /// Copies anew for a walk that begins at `address`, and returns the word there.
    #[inline(always)]
    pub fn fill<K: Kernel>(&mut self, kernel: &K, address: u64) -> Option<u64> {
        let is_aligned = address.is_multiple_of(size_of::<u64>() as u64);
        if is_aligned && self.copy(kernel, address, first_length(self.reach)) {
            return Some(self.words[0]);
        }
        self.length = 0;
        kernel.read_user(address)
    }

    /// Learns how far a walk has come that began at `start`, so that the next first copy holds it.
    #[inline(always)]
    pub fn learn(&mut self, start: u64, end: u64) {
        let reach = end.wrapping_sub(start);
        let reach = if reach < WINDOW_BYTES {
            reach
        } else {
            WINDOW_BYTES
        };
        self.reach = match self.reach > reach {
            true => self.reach - (self.reach - reach) / INERTIA,
            false => reach,
        };
    }

    /// Copies `length` bytes; false if not all of them can be read.
    #[inline(always)]
    fn copy<K: Kernel>(&mut self, kernel: &K, base: u64, length: u64) -> bool {
        self.base = base;
        self.length = length;
        kernel.read_user_words(base, &mut self.words, length)
    }

    /// The word at an address of the stack.
    #[inline(always)]
    pub fn read<K: Kernel>(&mut self, kernel: &K, address: u64) -> Option<u64> {
        if !address.is_multiple_of(size_of::<u64>() as u64) {
            return kernel.read_user(address);
        }
        self.find(kernel, address, Self::word)
    }

    /// The two words at an address of the stack that is a multiple of 16.
    #[inline(always)]
    pub fn read_two<K: Kernel>(&mut self, kernel: &K, address: u64) -> Option<[u64; 2]> {
        self.find(kernel, address, Self::two_words)
    }

    /// What `look` finds at an address, in the window or in one that is copied for it.
    #[inline(always)]
    fn find<K: Kernel, T>(
        &mut self,
        kernel: &K,
        address: u64,
        look: impl Fn(&Self, u64) -> Option<T>,
    ) -> Option<T> {
        if let Some(found) = look(self, address) {
            return Some(found);
        }
        if !self.move_to(kernel, address) {
            return None;
        }
        look(self, address)
    }

    /// Copies a whole window that holds the word at `address`, and the next if both are in the same
    /// 16 bytes; false if that word cannot be read.
    #[inline(always)]
    fn move_to<K: Kernel>(&mut self, kernel: &K, address: u64) -> bool {
        let is_readable = self.copy(kernel, address.wrapping_sub(SLACK), WINDOW_BYTES)
            || self.copy(kernel, within_page(address), WINDOW_BYTES);
        if !is_readable {
            self.length = 0;
        }
        is_readable
    }

    /// The word at an address that is a multiple of 8, if it is in the window.
    #[inline(always)]
    pub const fn word(&self, address: u64) -> Option<u64> {
        let distance = address.wrapping_sub(self.base);
        if distance >= self.length {
            return None;
        }
        Some(self.words[(distance / 8) as usize % WINDOW_WORDS])
    }

    #[inline(always)]
    const fn two_words(&self, address: u64) -> Option<[u64; 2]> {
        let distance = address.wrapping_sub(self.base);
        // The first comparison keeps the sum small.
        if distance >= WINDOW_BYTES || distance + 8 >= self.length {
            return None;
        }
        let index = (distance / 8) as usize;
        let words = [
            self.words[index % WINDOW_WORDS],
            self.words[(index + 1) % WINDOW_WORDS],
        ];
        Some(words)
    }
}

/// Bytes of the first copy for a walk of `reach` bytes: a multiple of [`STEP`]. The last return address
/// lies just below where a walk ends, and its frame may have more to read.
const fn first_length(reach: u64) -> u64 {
    let length = (reach / STEP + 1) * STEP;
    if length < WINDOW_BYTES {
        length
    } else {
        WINDOW_BYTES
    }
}

/// Beginning of a window that holds the word at `address` and lies within its page, so that it
/// can be read if the word can.
const fn within_page(address: u64) -> u64 {
    let last = (address | (PAGE - 1))
        .wrapping_add(1)
        .wrapping_sub(WINDOW_BYTES);
    if address < last { address } else { last }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeKernel;

    #[test]
    fn words_are_read_once_for_many() {
        let kernel = FakeKernel::recording();
        (0..0x200).for_each(|index| kernel.write(0x10000 + index * 8, index));
        let mut window = Window::NEW;
        window.learn(0x10000, 0x20000);
        assert_eq!(window.fill(&kernel, 0x10000), Some(0));
        let before = kernel.reads();
        assert_eq!(window.read(&kernel, 0x10008), Some(1));
        assert_eq!(window.read(&kernel, 0x107f8), Some(0xff));
        assert_eq!(kernel.reads(), before);
        assert_eq!(window.read(&kernel, 0x10800), Some(0x100));
        assert_eq!(kernel.reads(), before + 1);
        assert_eq!(window.read(&kernel, 0x107c0), Some(0xf8), "just below");
        assert_eq!(kernel.reads(), before + 1);
    }

    #[test]
    fn the_first_copy_is_as_long_as_walks_of_late() {
        let kernel = FakeKernel::recording();
        (0..0x200).for_each(|index| kernel.write(0x10000 + index * 8, index));
        let mut window = Window::NEW;
        let mut lengths = [0; 4];
        for (length, reach) in lengths.iter_mut().zip([0x88, 0x400, 0x10_0000, 0]) {
            window.learn(0x10000, 0x10000 + reach);
            window.fill(&kernel, 0x10000);
            *length = window.length;
        }
        assert_eq!(lengths, [0x100, 0x480, WINDOW_BYTES, WINDOW_BYTES]);
        for _ in 0..200 {
            window.learn(0x10000, 0x10010);
        }
        window.fill(&kernel, 0x10000);
        assert_eq!(window.length, STEP, "after many short ones");
    }

    #[test]
    fn a_walk_that_begins_between_slots_reads_slots_all_the_same() {
        let kernel = FakeKernel::recording();
        (0..0x200).for_each(|index| kernel.write(0x1000 + index * 8, index));
        kernel.write(0x1804, 77);
        let mut window = Window::NEW;
        assert_eq!(window.fill(&kernel, 0x1804), Some(77));
        assert_eq!(window.read(&kernel, 0x1810), Some(0x102));
    }

    #[test]
    fn the_last_words_of_memory_are_readable() {
        let kernel = FakeKernel::recording();
        (0..0x200).for_each(|index| kernel.write(0x1000 + index * 8, index));
        let mut window = Window::NEW;
        for address in [0x1ff8, 0x1000, 0x1ff0, 0x17f8, 0x1800] {
            let expected = Some((address - 0x1000) / 8);
            assert_eq!(window.read(&kernel, address), expected, "{address:#x}");
        }
        assert_eq!(window.read(&kernel, 0x2000), None);
        assert_eq!(window.read(&kernel, 0xff8), None);
        assert_eq!(window.read(&kernel, u64::MAX - 7), None);
    }

    #[test]
    fn two_words_are_read_wherever_both_can_be() {
        let kernel = FakeKernel::recording();
        (0..0x200).for_each(|index| kernel.write(0x1000 + index * 8, index));
        let mut window = Window::NEW;
        window.fill(&kernel, 0x1008);
        for address in (0x1000..0x2000).step_by(16).chain([0x1000, 0x1ff0]) {
            let first = (address - 0x1000) / 8;
            assert_eq!(window.read_two(&kernel, address), Some([first, first + 1]));
        }
        for address in [0xff0, 0x2000, u64::MAX - 15] {
            assert_eq!(window.read_two(&kernel, address), None, "{address:#x}");
        }
    }

    #[test]
    fn a_word_across_two_slots_is_no_slot() {
        let kernel = FakeKernel::recording();
        (0..0x200).for_each(|index| kernel.write(0x1000 + index * 8, index));
        kernel.write(0x1804, 77);
        let mut window = Window::NEW;
        assert_eq!(window.read(&kernel, 0x1804), Some(77));
    }
}
