//! What the kernel counts about BPF programs, while `kernel.bpf_stats_enabled` is 1. Its own
//! counting adds some 40 ns to each run (Linux 6.18).

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

const SETTING: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Counting is on while this value lives, and then as it was before.
pub(super) struct KernelStats {
    before: String,
}

impl KernelStats {
    pub(super) fn enable() -> Result<Self> {
        let before = fs::read_to_string(SETTING).with_context(|| format!("reading {SETTING}"))?;
        fs::write(SETTING, "1").with_context(|| format!("writing {SETTING}; it needs root"))?;
        Ok(Self { before })
    }
}

impl Drop for KernelStats {
    fn drop(&mut self) {
        // It was written a moment ago; counting on harms nobody.
        let _ = fs::write(SETTING, self.before.trim());
    }
}

/// What a program has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) nanoseconds: u64,
    pub(super) count: u64,
    /// How much the verifier had to do for it.
    pub(super) verified_instructions: u64,
}

impl Run {
    pub(super) fn nanoseconds_each(self) -> f64 {
        self.nanoseconds as f64 / self.count.max(1) as f64
    }
}

/// The programs that a process holds: `/proc/PID/fdinfo` tells for each (Linux 5.1, the verifier's
/// part 5.16).
pub(super) fn runs(pid: u32) -> Result<Vec<Run>> {
    let directory = Path::new("/proc").join(pid.to_string()).join("fdinfo");
    let mut runs = Vec::new();
    for entry in fs::read_dir(&directory).context("the tracer has ended")? {
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        runs.extend(parse(&text));
    }
    Ok(runs)
}

fn parse(text: &str) -> Option<Run> {
    let number = |wanted: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = fields.find(|(name, _)| *name == wanted)?;
        value.trim().parse().ok()
    };
    Some(Run {
        nanoseconds: number("run_time_ns")?,
        count: number("run_cnt")?,
        verified_instructions: number("verified_insns")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_from_other_files() {
        let text = "pos:\t0\nprog_type:\t2\nrun_time_ns:\t1234\nrun_cnt:\t5\nverified_insns:\t77\n";
        let expected = Run {
            nanoseconds: 1234,
            count: 5,
            verified_instructions: 77,
        };
        assert_eq!(parse(text), Some(expected));
        assert_eq!(parse("pos:\t0\nflags:\t02\n"), None);
    }
}
