//! Compares the stacks that the BPF programs take with those of libgcc's unwinder, in the same
//! process at the same calls. Needs root, because it loads BPF programs.
//!
//! `cargo xtask unwind-check PROGRAM ARGS…` runs this for any program.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

mod comparison;
mod harness;
mod oracle;
mod programs;

use std::{
    env,
    io::{self, Write as _},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use harness::check;

/// Held while a test traces. A target that waits for its tables keeps a CPU busy, so two of them
/// can keep each other's recorders from running until the waits end without tables.
static TRACING: Mutex<()> = Mutex::new(());

/// The right to trace, one test at a time; says why if this test cannot.
fn turn_to_trace() -> Option<MutexGuard<'static, ()>> {
    if !nix::unistd::geteuid().is_root() {
        skip("loading BPF programs needs root");
        return None;
    }
    // A test that failed has left nothing behind that could hurt the next one.
    Some(TRACING.lock().unwrap_or_else(PoisonError::into_inner))
}

/// How many stacks are compared at least, together.
const AT_LEAST: u64 = 1_000_000;

#[test]
fn stacks_of_many_programs_are_right() {
    let Some(_turn) = turn_to_trace() else {
        return;
    };
    let missing = programs::missing();
    if !missing.is_empty() {
        return skip(&format!("these are not installed: {missing:?}"));
    }
    println!("{:14}{}", "program", comparison::HEAD);
    let (mut compared, mut failures) = (0, Vec::new());
    for target in programs::all() {
        let start = Instant::now();
        let outcome = check(&target.command);
        println!("{:14}{outcome}", target.name);
        println!(
            "    {} s, counters: {:?}",
            start.elapsed().as_secs(),
            outcome.counters
        );
        compared += outcome.compared();
        let worked = outcome.status == Some(target.status) && outcome.compared() >= target.at_least;
        if outcome.wrong > 0 || !outcome.is_complete() || !worked {
            failures.push((target.name, outcome));
        }
    }
    println!("{compared} stacks");
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(compared >= AT_LEAST, "only {compared} stacks were compared");
}

/// Says past the capture of output that something was not tested, and fails where all must be.
fn skip(why: &str) {
    let strict = env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(!strict, "with CI=true: {why}");
    let _said = writeln!(io::stderr(), "skipped, unwind_check: {why}");
}

/// Checks the program that the environment names, one argument a line.
#[test]
fn a_program_on_request() {
    let Ok(words) = env::var("UNWIND_CHECK") else {
        println!("skipped: UNWIND_CHECK names no program");
        return;
    };
    if let Some(_turn) = turn_to_trace() {
        let words: Vec<&str> = words.lines().collect();
        let outcome = check(&words);
        println!("{}\n{outcome}\n{:#?}", comparison::HEAD, outcome.counters);
        assert_eq!(outcome.wrong, 0, "{:?}", outcome.example);
        assert!(outcome.exact > 0, "nothing was compared");
    }
}

/// Where the sources of targets are.
fn source(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/unwind_check/targets")
        .join(name)
}
