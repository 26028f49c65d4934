//! Every allocation function, from one and from four threads, launched and
//! attached: calls, peak and leaks equal the program's own books exactly.

use std::process::Command;

use htrace_tests::heaptrack::Counts;
use htrace_tests::report::size;
use htrace_tests::tracer::record_from_mark;
use htrace_tests::{Feature, Launch, Recorded, require, target};

const ROUNDS: &str = "1000";

fn launch(threads: &str, rounds: &str) -> Recorded {
    let recorded = Launch::new().run(target("counts"), &[threads, rounds, "all"]);
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.stderr);
    recorded.assert_nothing_lost();
    recorded
}

fn attach(threads: &str) -> (Recorded, htrace_tests::truth::Truth) {
    let mut counts = Command::new(target("counts"));
    counts.args([threads, ROUNDS, "all", "wait"]);
    let (recorded, ended) = record_from_mark(&Launch::new(), &mut counts);
    assert_eq!(ended.status.code(), Some(0), "{}", recorded.stderr);
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.stderr);
    recorded.assert_nothing_lost();
    (recorded, htrace_tests::truth::Truth::parse(&ended.stdout))
}

fn assert_report(recorded: &Recorded, calls: i64, peak: i64, leaked: i64) {
    let report = recorded.report();
    assert_eq!(report.calls(), calls, "{}", report.text);
    assert_eq!(
        report.total("peak heap memory consumption"),
        size(peak),
        "{}",
        report.text
    );
    assert_eq!(
        report.total("total memory leaked"),
        size(leaked),
        "{}",
        report.text
    );
    assert_eq!(
        recorded.summary("allocations:"),
        calls,
        "{}",
        recorded.stderr
    );
}

#[test]
fn a_program_without_allocations_has_none() {
    if !require(Feature::Root) {
        return;
    }
    let recorded = launch("1", "0");
    assert_eq!(
        Counts::from(&recorded.trace()),
        Counts::default(),
        "{}",
        recorded.stderr
    );
}

#[test]
fn launched_with_one_thread() {
    if !require(Feature::Root) {
        return;
    }
    let recorded = launch("1", ROUNDS);
    let (trace, truth) = (recorded.trace(), recorded.truth());
    let [calls, peak, leaked] =
        ["calls", "peak", "leaked"].map(|key| truth.get(&format!("total_{key}")));
    assert_eq!(
        Counts::from(&trace),
        Counts {
            calls,
            peak,
            leaked
        },
        "{}",
        recorded.stderr
    );
    assert!(
        !trace.attached,
        "a launched program's file is marked as attached"
    );
    assert_report(&recorded, calls, peak, leaked);
}

#[test]
fn launched_with_four_threads() {
    if !require(Feature::Root) {
        return;
    }
    // What the C library allocates for its threads is there without rounds too.
    let base = Counts::from(&launch("4", "0").trace());
    let recorded = launch("4", ROUNDS);
    let (own, truth) = (Counts::from(&recorded.trace()) - base, recorded.truth());
    assert_eq!(own.calls, truth.get("total_calls"), "{}", recorded.stderr);
    assert_eq!(own.leaked, truth.get("total_leaked"), "{}", recorded.stderr);
}

#[test]
fn attached_with_one_thread() {
    if !require(Feature::Root) {
        return;
    }
    let (recorded, truth) = attach("1");
    let trace = recorded.trace();
    let [calls, peak, leaked] =
        ["calls", "peak", "leaked"].map(|key| truth.get(&format!("mark_{key}")));
    assert_eq!(
        Counts::from(&trace),
        Counts {
            calls,
            peak,
            leaked
        },
        "{}",
        recorded.stderr
    );
    assert!(trace.attached, "the file is not marked as attached");
    assert_report(&recorded, calls, peak, leaked);
}

#[test]
fn attached_with_four_threads() {
    if !require(Feature::Root) {
        return;
    }
    let (recorded, truth) = attach("4");
    let trace = recorded.trace();
    assert_eq!(trace.calls, truth.get("mark_calls"), "{}", recorded.stderr);
    assert_eq!(
        trace.leaked,
        truth.get("mark_leaked"),
        "{}",
        recorded.stderr
    );
    assert_report(&recorded, trace.calls, trace.peak, trace.leaked);
}
