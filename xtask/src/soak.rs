//! The task `soak`: the long tests, as long as it takes to trust them.
//!
//! They are those that every test run has in short (`tests/tests/soak.rs` and `overload.rs`,
//! `userspace/tests/fuzz`); the lengths go to them by environment variables.

use anyhow::{Context as _, Result};

use crate::command::{cargo, run};
use crate::progress::step;
use crate::workspace::Workspace;
use crate::{build, setup};

/// How long. Without options about two hours altogether.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds at full speed in the smallest ring buffer.
    #[arg(long, default_value_t = 60)]
    stress: u64,
    /// How often the tracer is killed at a random moment.
    #[arg(long, default_value_t = 200)]
    kills: u64,
    /// Seconds of the random exerciser.
    #[arg(long, default_value_t = 30 * 60)]
    exercise: u64,
    /// Seconds of each fuzzer.
    #[arg(long, default_value_t = 10 * 60)]
    fuzz: u64,
    /// Seconds over which the recorder's memory must not grow.
    #[arg(long, default_value_t = 15 * 60)]
    flat: u64,
}

pub(crate) fn soak(workspace: &Workspace, options: &Options) -> Result<()> {
    setup::test_programs(workspace)?;
    build::build(workspace, true)?;
    // Replaying hours of records takes long enough when it is optimised.
    let tests = ["test", "--release", "--package", "htrace-tests"];
    step("long tests", || {
        run(cargo()
            .current_dir(&workspace.root)
            .args(tests)
            .args(["--test", "overload", "--test", "soak"])
            .args(["--", "--test-threads=1", "--nocapture"])
            .env("CI", "true")
            .env("HTRACE_STRESS_SECONDS", options.stress.to_string())
            .env("HTRACE_KILL_ROUNDS", options.kills.to_string())
            .env("HTRACE_EXERCISE_SECONDS", options.exercise.to_string())
            .env("HTRACE_FLAT_SECONDS", options.flat.to_string()))
    })
    .context("a long test has failed")?;
    step("fuzzers", || {
        run(cargo()
            .current_dir(&workspace.root)
            .args(["test", "--package", "htrace-bpf", "--test", "fuzz"])
            .args(["--", "--test-threads=1", "--nocapture"])
            .env("HTRACE_FUZZ_SECONDS", options.fuzz.to_string()))
    })
    .context("a fuzzer has found something")
}
