//! Counting events: the hot path of reading a trace.
//!
//! A backtrace's peak is its share of the live bytes at the moment when the whole process had most
//! of them. That moment is known only at the end, and copying all backtraces at each new maximum
//! would be quadratic. So each new maximum only raises a counter, and a backtrace catches up (its
//! peak becomes its live bytes) the next time it changes, or at the end.

use htrace_trace_format::{AllocationInfoIndex, TraceIndex};
use rustc_hash::FxHashMap;

use crate::cost::Costs;

/// A distinct pair of size and backtrace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Bytes that were asked for.
    pub size: u64,
    /// Position of the backtrace in the list of entries.
    pub entry: u32,
}

/// The costs of one distinct backtrace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The backtrace.
    pub trace: TraceIndex,
    /// Its costs.
    pub costs: Costs,
    /// Number of the maximum up to which `costs.peak` is right.
    seen_peak: u64,
}

impl Entry {
    /// An entry for `trace` with given costs.
    #[must_use]
    pub fn new(trace: TraceIndex, costs: Costs) -> Self {
        Self {
            trace,
            costs,
            seen_peak: 0,
        }
    }
}

/// The state behind the counting of events.
#[derive(Debug, Default)]
pub struct Accounting {
    infos: Vec<Info>,
    entries: Vec<Entry>,
    entry_of_trace: FxHashMap<TraceIndex, u32>,
    total: Costs,
    /// Number of maxima so far.
    peaks: u64,
    /// The info (or, in files of version 0, the address) of the event before, if that was an
    /// allocation; otherwise 0. That 0 is also a valid info is heaptrack's convention, on which
    /// its figures for temporary allocations depend.
    last: u64,
    peak_policy: PeakPolicy,
    peak_time: i64,
}

/// When backtraces take over their live bytes as peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeakPolicy {
    /// At every new maximum.
    #[default]
    EveryMaximum,
    /// Only at a maximum of exactly these bytes at exactly this time, the one that an earlier pass
    /// found. Differs from the above only for malformed files.
    Only {
        /// Live bytes.
        bytes: i64,
        /// Time stamp in milliseconds.
        time: i64,
    },
}

impl Accounting {
    /// Appends an info.
    pub fn push_info(&mut self, size: u64, trace: TraceIndex) {
        let next = self.entries.len() as u32;
        let entry = *self.entry_of_trace.entry(trace).or_insert(next);
        if entry == next {
            self.entries.push(Entry::new(trace, Costs::default()));
        }
        self.infos.push(Info { size, entry });
    }

    /// The infos so far.
    #[must_use]
    pub fn infos(&self) -> &[Info] {
        &self.infos
    }

    /// The backtraces so far, in order of first appearance.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Costs of the whole trace so far.
    #[must_use]
    pub fn total(&self) -> Costs {
        self.total
    }

    /// Time of the maximum.
    #[must_use]
    pub fn peak_time(&self) -> i64 {
        self.peak_time
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.infos.len() * size_of::<Info>() + self.entries.len() * (size_of::<Entry>() + 16)
    }

    /// Sets the totals back to zero, as heaptrack does when it finds that a trace was attached.
    pub fn reset_total(&mut self) {
        self.total = Costs::default();
    }

    /// Forgets all events and keeps the tables, for another pass over the same file.
    pub fn restart(&mut self, peak_policy: PeakPolicy) {
        for entry in &mut self.entries {
            *entry = Entry::new(entry.trace, Costs::default());
        }
        self.total = Costs::default();
        (self.peaks, self.last, self.peak_time) = (0, 0, 0);
        self.peak_policy = peak_policy;
    }

    /// Counts an event at time `now`; `false`, and nothing counted, when there is no such info.
    #[inline]
    pub fn event(&mut self, index: AllocationInfoIndex, is_free: bool, now: i64) -> bool {
        self.event_as(index, u64::from(index.get()), is_free, now)
    }

    /// As [`Accounting::event`] where `identity`, not the info, tells blocks apart.
    ///
    /// Free of branches that depend on the tables: those live in far memory, and waiting for one
    /// event must not keep the processor from fetching for the next.
    #[inline]
    pub fn event_as(
        &mut self,
        index: AllocationInfoIndex,
        identity: u64,
        is_free: bool,
        now: i64,
    ) -> bool {
        let Some(info) = self.infos.get(index.position()) else {
            return false;
        };
        let Some(entry) = self.entries.get_mut(info.entry as usize) else {
            return false;
        };
        let size = info.size.cast_signed();
        let (change, allocation) = if is_free {
            (size.wrapping_neg(), 0)
        } else {
            (size, 1)
        };
        let temporary = i64::from(is_free & (self.last == identity));
        self.last = if is_free { 0 } else { identity };
        catch_up(entry, self.peaks);
        entry.costs.leaked = entry.costs.leaked.wrapping_add(change);
        entry.costs.allocations += allocation;
        entry.costs.temporary += temporary;
        self.total.leaked = self.total.leaked.wrapping_add(change);
        self.total.allocations += allocation;
        self.total.temporary += temporary;
        if self.total.leaked > self.total.peak && !is_free {
            self.new_maximum(now);
        }
        true
    }

    #[inline]
    fn new_maximum(&mut self, now: i64) {
        self.total.peak = self.total.leaked;
        self.peak_time = now;
        let taken = match self.peak_policy {
            PeakPolicy::EveryMaximum => true,
            PeakPolicy::Only { bytes, time } => bytes == self.total.peak && time == now,
        };
        self.peaks += u64::from(taken);
    }

    /// Something happened that is not counted, so that the next free is not temporary.
    pub fn interrupt(&mut self) {
        self.last = 0;
    }

    /// Ends counting: all peaks are right afterwards.
    pub fn finish(&mut self) {
        for entry in &mut self.entries {
            catch_up(entry, self.peaks);
        }
    }

    /// Takes the result apart: entries, infos and totals.
    #[must_use]
    pub fn into_parts(mut self) -> (Vec<Entry>, Vec<Info>, Costs) {
        self.finish();
        (self.entries, self.infos, self.total)
    }
}

#[inline]
fn catch_up(entry: &mut Entry, peaks: u64) {
    let Costs { leaked, peak, .. } = entry.costs;
    entry.costs.peak = if entry.seen_peak == peaks {
        peak
    } else {
        leaked
    };
    entry.seen_peak = peaks;
}
