//! However a program ends, everything up to its last instruction is recorded
//! and named, and its status is its own.

use std::process::Command;

use htrace_tests::process::run;
use htrace_tests::{Feature, Launch, Recorded, require, target};

const BLOCKS: &str = "500";

fn assert_complete(end: &str, status: i32) -> Option<Recorded> {
    if !require(Feature::Root) {
        return None;
    }
    let args = [BLOCKS, end];
    let recorded = Launch::new().run(target("ends"), &args);
    recorded.assert_same_as(&run(Command::new(target("ends")).args(args), b""));
    assert_eq!(recorded.status.code(), Some(status), "{}", recorded.stderr);
    recorded.assert_nothing_lost();
    let (trace, truth) = (recorded.trace(), recorded.truth());
    assert!(
        !trace.truncated,
        "the file is cut short:\n{}",
        recorded.stderr
    );
    assert_eq!(
        trace.calls_under("keep_block"),
        truth.get("calls"),
        "{}",
        recorded.stderr
    );
    // What a program holds when it executes another goes with its memory.
    let leaked = if end == "exec" {
        0
    } else {
        truth.get("leaked")
    };
    assert_eq!(
        trace.leaked_under("keep_block"),
        leaked,
        "{}",
        recorded.stderr
    );
    assert!(trace.peak >= truth.get("leaked"), "{}", recorded.stderr);
    Some(recorded)
}

#[test]
fn returning_from_main() {
    if let Some(recorded) = assert_complete("return", 7) {
        let (trace, truth) = (recorded.trace(), recorded.truth());
        assert_eq!(trace.calls, truth.get("calls"), "{}", recorded.stderr);
    }
}

#[test]
fn calling_exit_at_once() {
    assert_complete("_exit", 8);
}

#[test]
fn aborting() {
    assert_complete("abort", 128 + 6);
}

#[test]
fn killed() {
    assert_complete("kill", 128 + 9);
}

#[test]
fn faulting() {
    assert_complete("segv", 128 + 11);
}

#[test]
fn executing_another_program() {
    assert_complete("exec", 9);
}

#[test]
fn with_every_descriptor_closed() {
    assert_complete("closed", 10);
}
