//! A target in its own user, mount and pid namespaces under another root:
//! attached to from outside, its names and lines are resolved from inside.

use std::process::Command;

use htrace_tests::executed::Executions;
use htrace_tests::new_root::NewRoot;
use htrace_tests::process::run;
use htrace_tests::truth::Truth;
use htrace_tests::{Attached, Feature, require};

#[test]
fn names_and_lines_are_those_of_the_other_root() {
    if !require(Feature::Root) || !require(Feature::UserNamespaces) {
        return;
    }
    let root = NewRoot::with("framepointers");
    let (mut target, pid) = root.start("framepointers", &["2", "100", "wait"]);
    let tracer = Attached::to(pid);
    target.say(b"g");
    let ended = target.finish();
    let recorded = tracer.finish();
    assert_eq!(
        ended.status.code(),
        Some(0),
        "{}\n{}",
        ended.stderr,
        recorded.stderr
    );
    recorded.assert_nothing_lost();

    let (trace, truth) = (recorded.trace(), Truth::parse(&ended.stdout));
    let stacks = trace.stacks();
    let (calls, stack) = &stacks[0];
    assert_eq!(*calls, truth.get("parse_record_calls"), "{stack:?}");
    assert_eq!(stack[0].function, "shop::parse_record(long)", "{stack:?}");
    assert_eq!(stack[0].line, truth.get("parse_record_line"), "{stack:?}");
    // The path is the one inside, where nothing of the host's is in sight.
    assert_eq!(stack[0].module, "/bin/framepointers", "{stack:?}");
    assert!(!root.path().starts_with("/bin"));
    let named = stacks
        .iter()
        .filter(|(_, stack)| stack.iter().all(|ip| !ip.function.is_empty()));
    assert!(named.count() > 0, "{stacks:?}");
}

/// What a tracer could be tempted to run.
const DECOYS: [&str; 9] = [
    "bin/sh",
    "bin/bash",
    "usr/bin/ldd",
    "usr/bin/addr2line",
    "usr/bin/debuginfod-find",
    "usr/bin/gdb",
    "usr/bin/objdump",
    "usr/bin/zstd",
    "usr/bin/id",
];

#[test]
fn nothing_of_the_other_root_is_executed() {
    if !require(Feature::Root) || !require(Feature::UserNamespaces) {
        return;
    }
    let root = NewRoot::with("framepointers");
    for decoy in DECOYS {
        root.add_decoy("framepointers", decoy);
    }
    let (mut target, pid) = root.start("framepointers", &["2", "100", "wait"]);
    let executions = Executions::below(root.path());
    assert!(executions.files > DECOYS.len(), "{executions:?}");
    let tracer = Attached::to(pid);
    target.say(b"g");
    let ended = target.finish();
    let recorded = tracer.finish();
    assert_eq!(ended.status.code(), Some(0), "{}", recorded.stderr);
    let trace = recorded.trace();
    let (_, stack) = &trace.stacks()[0];
    assert_eq!(stack[0].function, "shop::parse_record(long)", "{stack:?}");
    assert_eq!(executions.so_far(), [], "{}", recorded.stderr);
    // Had anything been executed, it would be known.
    let mut decoy = Command::new(root.path().join(DECOYS[0]));
    run(decoy.args(["1", "1"]), b"");
    assert_eq!(executions.so_far().len(), 1);
}
