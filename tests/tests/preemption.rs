//! 64 threads on one processor: whoever is preempted in the middle of a stack must find it as it
//! was. It says most on a kernel that preempts itself (`preempt=full`), where a probe's program can
//! be interrupted by another thread's.

use std::env;

use htrace_tests::{Feature, Launch, require, target};

/// How often each thread allocates, unless the environment says otherwise: for a run of minutes.
const ROUNDS: &str = "1000";
const ROUNDS_VARIABLE: &str = "HTRACE_PREEMPTION_ROUNDS";

#[test]
fn stacks_of_different_threads_never_mix() {
    if !require(Feature::Root) {
        return;
    }
    let rounds = env::var(ROUNDS_VARIABLE).unwrap_or_else(|_| ROUNDS.to_owned());
    let recorded = Launch::new().run(target("chains"), &[&rounds]);
    recorded.assert_nothing_lost();
    let (trace, truth) = (recorded.trace(), recorded.truth());
    for kind in ["left", "right"] {
        let calls = trace.calls_under(&format!("{kind}_run"));
        let expected = truth.get("calls_each");
        assert_eq!(calls, expected, "{kind}:\n{}", recorded.stderr);
    }
    for (_, stack) in trace.stacks() {
        let has = |kind: &str| stack.iter().any(|ip| ip.function.starts_with(kind));
        assert!(!(has("left_") && has("right_")), "a mixed stack: {stack:?}");
    }
}
