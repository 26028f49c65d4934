//! A target in its own user, mount and pid namespaces under another root:
//! attached to from outside, its names and lines are resolved from inside.

use htrace_tests::new_root::NewRoot;
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
