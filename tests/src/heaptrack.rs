//! heaptrack itself, as a second opinion: its recorder on the same targets, its
//! printer on our files.

use std::path::Path;
use std::process::Command;

use crate::process::{Ended, run};
use crate::report::Report;
use crate::scratch::Scratch;
use crate::trace_file::Trace;
use crate::tracer;

/// Records a program with heaptrack's recorder and replays its file.
///
/// # Panics
/// When heaptrack leaves no file, or not a well-formed one.
pub fn record(program: &Path, args: &[&str]) -> Counts {
    let scratch = Scratch::new();
    let ended = run(
        Command::new("heaptrack")
            .arg("-o")
            .arg(scratch.join("theirs"))
            .arg(program)
            .args(args),
        b"",
    );
    assert!(
        scratch.join("theirs.zst").exists(),
        "heaptrack left no file:\n{}",
        ended.stderr
    );
    let text = zstd::stream::decode_all(
        std::fs::File::open(scratch.join("theirs.zst")).expect("open heaptrack's file"),
    )
    .expect("unpack heaptrack's file");
    Counts::replay(&text)
}

/// Records a program with heaptrack's recorder, and has its addresses named by the tracer under
/// test, so that only recordings differ and not names.
///
/// # Panics
/// When either fails.
pub fn record_named(program: &Path, args: &[&str], envs: &[(&str, &str)]) -> Trace {
    let scratch = Scratch::new();
    let mut command = Command::new("heaptrack");
    command
        .args(["--raw", "-o"])
        .arg(scratch.join("theirs"))
        .arg(program)
        .args(args)
        .env_clear()
        .envs(envs.iter().copied());
    let recorded = run(&mut command, b"");
    let named = scratch.join("named.zst");
    let ended = run(
        Command::new(tracer::binary())
            .args(["interpret", "-o"])
            .args([&named, &scratch.join("theirs.raw.zst")]),
        b"",
    );
    assert!(
        ended.status.success(),
        "{}\n{}",
        ended.stderr,
        recorded.stderr
    );
    Trace::read_foreign(&named)
}

/// What heaptrack counted. Its files use info 0 for real allocations, which
/// [`Trace`] refuses in ours.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Allocations.
    pub calls: i64,
    /// Highest total of live bytes.
    pub peak: i64,
    /// Live bytes at the end.
    pub leaked: i64,
}

impl Counts {
    fn replay(text: &[u8]) -> Self {
        let mut sizes = Vec::new();
        let mut theirs = Self::default();
        for line in String::from_utf8_lossy(text).lines() {
            let mut words = line.split(' ');
            let kind = words.next();
            let number = words
                .next()
                .and_then(|word| i64::from_str_radix(word, 16).ok());
            match (kind, number) {
                (Some("a"), Some(size)) => sizes.push(size),
                (Some("+"), Some(info)) => {
                    theirs.calls += 1;
                    theirs.leaked += sizes[info as usize];
                    theirs.peak = theirs.peak.max(theirs.leaked);
                }
                (Some("-"), Some(info)) => theirs.leaked -= sizes[info as usize],
                _ => {}
            }
        }
        theirs
    }
}

impl From<&Trace> for Counts {
    fn from(ours: &Trace) -> Self {
        Self {
            calls: ours.calls,
            peak: ours.peak,
            leaked: ours.leaked,
        }
    }
}

impl std::ops::Sub for Counts {
    type Output = Self;

    fn sub(self, base: Self) -> Self {
        Self {
            calls: self.calls - base.calls,
            peak: self.peak - base.peak,
            leaked: self.leaked - base.leaked,
        }
    }
}

/// `heaptrack_print` on a file, with all sections and all that groups hold.
pub fn print(file: &Path) -> (Report, Ended) {
    let ended = run(
        Command::new("heaptrack_print")
            .args(["-l", "1", "-s", "1000000", "-f"])
            .arg(file),
        b"",
    );
    assert!(
        ended.status.success(),
        "heaptrack_print failed: {}\n{}",
        ended.status,
        ended.stderr
    );
    (Report::new(&ended.stdout), ended)
}
