//! Compares the stacks that the BPF programs take with those of libgcc's unwinder, in the same
//! process at the same calls. Needs root, because it loads BPF programs.
//!
//! `cargo xtask unwind-check PROGRAM ARGS…` runs this for any program.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails"
)]

mod harness;
mod oracle;

use std::{
    env,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use harness::{Outcome, check};

/// Held while a test traces. A target that waits for its tables keeps a CPU busy, so two of them
/// can keep each other's recorders from running until the waits end without tables.
static TRACING: Mutex<()> = Mutex::new(());

/// The right to trace, one test at a time; says why if this test cannot.
fn turn_to_trace() -> Option<MutexGuard<'static, ()>> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root to load BPF programs");
        return None;
    }
    // A test that failed has left nothing behind that could hurt the next one.
    Some(TRACING.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Fails unless all stacks are right, and all but one in a thousand whole. `short` is how many may
/// be short besides, where the reference ends there, too.
#[track_caller]
fn assert_right(outcome: &Outcome, at_least: u64, short: u64) {
    println!("{outcome:#?}");
    assert_eq!(outcome.wrong, 0, "{outcome:#?}");
    let checked = outcome.exact + outcome.short.values().sum::<u64>();
    assert!(checked >= at_least, "only {checked} stacks were compared");
    let whole = checked - outcome.short.values().sum::<u64>();
    assert!(checked - whole <= short + checked / 1000, "{outcome:#?}");
}

#[test]
fn programs_of_the_system() {
    let Some(_turn) = turn_to_trace() else {
        return;
    };
    let git: &[&str] = &["git", "--version"];
    let programs: [(&[&str], u64); 5] = [
        (
            &["bash", "-c", "for i in {1..200}; do x=${i}y; a[i]=$x; done"],
            500,
        ),
        (
            &[
                "perl",
                "-e",
                "@a = map { 'x' . $_ } 1..2000; print scalar @a",
            ],
            1000,
        ),
        (&["ls", "-lR", "/usr/share/doc"], 1000),
        (
            &[
                "python3",
                "-c",
                "import json, ctypes, decimal; json.dumps(list(range(99)))",
            ],
            1000,
        ),
        (git, 1),
    ];
    for (program, at_least) in programs {
        println!("{program:?}");
        assert_right(&check(program), at_least, 0);
    }
}

#[test]
fn a_program_of_all_difficulties() {
    let Some(_turn) = turn_to_trace() else {
        return;
    };
    for flags in [
        &["-O2", "-mavx2"][..],
        &["-O0"],
        &["-O3", "-fomit-frame-pointer"],
    ] {
        let program = oracle::compile_cpp("tricky.cpp", flags);
        println!("{flags:?}");
        // A coroutine of makecontext has no caller.
        assert_right(&check(&[&program.path()]), 1000, 40);
    }
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
        println!("{outcome:#?}");
        assert_eq!(outcome.wrong, 0);
        assert!(outcome.exact > 0, "nothing was compared");
    }
}

/// Where the sources of targets are.
fn source(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/unwind_check/targets")
        .join(name)
}
