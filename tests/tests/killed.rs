//! SIGKILL for the tracer at a random moment: the target runs on, unchanged,
//! and ends as ever; the file opens and says that it is cut short.

use std::process::Command;

use htrace_tests::process::{Ended, Running};
use htrace_tests::report::Report;
use htrace_tests::text_bytes::changed_code;
use htrace_tests::trace_file::Trace;
use htrace_tests::tracer::report;
use htrace_tests::truth::Truth;
use htrace_tests::{Feature, Launch, Scratch, require, target};

/// Numbers that differ from run to run; a failure prints the moment.
fn random_moments(count: usize, below: u64) -> Vec<u64> {
    use std::hash::{BuildHasher as _, RandomState};
    (0..count)
        .map(|i| RandomState::new().hash_one(i) % below)
        .collect()
}

/// No breakpoint is left in the code of the libraries that are probed.
fn assert_untouched(pid: u32, moment: u64) {
    for library in ["/libc.so.6", "/ld-linux-x86-64.so.2"] {
        assert_eq!(
            changed_code(pid, library),
            [],
            "{library} after {moment} lines"
        );
    }
}

fn assert_ended_well(stdout: &[u8], moment: u64) {
    assert!(
        stdout.ends_with(b"done\n"),
        "the target did not end well after {moment} lines"
    );
}

/// The status of a report on a file that is not whole.
const DAMAGED: i32 = 3;

/// The file opens, holds what was recorded by then, and says that it is cut.
fn assert_cut_short(scratch: &Scratch, moment: u64) {
    let file = scratch.join("trace.zst");
    let Ended {
        status,
        stdout,
        stderr,
    } = report(&file);
    assert_eq!(
        status.code(),
        Some(DAMAGED),
        "after {moment} lines:\n{stderr}"
    );
    assert!(
        stderr.contains("cut short"),
        "after {moment} lines:\n{stderr}"
    );
    let totals = Report::new(&stdout);
    // Whatever is there is well-formed, and all of it is reported.
    assert_eq!(
        totals.calls(),
        Trace::read(&file).calls,
        "after {moment} lines:\n{stderr}"
    );
}

/// Kills an attached tracer, while it starts or while it records.
fn kill_attached(moment: u64, recording: bool) {
    let mut worker = Running::start(Command::new(target("worker")).args(["500", "paced"]));
    worker.wait_for_line("ready");
    let scratch = Scratch::new();
    let mut tracer = Running::start(&mut Launch::new().attach_command(&scratch, worker.pid()));
    if recording {
        tracer.wait_for_stderr("recording");
    }
    // The worker's lines are the clock.
    for _ in 0..moment {
        worker.say(b"g");
        worker.wait_for_line("working");
    }
    // It is in the middle of things when its tracer dies.
    worker.say(b"gggg");
    tracer.kill();
    assert_untouched(worker.pid(), moment);
    let worker = worker.finish();
    assert_ended_well(&worker.stdout, moment);
    assert_eq!(
        worker.status.code(),
        Some(11),
        "after {moment} lines: {}",
        worker.stderr
    );
    if recording {
        assert_cut_short(&scratch, moment);
    }
}

#[test]
fn while_it_attaches() {
    if !require(Feature::Root) {
        return;
    }
    for moment in random_moments(4, 20_000) {
        kill_attached(moment, false);
    }
}

#[test]
fn while_attached() {
    if !require(Feature::Root) {
        return;
    }
    for moment in random_moments(8, 300) {
        kill_attached(moment, true);
    }
}

#[test]
fn while_a_launched_program_runs() {
    if !require(Feature::Root) {
        return;
    }
    for moment in random_moments(8, 300) {
        let scratch = Scratch::new();
        let command = &mut Launch::new().command(&scratch, &target("worker"), &["500"]);
        let mut tracer = Running::start(command);
        let pid = Truth::parse(tracer.wait_for_line("pid=").as_bytes()).get("pid");
        tracer.wait_for_line("ready");
        tracer.say(b"g");
        for _ in 0..moment {
            tracer.wait_for_line("working");
        }
        tracer.kill();
        // Its output goes on after the tracer's death.
        tracer.wait_for_line("working");
        tracer.wait_for_line("working");
        assert_untouched(u32::try_from(pid).expect("a process id"), moment);
        let ended = tracer.finish();
        assert_ended_well(&ended.stdout, moment);
        assert_cut_short(&scratch, moment);
    }
}
