//! Counting tests by what the test harness prints.

use std::collections::BTreeSet;
use std::fmt;

/// The counts of all test binaries together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    /// Why tests did not do their work. A set: one missing program may stop many tests.
    pub(super) skipped: BTreeSet<String>,
}

impl Tally {
    /// Takes one line of output; most say nothing.
    pub(super) fn see(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
        } else if let Some(reason) = line.strip_prefix("skipped, ") {
            self.skipped.insert(reason.to_owned());
        } else if let Some(name) = ignored(line) {
            self.skipped.insert(format!("{name} is ignored"));
        }
    }
}

/// The number before `word` in `ok. 3 passed; 0 failed; …`; 0 if there is none.
fn count(counts: &str, word: &str) -> u64 {
    let is_word = |part: &&str| part.ends_with(word);
    let part = counts.split([';', '.']).map(str::trim).find(is_word);
    part.and_then(|part| part.split(' ').next()?.parse().ok())
        .unwrap_or(0)
}

/// The name of a test that is marked `#[ignore]`, with its reason if it has one.
fn ignored(line: &str) -> Option<String> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    Some(format!("{name}{verdict}"))
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = self.skipped.len();
        write!(
            formatter,
            "{} passed, {} failed, {skipped} skipped",
            self.passed, self.failed
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_add_up() {
        let mut tally = Tally::default();
        tally.see("running 3 tests");
        tally.see("test a ... ok");
        tally.see("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out;");
        tally.see("test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured");
        assert_eq!(tally.to_string(), "13 passed, 2 failed, 0 skipped");
    }

    #[test]
    fn one_reason_is_told_once() {
        let mut tally = Tally::default();
        tally.see("skipped, no Heaptrack: `heaptrack` is not in PATH");
        tally.see("skipped, no Heaptrack: `heaptrack` is not in PATH");
        tally.see("test slow::one ... ignored, takes an hour");
        assert_eq!(tally.skipped.len(), 2);
        assert!(
            tally
                .skipped
                .contains("slow::one, takes an hour is ignored")
        );
    }

    #[test]
    fn other_lines_count_nothing() {
        let mut tally = Tally::default();
        for line in [
            "test result: ",
            "5 passed; 5 failed",
            "we skipped, but not so",
            "",
        ] {
            tally.see(line);
        }
        assert_eq!(tally, Tally::default());
    }
}
