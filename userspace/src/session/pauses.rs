//! When a recording paused because its user wanted so.

/// Times in which only frees were recorded, in ticks of 10 ms.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    ended: Vec<(u64, u64)>,
    since: Option<u64>,
}

impl Pauses {
    /// From the tick `now` on the recording is paused, or is not.
    pub(super) fn set(&mut self, paused: bool, now: u64) {
        if paused {
            self.since.get_or_insert(now);
        } else if let Some(since) = self.since.take() {
            self.ended.push((since, now));
        }
    }

    /// Begin and end of all of them, in a recording that ends at the tick `end`.
    pub(super) fn until(&self, end: u64) -> Vec<(u64, u64)> {
        let last = self.since.map(|since| (since, end.max(since)));
        self.ended.iter().copied().chain(last).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_signals_change_nothing() {
        let mut pauses = Pauses::default();
        for (paused, tick) in [(false, 1), (true, 2), (true, 3), (false, 4), (false, 5)] {
            pauses.set(paused, tick);
        }
        assert_eq!(pauses.until(9), [(2, 4)]);
        pauses.set(true, 7);
        assert_eq!(pauses.until(9), [(2, 4), (7, 9)], "the end ends it");
    }
}
