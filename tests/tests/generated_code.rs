//! Code without unwind data that was made at run time: stacks end there and say so, or go on by frame
//! pointers when that is asked for.

use htrace_tests::{Feature, Launch, Recorded, require, target};

const CALLS: &str = "300";

fn record(options: &[&str]) -> Recorded {
    let recorded = Launch::new()
        .options(options)
        .run(target("generated"), &[CALLS]);
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.stderr);
    recorded.assert_nothing_lost();
    recorded
}

/// Allocations below the generated code, by the names of their frames without the one that has
/// none.
fn paths(recorded: &Recorded) -> Vec<(i64, Vec<String>)> {
    let trace = recorded.trace();
    let mut paths = Vec::new();
    for (count, stack) in trace.stacks() {
        let names: Vec<String> = stack.iter().map(|ip| ip.function.clone()).collect();
        if names.first().is_some_and(|name| name == "allocate") {
            assert_eq!(names[1], "", "generated code has no name");
            paths.push((count, [&names[..1], &names[2..]].concat()));
        }
    }
    paths
}

#[test]
fn stacks_end_in_generated_code_and_say_so() {
    if !require(Feature::Root) {
        return;
    }
    let recorded = record(&[]);
    let calls = recorded.truth().get("calls");
    let cut = ["allocate", "[stack cut: generated-code]"].map(str::to_owned);
    assert_eq!(paths(&recorded), [(calls, cut.to_vec())]);
    let told = format!("stacks cut short: {calls} of ");
    assert!(recorded.stderr.contains(&told), "{}", recorded.stderr);
}

#[test]
fn frame_pointers_lead_through_generated_code_when_asked_for() {
    if !require(Feature::Root) {
        return;
    }
    let recorded = record(&["--guess-frame-pointers"]);
    let calls = recorded.truth().get("calls");
    let [(count, path)] = &paths(&recorded)[..] else {
        panic!("{:?}", paths(&recorded));
    };
    assert_eq!(*count, calls);
    assert_eq!(path[..3], ["allocate", "call_generated", "main"]);
    assert_eq!(path.last().map(String::as_str), Some("_start"));
    let told = format!("stacks that rest on frame pointers: {calls} of ");
    assert!(recorded.stderr.contains(&told), "{}", recorded.stderr);
}
