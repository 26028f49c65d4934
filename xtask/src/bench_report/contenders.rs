//! Who reads the trace, and what one run of each took.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::command::{command, shown};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Contender {
    HeaptrackPrint,
    Htrace,
    /// Decompression alone, for scale.
    Zstd,
}

/// What one run took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Run {
    pub(super) seconds: f64,
    /// Largest resident set in KiB.
    pub(super) peak: f64,
}

impl Contender {
    pub(super) const ALL: [Self; 3] = [Self::HeaptrackPrint, Self::Htrace, Self::Zstd];

    fn command(self, htrace: &Path, file: &Path) -> Command {
        // Debian's package `time`; its last line holds KiB.
        let mut timed = command("/usr/bin/time");
        timed.args(["--format", "%M"]);
        match self {
            Self::HeaptrackPrint => timed.arg("heaptrack_print"),
            Self::Htrace => timed.arg(htrace).arg("report"),
            Self::Zstd => timed.args(["zstd", "-dcq"]),
        };
        timed.arg(file);
        timed
    }

    /// One run on `file`. All that it prints is thrown away.
    pub(super) fn measure(self, htrace: &Path, file: &Path) -> Result<Run> {
        let mut command = self.command(htrace, file);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let start = Instant::now();
        let output = command
            .output()
            .with_context(|| format!("starting `{}`", shown(&command)))?;
        let seconds = start.elapsed().as_secs_f64();
        let words = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            bail!("`{}`: {}: {words}", shown(&command), output.status);
        }
        let peak = words.lines().last().and_then(|line| line.parse().ok());
        let peak = peak.with_context(|| format!("no memory in {words:?}"))?;
        Ok(Run { seconds, peak })
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::HeaptrackPrint => "heaptrack_print",
            Self::Htrace => "htrace-bpf report",
            Self::Zstd => "zstd -dc",
        })
    }
}
