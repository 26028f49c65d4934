//! The tasks `test` and `ci`: everything that must hold before a change goes in.
//!
//! All checks run even when an earlier one failed; the end tells which did, how many tests passed,
//! and which were skipped and why. What a test skips it says on a line `skipped, REASON`.

mod checks;
mod tally;

use std::process::ExitCode;

use anyhow::Result;

use crate::command::is_root;
use crate::progress::note;
use crate::workspace::Workspace;
use crate::{arrows, build, setup, vm};
use tally::Tally;

/// What a skipped test means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Skips {
    /// It is told at the end. `CI=true` in the environment makes it a failure all the same.
    Allowed,
    AreFailures,
}

/// The older kernel of every run: Debian 12's, without multi-uprobe links.
const OTHER_KERNEL: &str = "6.1";

/// The test binaries that run on it: those that depend on how probes are attached, or on who is
/// preempted or sleeps. In software emulation the others would take longer than all else together.
const ON_OTHER_KERNEL: &[&str] = &["attach", "counts", "launch", "preemption", "remaps", "vdso"];

/// It preempts itself wherever it may, which this machine's own kernel mostly does not.
const OTHER_KERNEL_OPTIONS: &str = "preempt=full";

/// Sets up, builds, and checks everything.
pub(crate) fn test(workspace: &Workspace, skips: Skips) -> Result<ExitCode> {
    let strict =
        skips == Skips::AreFailures || std::env::var_os("CI").is_some_and(|ci| ci == "true");
    let mut run = Run::default();
    run.check_or_skip(setup::test_programs(workspace), strict);
    build::build(workspace, true)?;
    run.check(arrows::check(workspace));
    for check in checks::all(workspace) {
        run.check(check.run());
    }
    for suite in checks::suites(workspace, strict) {
        let tally = &mut run.tally;
        let outcome = suite.watch(|line| tally.see(line));
        run.check(outcome);
    }
    run.on_other_kernel(workspace, strict);
    Ok(run.conclude(strict))
}

/// What came of the checks so far.
#[derive(Debug, Default)]
struct Run {
    tally: Tally,
    failed: Vec<String>,
}

impl Run {
    fn check(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.failed.push(format!("{error:#}"));
        }
    }

    /// What a machine may lack, for a user who cannot install it.
    fn check_or_skip(&mut self, outcome: Result<()>, strict: bool) {
        match outcome {
            Err(error) if !strict => {
                self.tally.skipped.insert(format!("{error:#}"));
            }
            outcome => self.check(outcome),
        }
    }

    /// Boots another kernel. Only root can, and only Debian has the kernels.
    fn on_other_kernel(&mut self, workspace: &Workspace, strict: bool) {
        if is_root() && setup::is_debian() {
            let tally = &mut self.tally;
            let see = |line: &str| tally.see(line);
            let kernel = (OTHER_KERNEL, OTHER_KERNEL_OPTIONS);
            let outcome = vm::suite(workspace, kernel, ON_OTHER_KERNEL, see);
            self.check(outcome);
        } else {
            let why = anyhow::anyhow!("tests on kernel {OTHER_KERNEL}: they need root and Debian");
            self.check_or_skip(Err(why), strict);
        }
    }

    /// Tells everything once more, shortly; the counts on standard output, as test runners do.
    #[expect(clippy::print_stdout, reason = "the counts are what was asked for")]
    fn conclude(self, strict: bool) -> ExitCode {
        eprintln!("==> summary");
        for reason in &self.tally.skipped {
            note(format_args!("skipped: {reason}"));
        }
        for failure in &self.failed {
            note(format_args!("failed: {failure}"));
        }
        println!("{}", self.tally);
        if self.tally.passed == 0 {
            note("failed: no test was run");
        }
        if strict && !self.tally.skipped.is_empty() {
            note("failed: a test was skipped, which must not happen here");
        }
        if self.is_good(strict) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    fn is_good(&self, strict: bool) -> bool {
        self.failed.is_empty()
            && self.tally.failed == 0
            && self.tally.passed > 0
            && (!strict || self.tally.skipped.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lines: &[&str]) -> Run {
        let mut run = Run::default();
        for line in lines {
            run.tally.see(line);
        }
        run
    }

    #[test]
    fn a_skip_is_a_failure_only_where_it_must_not_happen() {
        let run = run(&[
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
            "skipped, no Root: run as root",
        ]);
        assert!(run.is_good(false));
        assert!(!run.is_good(true));
    }

    #[test]
    fn no_test_at_all_is_a_failure() {
        assert!(!run(&[]).is_good(false));
    }

    #[test]
    fn a_failed_check_is_a_failure() {
        let mut run = run(&["test result: ok. 3 passed; 0 failed; 0 ignored"]);
        run.check(Err(anyhow::anyhow!("format")));
        assert!(!run.is_good(false));
    }
}
