//! A recording that its user pauses: what it knows is right, and what it cannot know is told.

use std::process::Command;

use htrace_tests::process::Running;
use htrace_tests::tracer::report;
use htrace_tests::{Attached, Feature, Launch, Recorded, require, target};
use nix::sys::signal::Signal;

/// Three steps of the target, the second in a pause.
fn record(options: &[&str]) -> Recorded {
    let mut program = Running::start(&mut Command::new(target("pauses")));
    program.wait_for_line("ready");
    let mut tracer = Attached::with(&Launch::new().options(options), program.pid());
    let mut step = || {
        program.say(b"g");
        program.wait_for_line("done");
    };
    step();
    tracer.tracer().signal(Signal::SIGUSR2);
    tracer.tracer().wait_for_stderr("paused");
    step();
    tracer.tracer().signal(Signal::SIGUSR1);
    tracer.tracer().wait_for_stderr("going on");
    step();
    let recorded = tracer.stop(Signal::SIGINT);
    program.close_stdin();
    assert!(program.finish().status.success());
    recorded.assert_nothing_lost();
    recorded
}

#[test]
fn what_is_freed_in_a_pause_is_no_leak_and_what_is_not_known_is_told() {
    if !require(Feature::Root) {
        return;
    }
    for how in [&[][..], &["--return-probes"]] {
        let recorded = record(how);
        let trace = recorded.trace();
        // The block that moved in the pause has ended; the ones of the pause never were.
        assert_eq!((trace.calls, trace.frees), (4, 2), "{}", recorded.stderr);
        assert_eq!(trace.leaked, 1000 + 7000);
        let left_out = recorded.summary("calls left out while paused or waiting:");
        assert_eq!(left_out, 3, "{}", recorded.stderr);
        assert!(recorded.stderr.contains("times paused: 1 ("));

        let ended = report(&recorded.file);
        let text = String::from_utf8_lossy(&ended.stdout);
        let told = [
            "LEFT OUT BY CHOICE",
            "3 calls left out while paused or waiting",
            "1 pause, ",
            "peaks and leaks may be too low",
        ];
        for part in told {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
    }
}
