//! Programs that leave functions in unusual ways, or come to life and end in
//! numbers: they behave as they do untraced, and the counts stay exact.

use std::process::Command;

use htrace_tests::heaptrack::Counts;
use htrace_tests::process::run;
use htrace_tests::{Feature, Launch, Recorded, require, target};

fn record(launch: &Launch, name: &str, args: &[&str]) -> Recorded {
    let recorded = launch.run(target(name), args);
    recorded.assert_nothing_lost();
    recorded
}

/// Records `name`, asserts that it behaves as untraced, and that it allocated
/// and leaked what it says beyond what `base` arguments make it do.
fn assert_exact(name: &str, args: &[&str], base: &[&str]) {
    if !require(Feature::Root) {
        return;
    }
    let runtime = Counts::from(&record(&Launch::new(), name, base).trace());
    let recorded = record(&Launch::new(), name, args);
    recorded.assert_same_as(&run(Command::new(target(name)).args(args), b""));
    let (own, truth) = (Counts::from(&recorded.trace()) - runtime, recorded.truth());
    assert_eq!(own.calls, truth.get("calls"), "calls:\n{}", recorded.stderr);
    assert_eq!(
        own.leaked,
        truth.get("leaked"),
        "leaked:\n{}",
        recorded.stderr
    );
}

#[test]
fn a_million_exceptions() {
    assert_exact("exceptions", &["1000000"], &["0"]);
}

#[test]
fn jumps_out_of_functions_handlers_and_allocators() {
    assert_exact("longjmp", &["1000"], &["0"]);
}

#[test]
fn allocations_in_handlers_of_raised_signals() {
    assert_exact("signals", &["raised", "10000"], &["raised", "0"]);
}

#[test]
fn allocations_in_handlers_of_a_timer() {
    assert_exact("signals", &["storm", "2000"], &["storm", "0"]);
}

#[test]
fn allocations_interrupted_by_a_timer() {
    assert_exact("signals", &["interrupted", "100000"], &["interrupted", "0"]);
}

#[test]
fn two_hundred_short_lived_threads() {
    assert_exact("threads", &["25", "100"], &["25", "0"]);
}

#[test]
fn a_child_of_fork_is_not_its_parent() {
    assert_exact("forks", &["20"], &["0"]);
}

#[test]
fn every_form_of_operator_new() {
    assert_exact("operators", &["100"], &["0"]);
}

#[test]
fn a_program_that_may_do_next_to_nothing() {
    assert_exact("sealed", &["1000", "seccomp"], &["0", "undumpable"]);
}

#[test]
fn addresses_that_pass_from_thread_to_thread() {
    if !require(Feature::Root) {
        return;
    }
    // Without caches a freed address is at once every thread's.
    let launch = Launch::new().env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");
    let runtime = Counts::from(&record(&launch, "threads", &["1", "0"]).trace());
    assert!(runtime.calls > 0, "no thread's own allocation was seen");
    let recorded = record(&launch, "handover", &["50000"]);
    let trace = recorded.trace();
    let own = trace.calls_under("reallocate") + trace.calls_under("allocate");
    assert_eq!(own, recorded.truth().get("calls"), "{}", recorded.stderr);
    let leaked = trace.leaked_under("reallocate") + trace.leaked_under("allocate");
    assert_eq!(
        leaked, 0,
        "a free was matched with another thread's block:\n{}",
        recorded.stderr
    );
}
