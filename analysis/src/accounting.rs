//! Counting events, one by one where somebody looks at each, else in bulk ([`crate::tally`]).
//!
//! A backtrace's peak is its share of the live bytes at the moment when the whole process had most
//! of them. That moment is known only at the end, and copying all backtraces at each new maximum
//! would be quadratic. So each new maximum only raises a counter, and a backtrace catches up (its
//! peak becomes its live bytes) the next time it changes, or at the end.

use htrace_trace_format::{AllocationInfoIndex, Event, TraceIndex};
use rustc_hash::FxHashMap;

use crate::cost::Costs;
use crate::tally::{Running, Tally};

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
    entry_of_trace: EntryOfTrace,
    tally: Tally,
    running: Running,
    /// Number of maxima so far.
    peaks: u64,
    peak_policy: PeakPolicy,
}

/// Which backtrace has which entry: a table for the nodes that the file has defined, and a map for
/// what a damaged file names besides.
#[derive(Debug, Default)]
struct EntryOfTrace {
    /// Positions plus one; 0 for none.
    defined: Vec<u32>,
    others: FxHashMap<TraceIndex, u32>,
}

impl EntryOfTrace {
    /// The entry of `trace`, which is `next` if there was none. `nodes` are defined so far.
    fn get_or_insert(&mut self, trace: TraceIndex, nodes: usize, next: u32) -> u32 {
        let position = trace.get() as usize;
        if position > nodes {
            return *self.others.entry(trace).or_insert(next);
        }
        if position >= self.defined.len() {
            self.defined.resize((nodes + 1).next_power_of_two(), 0);
        }
        let Some(slot) = self.defined.get_mut(position) else {
            return next;
        };
        if *slot == 0 {
            let known = (!self.others.is_empty()).then(|| self.others.get(&trace).copied());
            *slot = known.flatten().unwrap_or(next) + 1;
        }
        *slot - 1
    }
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
    /// Appends an info; `nodes` of the trace tree are defined so far.
    pub fn push_info(&mut self, size: u64, trace: TraceIndex, nodes: usize) {
        let next = self.entries.len() as u32;
        let entry = self.entry_of_trace.get_or_insert(trace, nodes, next);
        if entry == next {
            self.entries.push(Entry::new(trace, Costs::default()));
        }
        self.infos.push(Info { size, entry });
        self.tally.push_info(size);
    }

    /// The infos so far.
    #[must_use]
    pub fn infos(&self) -> &[Info] {
        &self.infos
    }

    /// The backtraces so far, in order of first appearance. Events that were counted in bulk are
    /// missing until [`Accounting::finish`].
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Costs of the whole trace so far.
    #[must_use]
    pub fn total(&self) -> Costs {
        self.running.total
    }

    /// Time of the maximum.
    #[must_use]
    pub fn peak_time(&self) -> i64 {
        self.running.peak_time
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.infos.len() * size_of::<Info>()
            + self.entries.len() * size_of::<Entry>()
            + self.entry_of_trace.defined.len() * size_of::<u32>()
            + self.entry_of_trace.others.len() * 16
            + self.tally.memory()
    }

    /// Sets the totals back to zero, as heaptrack does when it finds that a trace was attached.
    pub fn reset_total(&mut self) {
        self.running.total = Costs::default();
    }

    /// Forgets all events and keeps the tables, for another pass over the same file.
    pub fn restart(&mut self, peak_policy: PeakPolicy) {
        for entry in &mut self.entries {
            *entry = Entry::new(entry.trace, Costs::default());
        }
        self.tally.clear();
        self.running = Running::default();
        self.peaks = 0;
        self.peak_policy = peak_policy;
    }

    /// Whether events may be counted in bulk.
    #[must_use]
    pub fn takes_bulk(&self) -> bool {
        self.peak_policy == PeakPolicy::EveryMaximum
    }

    /// Counts `events` in bulk at time `now`. They name known infos only, and until
    /// [`Accounting::finish`] nobody asks for more than the totals.
    #[inline]
    pub fn bulk(&mut self, events: &[Event], now: i64) {
        if self.tally.is_full() {
            self.settle();
        }
        self.tally.add(&self.infos, events, &mut self.running, now);
    }

    #[cfg(test)]
    pub(crate) fn tally_mut(&mut self) -> &mut Tally {
        &mut self.tally
    }

    #[cold]
    fn settle(&mut self) {
        for entry in &mut self.entries {
            catch_up(entry, self.peaks);
        }
        self.tally.settle(&self.infos, &mut self.entries);
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
        if !self.tally.is_settled() {
            self.settle();
        }
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
        let temporary = i64::from(is_free & (self.running.last == identity));
        self.running.last = if is_free { 0 } else { identity };
        catch_up(entry, self.peaks);
        entry.costs.leaked = entry.costs.leaked.wrapping_add(change);
        entry.costs.allocations += allocation;
        entry.costs.temporary += temporary;
        self.running.total.leaked = self.running.total.leaked.wrapping_add(change);
        self.running.total.allocations += allocation;
        self.running.total.temporary += temporary;
        if self.running.total.leaked > self.running.total.peak && !is_free {
            self.new_maximum(now);
        }
        true
    }

    #[inline]
    fn new_maximum(&mut self, now: i64) {
        self.running.total.peak = self.running.total.leaked;
        self.running.peak_time = now;
        let taken = match self.peak_policy {
            PeakPolicy::EveryMaximum => true,
            PeakPolicy::Only { bytes, time } => bytes == self.running.total.peak && time == now,
        };
        self.peaks += u64::from(taken);
    }

    /// Something happened that is not counted, so that the next free is not temporary.
    pub fn interrupt(&mut self) {
        self.running.last = 0;
    }

    /// Ends counting: all peaks are right afterwards.
    pub fn finish(&mut self) {
        self.settle();
    }

    /// Takes the result apart: entries, infos and totals.
    #[must_use]
    pub fn into_parts(mut self) -> (Vec<Entry>, Vec<Info>, Costs) {
        self.finish();
        (self.entries, self.infos, self.running.total)
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
