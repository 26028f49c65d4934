//! Functions and lines of programs with frame pointers: the expected ones are
//! at the top of each ranking.

use std::process::Command;

use htrace_tests::process::run;
use htrace_tests::report::Report;
use htrace_tests::trace_file::{Ip, Trace};
use htrace_tests::truth::Truth;
use htrace_tests::{Feature, Launch, Recorded, require, target};

const THREADS: &str = "3";
const ROUNDS: &str = "200";

fn record() -> Recorded {
    let recorded = Launch::new().run(target("framepointers"), &[THREADS, ROUNDS]);
    recorded.assert_nothing_lost();
    recorded
}

/// Stacks whose leaf is that function.
fn stacks_of<'a>(trace: &'a Trace, leaf: &str) -> Vec<(i64, Vec<&'a Ip>)> {
    let is_leaf = |stack: &[&Ip]| stack.first().is_some_and(|ip| ip.function == leaf);
    trace
        .stacks()
        .into_iter()
        .filter(|(_, stack)| is_leaf(stack))
        .collect()
}

/// A function's calls and line are what the target says, and its callers are
/// the expected ones.
fn assert_function(trace: &Trace, truth: &Truth, name: &str, leaf: &str, callers: &[&str]) {
    let stacks = stacks_of(trace, leaf);
    let calls: i64 = stacks.iter().map(|(calls, _)| calls).sum();
    assert_eq!(
        calls,
        truth.get(&format!("{name}_calls")),
        "calls of {leaf}: {:?}",
        trace.stacks()
    );
    for (_, stack) in stacks {
        assert_eq!(
            stack[0].line,
            truth.get(&format!("{name}_line")),
            "{:?}",
            stack[0]
        );
        assert!(
            stack[0].file.ends_with("framepointers.cpp"),
            "{:?}",
            stack[0]
        );
        assert!(
            stack[0].module.ends_with("/framepointers"),
            "{:?}",
            stack[0]
        );
        let names: Vec<&str> = stack
            .iter()
            .skip(1)
            .map(|ip| ip.function.as_str())
            .collect();
        assert!(names.starts_with(callers), "callers of {leaf}: {names:?}");
    }
}

#[test]
fn functions_lines_and_callers_are_right() {
    if !require(Feature::Root) {
        return;
    }
    let recorded = record();
    let (trace, truth) = (recorded.trace(), recorded.truth());
    let function =
        |name, leaf, callers: &[&str]| assert_function(&trace, &truth, name, leaf, callers);
    let serve = "shop::serve(long)";
    function(
        "parse_record",
        "shop::parse_record(long)",
        &["shop::parse_all(long)", serve],
    );
    function("fill_cache", "shop::Cache::fill_cache(long)", &[serve]);
    function("forget", "shop::forget(long)", &[serve]);
}

#[test]
fn callers_of_operator_new_are_right() {
    if !require(Feature::Root) {
        return;
    }
    let recorded = record();
    let trace = recorded.trace();
    let expected = recorded.truth().get("build_index_calls");
    assert_eq!(
        trace.calls_under("shop::build_index()"),
        expected,
        "{:?}",
        trace.stacks()
    );
}

/// Where a program begins: its own entry, or the dynamic linker's, which runs constructors.
const OUTERMOST: [&str; 2] = ["_start", "_dl_start_user"];

#[test]
fn stacks_that_pass_through_the_library_reach_the_start() {
    if !require(Feature::Root) {
        return;
    }
    let recorded = Launch::new().run(target("counts"), &["1", "50", "all"]);
    let trace = recorded.trace();
    for (calls, stack) in trace.stacks() {
        let names: Vec<&str> = stack.iter().map(|ip| ip.function.as_str()).collect();
        let outermost = names.last().copied().unwrap_or_default();
        assert!(
            OUTERMOST.contains(&outermost),
            "{calls} calls from {names:?}"
        );
    }
    assert_eq!(
        trace.calls_under("through_the_library"),
        50,
        "{:?}",
        trace.stacks()
    );
}

#[test]
fn expected_functions_lead_the_rankings() {
    if !require(Feature::Root) {
        return;
    }
    let recorded = record();
    let (report, truth) = (recorded.report(), recorded.truth());
    assert_leader(
        &report,
        "MOST CALLS TO ALLOCATION FUNCTIONS",
        "shop::parse_record()",
    );
    assert_leader(&report, "MEMORY LEAKS", "shop::forget()");
    assert_leader(
        &report,
        "MOST TEMPORARY ALLOCATIONS",
        "shop::parse_record()",
    );
    let line = format!("framepointers.cpp:{}", truth.get("parse_record_line"));
    let first = report.groups("MOST CALLS TO ALLOCATION FUNCTIONS")[0];
    assert!(first.contains(&line), "no `{line}` in:\n{first}");
}

fn assert_leader(report: &Report, section: &str, function: &str) {
    let leader = report.leaves(section).first().copied().unwrap_or_default();
    // Argument types are printed; only the name matters here.
    let name = leader.split('(').next().unwrap_or(leader);
    assert_eq!(
        format!("{name}()"),
        function,
        "first of {section}:\n{}",
        report.text
    );
}

#[test]
fn plugins_at_the_same_address_keep_their_names() {
    if !require(Feature::Root) {
        return;
    }
    let [alpha, beta] =
        ["alpha.so", "beta.so"].map(|name| target(name).to_string_lossy().into_owned());
    let args = ["10", "100", &alpha, &beta];
    let recorded = Launch::new().run(target("plugins"), &args);
    recorded.assert_same_as(&run(Command::new(target("plugins")).args(args), b""));
    recorded.assert_nothing_lost();
    let (trace, truth) = (recorded.trace(), recorded.truth());
    assert!(
        truth.get("same_address") > 0,
        "the plugins never shared an address"
    );
    for (function, module) in [
        ("alpha_allocates", "alpha.so"),
        ("beta_allocates", "beta.so"),
    ] {
        let stacks = stacks_of(&trace, function);
        let calls: i64 = stacks.iter().map(|(calls, _)| calls).sum();
        assert_eq!(
            calls,
            truth.get("calls_each"),
            "calls of {function}: {:?}",
            trace.stacks()
        );
        for (_, stack) in stacks {
            assert!(stack[0].module.ends_with(module), "{:?}", stack[0]);
            assert!(stack[0].file.ends_with("plugin.c"), "{:?}", stack[0]);
            assert!(
                stack.iter().any(|ip| ip.function == "main"),
                "main is not in {stack:?}"
            );
        }
    }
}

#[test]
fn a_program_that_is_gone_at_once_is_named() {
    if !require(Feature::Root) {
        return;
    }
    for _ in 0..5 {
        let recorded = Launch::new().run(target("ends"), &["1", "return"]);
        let trace = recorded.trace();
        let stacks = stacks_of(&trace, "keep_block");
        assert_eq!(stacks.len(), 1, "{:?}\n{}", trace.stacks(), recorded.stderr);
        assert!(stacks[0].1[0].file.ends_with("ends.c"), "{:?}", stacks[0]);
    }
}

#[test]
fn a_hundred_frames_are_not_too_many() {
    if !require(Feature::Root) {
        return;
    }
    let recorded = Launch::new().run(target("deep"), &["100"]);
    let trace = recorded.trace();
    let stacks = stacks_of(&trace, "descend");
    assert_eq!(stacks.len(), 1, "{:?}", trace.stacks());
    let names: Vec<&str> = stacks[0].1.iter().map(|ip| ip.function.as_str()).collect();
    assert_eq!(
        names.iter().take_while(|name| **name == "descend").count(),
        100,
        "{names:?}"
    );
    assert_eq!(names[100], "main", "{names:?}");
}
