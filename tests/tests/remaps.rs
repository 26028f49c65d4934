//! Code that is mapped without the dynamic linker, where other code lay before.

use std::process::Command;

use htrace_tests::process::run;
use htrace_tests::{Feature, Launch, require, target};

#[test]
fn code_that_replaces_other_code_has_its_own_frames_and_names() {
    if require(Feature::Root) {
        assert_each_has_its_own_frames("300", None);
    }
}

#[test]
fn stacks_are_whole_while_the_mappings_are_locked_half_of_the_time() {
    if require(Feature::Root) {
        assert_each_has_its_own_frames("100", Some("lock"));
    }
}

fn assert_each_has_its_own_frames(rounds: &str, lock: Option<&str>) {
    let [small, large] =
        ["small.code", "large.code"].map(|name| target(name).to_string_lossy().into_owned());
    let mut args = vec![rounds, &small, &large];
    args.extend(lock);
    let recorded = Launch::new().run(target("remaps"), &args);
    recorded.assert_same_as(&run(Command::new(target("remaps")).args(&args), b""));
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
            assert_eq!(names.last(), Some(&"_start"), "{names:?}");
            calls += count;
        }
        assert_eq!(
            calls,
            truth.get("calls_each"),
            "{function}: {:?}",
            trace.stacks()
        );
    }
    // Each mapping has instruction pointers of its own; in the report that is one place.
    let text = recorded.report().text;
    let lines: Vec<&str> = text.lines().collect();
    let row = format!("{} calls with ", truth.get("calls_each"));
    for function in ["small_frame", "large_frame"] {
        let rows = lines
            .windows(2)
            .filter(|pair| pair[0].contains(" calls with ") && pair[1].trim_start() == function);
        let rows: Vec<&str> = rows.map(|pair| pair[0]).collect();
        assert!(
            matches!(rows[..], [only] if only.starts_with(&row)),
            "{function}: {rows:?}\n{text}"
        );
    }
}
