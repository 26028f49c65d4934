//! Counting events in bulk.
//!
//! Between two looks at the costs nobody needs them by backtrace, so an event only counts at its
//! info: one step into one table. What an info held at the peak is found out afterwards: events
//! are kept in a log, and each time it is full, and the peak lies within, what is live now minus
//! what happened since then is what was live then. The log is as long as the table of infos, so
//! that going through the table costs each event next to nothing.
//!
//! Sums by backtrace are made by [`Tally::settle`], which the owner calls before anybody looks.

use htrace_trace_format::{AllocationInfoIndex, Event};

use crate::accounting::{Entry, Info};
use crate::cost::Costs;

/// When to do what goes through whole tables.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Events in the log at least.
    log: usize,
    /// Counts are settled before this many events, so that none overflows.
    unsettled: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            log: 1 << 16,
            unsettled: 1 << 31,
        }
    }
}

/// What counts at one info. Small, because most of the time goes into fetching these.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Bytes, or [`Counts::LARGE`].
    size: u32,
    /// Allocations; frees; frees of temporary blocks.
    events: [u32; 3],
}

impl Counts {
    /// Stands for every size that has no place in a `u32`.
    const LARGE: u32 = u32::MAX;

    /// Allocations minus frees since the last settling.
    #[inline]
    fn live(&self) -> i32 {
        let [allocations, frees, temporary] = self.events;
        allocations
            .wrapping_sub(frees)
            .wrapping_sub(temporary)
            .cast_signed()
    }
}

/// What a whole trace costs so far, and what the next event needs to know of those before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Running {
    pub(crate) total: Costs,
    /// The info (or, in files of version 0, the address) of the event before, if that was an
    /// allocation; otherwise 0. That 0 is also a valid info is heaptrack's convention, on which
    /// its figures for temporary allocations depend.
    pub(crate) last: u64,
    /// Time of the peak.
    pub(crate) peak_time: i64,
}

/// Counts of all infos since the last settling.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: Vec<Counts>,
    /// Live blocks of each info at the peak, if that lies within the events since the last
    /// settling; infos behind the end had none.
    at_peak: Vec<i32>,
    log: Vec<Event>,
    /// How many events of the log led to its highest maximum.
    log_peak: Option<usize>,
    unsettled: u64,
    limits: Limits,
}

impl Tally {
    /// Appends an info of `size` bytes.
    pub(crate) fn push_info(&mut self, size: u64) {
        self.counts.push(Counts {
            size: u32::try_from(size).unwrap_or(Counts::LARGE),
            ..Counts::default()
        });
    }

    /// Whether there are counts to settle.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.unsettled == 0
    }

    /// Whether counts must be settled before more events come.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.unsettled >= self.limits.unsettled
    }

    /// Bytes of memory in use.
    pub(crate) fn memory(&self) -> usize {
        self.counts.len() * (size_of::<Counts>() + size_of::<i32>())
            + self.log.capacity() * size_of::<Event>()
    }

    /// Counts `events`, which name known infos only, at time `now`.
    pub(crate) fn add(
        &mut self,
        infos: &[Info],
        events: &[Event],
        running: &mut Running,
        now: i64,
    ) {
        if self.log.len() + events.len() > self.limits.log.max(self.counts.len()) {
            self.close_log();
        }
        let logged = self.log.len();
        self.log.extend_from_slice(events);
        self.unsettled += events.len() as u64;
        if let Some(peak) = count(&mut self.counts, infos, events, running) {
            self.log_peak = Some(logged + peak);
            running.peak_time = now;
        }
    }

    /// Finds out what was live at the peak, if that lies within the log, and empties the log.
    fn close_log(&mut self) {
        if let Some(peak) = self.log_peak.take() {
            self.at_peak.clear();
            self.at_peak.extend(self.counts.iter().map(Counts::live));
            for event in self.log.get(peak..).unwrap_or_default() {
                if let Some(at_peak) = self.at_peak.get_mut(event.info().position()) {
                    let change = if event.is_free() { 1 } else { -1 };
                    *at_peak = at_peak.wrapping_add(change);
                }
            }
        }
        self.log.clear();
    }

    /// Adds all counts to `entries`, whose peaks must be those of the last settling, and starts
    /// anew.
    pub(crate) fn settle(&mut self, infos: &[Info], entries: &mut [Entry]) {
        self.close_log();
        self.unsettled = 0;
        if !self.at_peak.is_empty() {
            for entry in entries.iter_mut() {
                entry.costs.peak = entry.costs.leaked;
            }
        }
        let at_peak = self.at_peak.iter().copied().chain(std::iter::repeat(0));
        for ((info, counts), at_peak) in infos.iter().zip(&mut self.counts).zip(at_peak) {
            let Some(entry) = entries.get_mut(info.entry as usize) else {
                continue;
            };
            let bytes = |blocks: i32| info.size.cast_signed().wrapping_mul(i64::from(blocks));
            let [allocations, _, temporary] = counts.events;
            entry.costs += Costs {
                allocations: i64::from(allocations),
                temporary: i64::from(temporary),
                leaked: bytes(counts.live()),
                peak: bytes(at_peak),
            };
            counts.events = [0; 3];
        }
        self.at_peak.clear();
    }

    /// Forgets all counts.
    pub(crate) fn clear(&mut self) {
        for counts in &mut self.counts {
            counts.events = [0; 3];
        }
        self.at_peak.clear();
        self.log.clear();
        (self.log_peak, self.unsettled) = (None, 0);
    }
}

/// Counts `events`; how many of them led to the highest maximum, if they reached a new one.
///
/// Free of branches that depend on the events: which of the two kinds comes next is as good as
/// random, and waiting for one event's info must not keep the processor from the next.
fn count(
    counts: &mut [Counts],
    infos: &[Info],
    events: &[Event],
    running: &mut Running,
) -> Option<usize> {
    let Running { total, last, .. } = running;
    let (mut live, mut most, mut peak) = (total.leaked, total.peak, 0);
    let mut before = *last;
    // Frees in the lower half, those of temporary blocks in the upper one.
    let mut frees = 0u64;
    for (number, event) in (1..).zip(events) {
        let index = event.info();
        let Some(counts) = counts.get_mut(index.position()) else {
            continue;
        };
        let identity = u64::from(index.get());
        let free = u64::from(event.is_free());
        let temporary = free & u64::from(before == identity);
        counts.events[(free + temporary) as usize] += 1;
        frees += free + (temporary << 32);
        let size = match counts.size {
            Counts::LARGE => large(infos, index),
            size => i64::from(size),
        };
        // All bits of a free, none of an allocation.
        let mask = free.wrapping_neg();
        before = identity & !mask;
        live = live.wrapping_add((size ^ mask.cast_signed()).wrapping_sub(mask.cast_signed()));
        let higher = (live > most) & (free == 0);
        most = if higher { live } else { most };
        peak = if higher { number } else { peak };
    }
    *last = before;
    total.leaked = live;
    total.peak = most;
    total.temporary += (frees >> 32) as i64;
    total.allocations += events.len() as i64 - (frees & u64::from(u32::MAX)) as i64;
    (peak > 0).then_some(peak)
}

#[cold]
fn large(infos: &[Info], index: AllocationInfoIndex) -> i64 {
    let info = infos.get(index.position());
    info.map_or(0, |info| info.size.cast_signed())
}

#[cfg(test)]
mod tests {
    use htrace_trace_format::TraceIndex;
    use proptest::prelude::*;

    use super::*;
    use crate::accounting::Accounting;

    fn accounting(infos: &[(u64, u32)]) -> Accounting {
        let mut accounting = Accounting::default();
        for &(size, trace) in infos {
            accounting.push_info(size, TraceIndex::from_file(trace), 3);
        }
        accounting
    }

    proptest! {
        #[test]
        fn bulk_comes_to_what_single_events_come_to(
            infos in prop::collection::vec((prop_oneof![0u64..100, any::<u64>()], 0u32..6), 1..9),
            batches in prop::collection::vec(
                (prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..12), any::<bool>()),
                0..20,
            ),
            log in 1usize..20,
            unsettled in 1u64..40,
        ) {
            let mut single = accounting(&infos);
            let mut bulk = accounting(&infos);
            bulk.tally_mut().limits = Limits { log, unsettled };
            for (now, (batch, in_bulk)) in (0..).zip(&batches) {
                let events: Vec<Event> = batch
                    .iter()
                    .map(|(index, is_free)| {
                        let info = AllocationInfoIndex::from_file(index.index(infos.len()) as u32);
                        Event::new(info, *is_free).unwrap()
                    })
                    .collect();
                for event in &events {
                    single.event(event.info(), event.is_free(), now);
                    if !in_bulk {
                        bulk.event(event.info(), event.is_free(), now);
                    }
                }
                if *in_bulk {
                    bulk.bulk(&events, now);
                }
                prop_assert_eq!(single.total(), bulk.total());
                prop_assert_eq!(single.peak_time(), bulk.peak_time());
            }
            let costs = |accounting: Accounting| -> Vec<_> {
                let (entries, _, _) = accounting.into_parts();
                entries.iter().map(|entry| (entry.trace, entry.costs)).collect()
            };
            prop_assert_eq!(costs(single), costs(bulk));
        }
    }
}
