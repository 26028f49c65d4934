//! One line that tells how a recording goes, on a terminal.

use std::{
    io::{IsTerminal, Write, stderr},
    sync::atomic::Ordering,
    time::Instant,
};

use htrace_ebpf_common::counters::Counter;

use super::{options::Verbosity, recorder::Stats};
use crate::loader::Programs;

/// A line that is drawn over itself.
pub(super) struct Progress {
    shown: bool,
    on: bool,
    began: Instant,
    last: (Instant, u64),
}

/// Go to the beginning of the line and erase it (ECMA-48).
const ERASE_LINE: &str = "\r\x1b[K";

impl Progress {
    /// A line that is shown only on a terminal.
    pub(super) fn start(verbosity: Verbosity) -> Self {
        let began = Instant::now();
        let on = verbosity == Verbosity::Normal && stderr().is_terminal();
        Self {
            shown: false,
            on,
            began,
            last: (began, 0),
        }
    }

    /// Draws it anew.
    pub(super) fn show(&mut self, stats: &Stats, programs: &Programs) {
        if !self.on {
            return;
        }
        let allocations = stats.allocations.load(Ordering::Relaxed);
        let (then, before) = std::mem::replace(&mut self.last, (Instant::now(), allocations));
        let seconds = then.elapsed().as_secs_f64().max(0.001);
        let rate = allocations.saturating_sub(before) as f64 / seconds;
        let live = stats.live_bytes.load(Ordering::Relaxed);
        let lost: u64 = Counter::LOST
            .iter()
            .map(|(counter, _)| programs.counter(*counter))
            .sum();
        let elapsed = self.began.elapsed().as_secs();
        self.shown = true;
        let line = format!(
            "{ERASE_LINE}{}:{:02}  {allocations} allocations  {rate:.0}/s  {} live  {lost} lost",
            elapsed / 60,
            elapsed % 60,
            size(live),
        );
        draw(&line);
    }

    /// Takes it away.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            draw(ERASE_LINE);
        }
    }
}

/// A closed standard error is no reason to fail.
fn draw(text: &str) {
    let mut stderr = stderr();
    let _closed = stderr
        .write_all(text.as_bytes())
        .and_then(|()| stderr.flush());
}

/// Bytes in the units of reports.
pub(super) fn size(bytes: u64) -> String {
    const STEP: f64 = 1000.0;
    let mut value = bytes as f64;
    for unit in ["B", "K", "M", "G"] {
        if value < STEP {
            return format!("{value:.1}{unit}");
        }
        value /= STEP;
    }
    format!("{value:.1}T")
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size(0), "0.0B");
        assert_eq!(size(1500), "1.5K");
        assert_eq!(size(5_000_000_000_000), "5.0T");
    }
}
