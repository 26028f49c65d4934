//! Code without unwind data that was made at run time: stacks end there and say so, or go on by frame
//! pointers when that is asked for.

use std::path::Path;

use htrace_tests::process::run;
use htrace_tests::trace_file::Ip;
use htrace_tests::{Feature, Launch, Recorded, Scratch, require, target};

const CALLS: &str = "300";

fn record(options: &[&str]) -> Recorded {
    record_told(options, &[])
}

/// With the file in which the program tells a name, if it has one.
fn record_told(options: &[&str], told: &[&str]) -> Recorded {
    let recorded = Launch::new()
        .options(options)
        .run(target("generated"), &[&[CALLS], told].concat());
    let pid = recorded.truth().get("pid");
    let written = std::fs::remove_file(format!("/tmp/perf-{pid}.map")).is_ok();
    assert_eq!(written, !told.is_empty());
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

/// Functions of the stacks below which the target allocates, without `allocate` itself.
fn functions(recorded: &Recorded) -> Vec<Vec<String>> {
    let trace = recorded.trace();
    let names = |stack: Vec<&Ip>| -> Vec<String> {
        stack.into_iter().map(|ip| ip.function.clone()).collect()
    };
    let stacks = trace.stacks().into_iter();
    stacks
        .map(|(_, stack)| names(stack))
        .filter(|names| names.first().is_some_and(|name| name == "allocate"))
        .map(|names| names[1..].to_vec())
        .collect()
}

const TOLD: &str = "JIT:made_at_run_time";

#[test]
fn generated_code_has_the_name_that_the_program_tells_perf() {
    if !require(Feature::Root) {
        return;
    }
    let cut = record_told(&[], &["own"]);
    let expected = [TOLD, "[stack cut: generated-code]"].map(str::to_owned);
    assert_eq!(functions(&cut), [expected.to_vec()]);
    let guessed = record_told(&["--guess-frame-pointers"], &["own"]);
    let [path] = &functions(&guessed)[..] else {
        panic!("{:?}", functions(&guessed));
    };
    assert_eq!(path[..3], [TOLD, "call_generated", "main"]);
}

#[test]
fn a_file_of_somebody_else_gives_no_names() {
    if !require(Feature::Root) {
        return;
    }
    let recorded = record_told(&[], &["foreign"]);
    assert_eq!(functions(&recorded)[0][0], "");
    assert!(
        recorded.stderr.contains("it is of another user"),
        "{}",
        recorded.stderr
    );
}

#[test]
fn functions_of_javascript_have_names() {
    if !require(Feature::Root) {
        return;
    }
    // Without argument lists; the name of the file is that of no file.
    const SCRIPT: &str = "function makeBuffers(count) {\
        \n  const made = [];\
        \n  for (let i = 0; i < count; i++) made.push(Buffer.allocUnsafeSlow(5000));\
        \n  return made.length;\n}\
        \nlet sum = 0;\nfor (let i = 0; i < 30; i++) sum += makeBuffers(300);\
        \nconsole.log(`pid=${process.pid}\\nmade=${sum}`);";
    let scratch = Scratch::new();
    let mut command = Launch::new().option("--guess-frame-pointers").command(
        &scratch,
        Path::new("node"),
        &["--perf-basic-prof", "-e", SCRIPT],
    );
    // Node leaves a log in the current directory.
    let ended = run(command.current_dir(scratch.path()), b"");
    let recorded = Recorded::of(ended, scratch);
    let truth = recorded.truth();
    let _absent = std::fs::remove_file(format!("/tmp/perf-{}.map", truth.get("pid")));
    recorded.assert_nothing_lost();
    let made = |ip: &&Ip| ip.function.starts_with("JS:") && ip.function.contains("makeBuffers");
    let below: i64 = recorded
        .trace()
        .stacks()
        .into_iter()
        .filter(|(_, stack)| stack.iter().any(made))
        .map(|(count, _)| count)
        .sum();
    // One block or more for each buffer.
    let (made, stderr) = (truth.get("made"), &recorded.stderr);
    assert!(below >= made, "{below} of {made}:\n{stderr}");
}
