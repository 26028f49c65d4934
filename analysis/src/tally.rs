//! Counting events in bulk.
//!
//! Between two looks at the costs nobody needs them by backtrace, so an event only counts at its
//! info: one step into one table. What an info held at the peak is found out afterwards: events
//! are kept in a log, and each time it is full, and the peak lies within, what is live now minus
//! what happened since then is what was live then. The log is as long as the table of infos, so
//! that going through the table costs each event next to nothing.
//!
//! Sums by backtrace are made by [`Tally::settle`], which the owner calls before anybody looks.

use htrace_trace_format::Event;

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

/// What counts at one info.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    size: i64,
    /// Allocations; frees; frees of temporary blocks.
    events: [u32; 3],
    /// Live blocks at the peak, if that lies within the events since the last settling.
    at_peak: i32,
}

impl Counts {
    /// Allocations minus frees since the last settling.
    #[inline]
    fn live(&self) -> i32 {
        let [allocations, frees, temporary] = self.events;
        allocations
            .wrapping_sub(frees)
            .wrapping_sub(temporary)
            .cast_signed()
    }

    #[inline]
    fn bytes(&self, blocks: i32) -> i64 {
        self.size.wrapping_mul(i64::from(blocks))
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
    log: Vec<Event>,
    /// How many events of the log led to its highest maximum.
    log_peak: Option<usize>,
    /// The peak lies within the events since the last settling.
    has_peak: bool,
    unsettled: u64,
    limits: Limits,
}

impl Tally {
    /// Appends an info of `size` bytes.
    pub(crate) fn push_info(&mut self, size: u64) {
        self.counts.push(Counts {
            size: size.cast_signed(),
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
        self.counts.len() * size_of::<Counts>() + self.log.capacity() * size_of::<Event>()
    }

    /// Counts `events`, which name known infos only, at time `now`.
    pub(crate) fn add(&mut self, events: &[Event], running: &mut Running, now: i64) {
        if self.log.len() + events.len() > self.limits.log.max(self.counts.len()) {
            self.close_log();
        }
        let logged = self.log.len();
        self.log.extend_from_slice(events);
        self.unsettled += events.len() as u64;
        if let Some(peak) = count(&mut self.counts, events, running) {
            self.log_peak = Some(logged + peak);
            running.peak_time = now;
        }
    }

    /// Finds out what was live at the peak, if that lies within the log, and empties the log.
    fn close_log(&mut self) {
        if let Some(peak) = self.log_peak.take() {
            self.has_peak = true;
            for counts in &mut self.counts {
                counts.at_peak = counts.live();
            }
            for event in self.log.get(peak..).unwrap_or_default() {
                if let Some(counts) = self.counts.get_mut(event.info().position()) {
                    let change = if event.is_free() { 1 } else { -1 };
                    counts.at_peak = counts.at_peak.wrapping_add(change);
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
        if std::mem::take(&mut self.has_peak) {
            for entry in entries.iter_mut() {
                entry.costs.peak = entry.costs.leaked;
            }
        }
        for (info, counts) in infos.iter().zip(&mut self.counts) {
            let Some(entry) = entries.get_mut(info.entry as usize) else {
                continue;
            };
            let [allocations, _, temporary] = counts.events;
            entry.costs += Costs {
                allocations: i64::from(allocations),
                temporary: i64::from(temporary),
                leaked: counts.bytes(counts.live()),
                peak: counts.bytes(counts.at_peak),
            };
            (counts.events, counts.at_peak) = ([0; 3], 0);
        }
    }

    /// Forgets all counts.
    pub(crate) fn clear(&mut self) {
        for counts in &mut self.counts {
            (counts.events, counts.at_peak) = ([0; 3], 0);
        }
        self.log.clear();
        (self.log_peak, self.has_peak, self.unsettled) = (None, false, 0);
    }
}

/// Counts `events`; how many of them led to the highest maximum, if they reached a new one.
///
/// Free of branches that depend on the events: which of the two kinds comes next is as good as
/// random, and waiting for one event's info must not keep the processor from the next.
fn count(counts: &mut [Counts], events: &[Event], running: &mut Running) -> Option<usize> {
    let Running { total, last, .. } = running;
    let (mut live, mut most, mut peak) = (total.leaked, total.peak, 0);
    let (mut before, mut frees, mut temporary) = (*last, 0, 0);
    for (number, event) in (1..).zip(events) {
        let index = event.info();
        let Some(counts) = counts.get_mut(index.position()) else {
            continue;
        };
        let is_free = event.is_free();
        let identity = u64::from(index.get());
        let kind = usize::from(is_free) + usize::from(is_free & (before == identity));
        counts.events[kind] += 1;
        frees += i64::from(is_free);
        temporary += (kind >> 1) as i64;
        before = if is_free { 0 } else { identity };
        let change = if is_free {
            counts.size.wrapping_neg()
        } else {
            counts.size
        };
        live = live.wrapping_add(change);
        let higher = (live > most) & !is_free;
        most = if higher { live } else { most };
        peak = if higher { number } else { peak };
    }
    *last = before;
    total.leaked = live;
    total.peak = most;
    total.temporary += temporary;
    total.allocations += events.len() as i64 - frees;
    (peak > 0).then_some(peak)
}

#[cfg(test)]
mod tests {
    use htrace_trace_format::{AllocationInfoIndex, TraceIndex};
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
