//! When the file has to tell the time.
//!
//! Pure: ticks and bytes in, decisions out. A stamp is left out while charts would show a straight
//! line without it: a program that repeats itself, or waits, has two stamps a second, one that
//! changes has one a tick.
//!
//! What a reader may rely on, since a stamp stands before the event or the tick that it is for:
//! * The time of a new peak, of the first allocation of its size and place, and of the first
//!   allocation after a tick without any is exact to a tick.
//! * From one stamp to the next, what lives when a tick begins is off by a 128th part of the peak
//!   at most from what it was at the first, and the allocations of a tick, if it is not the last,
//!   stay between a quarter and four times their mean.
//! * Two stamps are half a second apart at most.

/// Milliseconds in a tick of the records' clock.
pub(super) const TICK_MS: u64 = 10;

/// Ticks between two stamps at most.
const MOST_TICKS: u64 = 50;

/// Live bytes may change by so small a part of the peak, from a stamp or within its tick: about a
/// dot in a chart.
const PARTS: u64 = 256;

/// The pace has changed if it is so many times as high or as low: a program that gets no CPU for
/// some milliseconds has not changed.
const PACE: u64 = 4;

/// Allocations by which two ticks may differ in any case.
const FEW: u64 = 16;

/// What has happened since the last stamp.
#[derive(Clone, Debug)]
pub(super) struct TimeStamps {
    start: u64,
    /// The newest tick that was reached.
    reached: u64,
    /// That of the last stamp.
    stamped: Option<u64>,
    /// Live bytes at the last stamp.
    live: u64,
    /// Most live bytes at any time.
    peak: u64,
    /// Allocations in the newest tick, and in the one before.
    allocations: u64,
    before: u64,
    /// Ticks that have ended since the last stamp, and allocations in them.
    ended: u64,
    in_ended: u64,
}

impl TimeStamps {
    /// The time is counted from the tick `start`.
    pub(super) fn new(start: u64) -> Self {
        Self {
            start,
            reached: start,
            stamped: None,
            live: 0,
            peak: 0,
            allocations: 0,
            before: 0,
            ended: 0,
            in_ended: 0,
        }
    }

    /// Time has come to `tick`, with `live` bytes; true if a stamp is due at once. Time does not go
    /// back.
    #[inline]
    pub(super) fn reach(&mut self, tick: u64, live: u64) -> bool {
        if self.stamped.is_some() && tick <= self.reached {
            return false;
        }
        self.advance(tick, live)
    }

    fn advance(&mut self, tick: u64, live: u64) -> bool {
        let pace_changes = self.pace_changes();
        let passed = tick.saturating_sub(self.reached);
        self.in_ended += self.allocations;
        self.ended += passed;
        self.before = if passed > 1 { 0 } else { self.allocations };
        self.allocations = 0;
        self.reached = self.reached.max(tick);
        let is_late = |stamped| self.reached - stamped >= MOST_TICKS;
        pace_changes || self.has_changed(live) || self.stamped.is_none_or(is_late)
    }

    fn has_changed(&self, live: u64) -> bool {
        live.abs_diff(self.live) > self.peak / PARTS
    }

    /// True if the tick that ends has far fewer or far more allocations than those before.
    fn pace_changes(&self) -> bool {
        let Some(mean) = self.in_ended.checked_div(self.ended) else {
            return false;
        };
        let own = self.allocations;
        own > PACE * mean + FEW || PACE * (own + FEW) < mean
    }

    /// True if the newest tick has no stamp yet.
    #[inline]
    pub(super) fn is_behind(&self) -> bool {
        self.stamped.is_none_or(|stamped| stamped < self.reached)
    }

    /// True if a stamp has to stand before an event that leaves `live` bytes.
    #[inline]
    pub(super) fn is_due_before(&self, live: u64) -> bool {
        self.is_behind() && (live > self.peak || self.has_changed(live))
    }

    /// The same for an allocation.
    #[inline]
    pub(super) fn is_due_before_allocation(&self, live: u64) -> bool {
        let resumes = self.is_behind() && self.before == 0 && self.allocations == 0;
        resumes || self.is_due_before(live)
    }

    /// Counts an allocation that leaves `live` bytes.
    #[inline]
    pub(super) fn allocated(&mut self, live: u64) {
        self.peak = self.peak.max(live);
        self.allocations += 1;
    }

    /// Makes the stamp of the newest tick, in milliseconds since the start.
    pub(super) fn stamp(&mut self, live: u64) -> u64 {
        self.stamped = Some(self.reached);
        self.live = live;
        self.ended = 0;
        self.in_ended = 0;
        self.reached.saturating_sub(self.start) * TICK_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recording whose ticks have these allocations of a byte, each freed at once.
    fn stamps_of(ticks: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut time = TimeStamps::new(0);
        let mut stamps = Vec::new();
        for (tick, allocations) in (1..).zip(ticks) {
            if time.reach(tick, 1000) {
                stamps.push(time.stamp(1000));
            }
            for _ in 0..allocations {
                if time.is_due_before_allocation(1001) {
                    stamps.push(time.stamp(1000));
                }
                time.allocated(1001);
            }
        }
        stamps
    }

    #[test]
    fn what_repeats_itself_is_stamped_twice_a_second() {
        let steady = [1000, 1100, 900, 700, 1300].into_iter().cycle();
        assert_eq!(stamps_of(steady.take(200)), [10, 510, 1010, 1510]);
        let idle = std::iter::repeat_n(0, 120);
        assert_eq!(stamps_of(idle), [10, 510, 1010]);
    }

    #[test]
    fn begin_and_end_of_a_burst_are_told() {
        let mut ticks = [0; 60];
        ticks[20..23].fill(500);
        // A tick without allocations is known as such when it ends.
        assert_eq!(stamps_of(ticks), [10, 210, 250]);
    }

    #[test]
    fn a_peak_and_a_change_of_what_lives_are_told_before_they_happen() {
        let mut time = TimeStamps::new(0);
        time.reach(1, 0);
        time.stamp(0);
        time.allocated(25_600);
        assert!(!time.is_due_before(1 << 40), "the tick has its stamp");
        assert!(time.reach(2, 25_600), "what lives has changed");
        assert!(time.is_due_before(25_601));
        time.stamp(25_600);
        assert!(!time.reach(3, 25_550));
        assert!(!time.is_due_before(25_600) && !time.is_due_before(25_500));
        assert!(time.is_due_before(25_499));
        assert!(!time.reach(2, 0), "time does not go back");
    }
}
