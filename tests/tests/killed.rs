//! SIGKILL for the tracer at a random moment: the target runs on, unchanged,
//! and ends as ever; the file opens and says that it is cut short.

use std::process::Command;

use htrace_tests::process::{Ended, Running};
use htrace_tests::text_bytes::changed_code;
use htrace_tests::trace_file::Trace;
use htrace_tests::tracer::report;
use htrace_tests::truth::Truth;
use htrace_tests::{Feature, Launch, Scratch, require, target};
use nix::sys::signal::Signal;

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

/// The file opens, holds what was recorded by then, and says that it is cut.
fn assert_cut_short(scratch: &Scratch, moment: u64) {
    let file = scratch.join("trace.zst");
    let Ended {
        status,
        stdout,
        stderr,
    } = report(&file);
    assert!(status.success(), "after {moment} lines: {status}\n{stderr}");
    let text = String::from_utf8_lossy(&stdout) + stderr.as_str();
    assert!(text.contains("cut short"), "after {moment} lines:\n{text}");
    // Whatever is there is well-formed.
    let _ = Trace::read(&file);
}

#[test]
fn while_attached() {
    if !require(Feature::Root) {
        return;
    }
    for moment in random_moments(10, 150) {
        let mut worker = Running::start(Command::new(target("worker")).arg("500"));
        worker.wait_for_line("ready");
        worker.say(b"g");
        let scratch = Scratch::new();
        // The worker's lines are the clock; it runs while the tracer starts.
        let tracer = Running::start(&mut Launch::new().attach_command(&scratch, worker.pid()));
        for _ in 0..moment {
            worker.wait_for_line("working");
        }
        tracer.signal(Signal::SIGKILL);
        let ended = tracer.finish();
        assert_untouched(worker.pid(), moment);
        let worker = worker.finish();
        assert_ended_well(&worker.stdout, moment);
        assert_eq!(
            worker.status.code(),
            Some(11),
            "after {moment} lines: {}",
            worker.stderr
        );
        if ended.stderr.contains("recording") {
            assert_cut_short(&scratch, moment);
        }
    }
}

#[test]
fn while_a_launched_program_runs() {
    if !require(Feature::Root) {
        return;
    }
    for moment in random_moments(10, 300) {
        let scratch = Scratch::new();
        let command = &mut Launch::new().command(&scratch, &target("worker"), &["500"]);
        let mut tracer = Running::start(command);
        let pid = Truth::parse(tracer.wait_for_line("pid=").as_bytes()).get("pid");
        tracer.wait_for_line("ready");
        tracer.say(b"g");
        for _ in 0..moment {
            tracer.wait_for_line("working");
        }
        tracer.signal(Signal::SIGKILL);
        // Its output goes on after the tracer's death.
        tracer.wait_for_line("working");
        tracer.wait_for_line("working");
        assert_untouched(u32::try_from(pid).expect("a process id"), moment);
        let ended = tracer.finish();
        assert_ended_well(&ended.stdout, moment);
        assert_cut_short(&scratch, moment);
    }
}
