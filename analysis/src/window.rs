//! A time window: the profile of what happened between two times, as if the recorder had been
//! attached at the first and detached at the second.
//!
//! Blocks of one allocation info cannot be told apart in a file, so a free within the window is
//! taken to free a block of the window as long as there is one. Times are exact to the distance of
//! two time stamps: in files of htrace-bpf 10 ms where something changes, half a second at most where
//! a program repeats itself.

use htrace_trace_format::AllocationInfoIndex;

/// Two times in milliseconds since the start; the second is not part of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Start.
    pub from: i64,
    /// End.
    pub to: i64,
}

impl Window {
    /// Whether `now` lies inside.
    #[must_use]
    pub fn contains(&self, now: i64) -> bool {
        (self.from..self.to).contains(&now)
    }

    /// How much of a run of `runtime` milliseconds lies inside.
    #[must_use]
    pub fn length_within(&self, runtime: i64) -> i64 {
        self.to.min(runtime).saturating_sub(self.from).max(0)
    }
}

/// Blocks allocated within the window and still live, by info.
#[derive(Clone, Debug, Default)]
pub struct WindowBlocks {
    live: Vec<u64>,
    freed_older: u64,
}

impl WindowBlocks {
    /// Takes an event of the window. `false` when it frees a block from before the window, which
    /// then counts for nothing but [`WindowBlocks::freed_older`].
    pub fn event(&mut self, index: AllocationInfoIndex, is_free: bool) -> bool {
        let position = index.position();
        if is_free {
            return match self.live.get_mut(position) {
                Some(live) if *live > 0 => {
                    *live -= 1;
                    true
                }
                _ => {
                    self.freed_older += 1;
                    false
                }
            };
        }
        if position >= self.live.len() {
            self.live.resize(position + 1, 0);
        }
        self.live[position] += 1;
        true
    }

    /// Frees within the window of blocks from before it.
    #[must_use]
    pub fn freed_older(&self) -> u64 {
        self.freed_older
    }
}
