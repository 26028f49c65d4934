//! What the user sees while a task works: `==> what` at the start of a step, and how long it took.

use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Does `work` as one step that says what it is and how long it took. An error is put under the
/// step's name.
pub(crate) fn step<T>(what: impl Display, work: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("==> {what}");
    let start = Instant::now();
    let outcome = work();
    let verdict = if outcome.is_ok() { "done" } else { "failed" };
    eprintln!("    {verdict} in {}", seconds(start.elapsed()));
    outcome.with_context(|| what.to_string())
}

/// A step that had nothing to do.
pub(crate) fn nothing_to_do(what: impl Display, why: impl Display) {
    eprintln!("==> {what}: {why}");
}

/// A line that belongs to the step above it.
pub(crate) fn note(what: impl Display) {
    eprintln!("    {what}");
}

/// A duration for people: tenths of a second, minutes from one minute up.
pub(crate) fn seconds(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds >= 60 {
        format!("{} min {} s", seconds / 60, seconds % 60)
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        assert_eq!(seconds(Duration::from_millis(1_240)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(125)), "2 min 5 s");
    }

    #[test]
    fn an_error_carries_the_name_of_its_step() {
        let error = step("frying", || -> Result<()> { anyhow::bail!("no pan") }).unwrap_err();
        assert_eq!(format!("{error:#}"), "frying: no pan");
    }
}
