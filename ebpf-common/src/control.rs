//! Settings that the recorder writes and the BPF programs read, in a map of one element.
//!
//! Only the recorder writes them: what programs find out lies in maps of their own. The layout is
//! the same on both sides because both are compiled for little-endian 64-bit machines from this
//! file; all fields are plain integers without padding.

/// State of a recording as the BPF programs see it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// One of [`Control::ARMING`], [`Control::WAITING`], [`Control::RECORDING`],
    /// [`Control::PAUSED`], [`Control::STOPPED`].
    pub phase: u32,
    /// Largest number of frames of a stack; at most [`MAX_FRAMES`] count.
    pub max_frames: u32,
    /// Fill level of the ring buffer in bytes at which the drain is woken before its next poll.
    pub wake_at: u64,
    /// Length in bytes of the executable segment that holds the probed allocator. A call whose
    /// return address is farther than this from the entered function was not made by the
    /// allocator itself.
    pub allocator_text: u64,
    /// For how many nanoseconds at most the target waits for the recorder to look at new modules.
    pub wait_ns: u64,
    /// Allocations of fewer bytes are left out.
    pub min_size: u64,
    /// Mean distance in bytes of the marks by which allocations are sampled; 0 for no sampling.
    pub sample_bytes: u64,
    /// How many threads may wait so at once: each keeps a CPU, and the recorder needs one.
    pub max_waiting: u64,
    /// For how many nanoseconds at most a thread waits that gives its CPU away.
    pub sleep_ns: u64,
    /// Fill level of the ring buffer in bytes from which on threads wait for room. Above the
    /// size of the ring buffer: they never do.
    pub pause_at: u64,
    /// Fill level at which they go on.
    pub resume_at: u64,
    /// For how many nanoseconds at most a thread waits for room.
    pub max_pause_ns: u64,
    /// Not 0 to leave out the allocations of all threads but the chosen.
    pub only_threads: u64,
    /// Not 0 to follow frame pointers through code without unwind data.
    pub guess_frame_pointers: u64,
}

impl Control {
    /// Probes are being attached: calls are followed, nothing is recorded. A call that begins in
    /// this phase and returns in the next is left out, so that a recording starts at one instant
    /// for entries and returns alike.
    pub const ARMING: u32 = 0;
    /// Everything is recorded.
    pub const RECORDING: u32 = 1;
    /// Only ends of blocks are recorded: those of blocks from before the pause must not seem leaked.
    pub const PAUSED: u32 = 3;
    /// As [`Control::PAUSED`] until the awaited function is called, then as [`Control::RECORDING`].
    pub const WAITING: u32 = 4;
    /// Probes are being taken away: nothing more is recorded.
    pub const STOPPED: u32 = 2;

    /// What holds now that the awaited function was called so often.
    #[must_use]
    pub const fn after(mut self, awaited_calls: u64) -> Self {
        if self.phase == Self::WAITING {
            self.phase = match awaited_calls {
                0 => Self::PAUSED,
                _ => Self::RECORDING,
            };
        }
        self
    }

    /// True if the recording has begun and not ended, also while it pauses.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        matches!(self.phase, Self::RECORDING | Self::PAUSED)
    }
}

/// How many threads can be chosen, by names and by ids each.
pub const MAX_CHOSEN_THREADS: u32 = 256;

/// Largest number of frames in a stack record, leaf included.
pub const MAX_FRAMES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_the_wait_and_nothing_else() {
        let control = |phase| Control {
            phase,
            ..Control::default()
        };
        let waiting = control(Control::WAITING);
        assert_eq!(waiting.after(0).phase, Control::PAUSED);
        assert_eq!(waiting.after(2).phase, Control::RECORDING);
        for phase in [Control::ARMING, Control::PAUSED, Control::STOPPED] {
            assert_eq!(control(phase).after(1).phase, phase);
        }
    }
}
