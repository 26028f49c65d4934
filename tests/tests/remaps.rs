//! Code that is mapped without the dynamic linker, where other code lay before.

use std::process::Command;

use htrace_tests::process::run;
use htrace_tests::{Feature, Launch, require, target};

#[test]
fn code_that_replaces_other_code_has_its_own_frames_and_names() {
    if !require(Feature::Root) {
        return;
    }
    let [small, large] =
        ["small.code", "large.code"].map(|name| target(name).to_string_lossy().into_owned());
    let args = ["300", &small, &large];
    let recorded = Launch::new().run(target("remaps"), &args);
    recorded.assert_same_as(&run(Command::new(target("remaps")).args(args), b""));
    recorded.assert_nothing_lost();
    let (trace, truth) = (recorded.trace(), recorded.truth());
    for function in ["small_frame", "large_frame"] {
        let mut calls = 0;
        for (count, stack) in trace.stacks() {
            let names: Vec<&str> = stack.iter().map(|ip| ip.function.as_str()).collect();
            if names.first() != Some(&"allocate") || !names.contains(&function) {
                continue;
            }
            assert_eq!(
                names.get(..4),
                Some(&["allocate", function, "use", "main"][..]),
                "{names:?}"
            );
            calls += count;
        }
        assert_eq!(
            calls,
            truth.get("calls_each"),
            "{function}: {:?}",
            trace.stacks()
        );
    }
}
