//! Attaching to running processes: how a recording ends, whom it leaves alone,
//! and what is said where it cannot be.

use std::process::Command;

use htrace_tests::process::{Ended, Running};
use htrace_tests::text_bytes::changed_code;
use htrace_tests::tracer::record_from_mark;
use htrace_tests::truth::Truth;
use htrace_tests::{Attached, Feature, Launch, caps, require, target};
use nix::sys::signal::Signal;

fn start(name: &str, args: &[&str]) -> Running {
    let mut running = Running::start(Command::new(target(name)).args(args));
    running.wait_for_line("ready");
    running
}

/// Status 1, nothing on stdout, and one of the words in the message.
fn assert_refused(ended: &Ended, words: &[&str]) {
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stdout.is_empty(), "{:?}", ended.stdout);
    let message = ended.stderr.to_lowercase();
    assert!(
        words.iter().any(|word| message.contains(word)),
        "none of {words:?} in: {message}"
    );
    assert!(!message.contains("panicked"), "{message}");
}

fn ends_by(signal: Signal) {
    if !require(Feature::Root) {
        return;
    }
    let mut worker = start("worker", &["1000"]);
    let tracer = Attached::to(worker.pid());
    worker.say(b"g");
    worker.wait_for_line("working");
    let recorded = tracer.stop(signal);
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.stderr);
    assert_eq!(
        changed_code(worker.pid(), "/libc.so.6"),
        [],
        "a probe was left behind"
    );
    worker.wait_for_line("working");
    assert_eq!(
        worker.finish().status.code(),
        Some(11),
        "the target did not live on"
    );

    let trace = recorded.trace();
    assert!(trace.attached && !trace.truncated, "{}", recorded.stderr);
    assert!(
        trace.calls >= 1000,
        "{} calls\n{}",
        trace.calls,
        recorded.stderr
    );
    assert_eq!(
        trace.calls_under("work_a_round"),
        trace.calls,
        "{:?}",
        trace.stacks()
    );
}

#[test]
fn control_c_ends_the_recording_not_the_target() {
    ends_by(Signal::SIGINT);
}

#[test]
fn sigterm_ends_the_recording_not_the_target() {
    ends_by(Signal::SIGTERM);
}

#[test]
fn a_duration_ends_the_recording() {
    if !require(Feature::Root) {
        return;
    }
    let mut worker = start("worker", &["1000"]);
    let tracer = Attached::with(
        &Launch::new().option("--duration").option("1s"),
        worker.pid(),
    );
    worker.say(b"g");
    let recorded = tracer.finish();
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.stderr);
    assert!(worker.is_alive(), "the target ended");
    assert_eq!(worker.finish().status.code(), Some(11));
    assert!(recorded.trace().calls > 0, "{}", recorded.stderr);
}

#[test]
fn another_process_of_the_same_program_is_not_recorded() {
    if !require(Feature::Root) {
        return;
    }
    let mut traced = start("counts", &["1", "200", "all", "wait"]);
    let mut bystander = start("counts", &["1", "2000", "all", "wait"]);
    let tracer = Attached::to(traced.pid());
    bystander.say(b"g");
    assert_eq!(bystander.finish().status.code(), Some(0));
    traced.say(b"g");
    let truth = Truth::parse(&traced.finish().stdout);
    let recorded = tracer.finish();
    assert_eq!(
        recorded.trace().calls,
        truth.get("mark_calls"),
        "{}",
        recorded.stderr
    );
}

#[test]
fn a_plugin_loaded_after_attaching_is_named() {
    if !require(Feature::Root) {
        return;
    }
    let [alpha, beta] =
        ["alpha.so", "beta.so"].map(|name| target(name).to_string_lossy().into_owned());
    let mut plugins = start("plugins", &["5", "50", &alpha, &beta, "wait"]);
    let tracer = Attached::to(plugins.pid());
    plugins.say(b"g");
    let truth = Truth::parse(&plugins.finish().stdout);
    let recorded = tracer.finish();
    let trace = recorded.trace();
    for function in ["alpha_allocates", "beta_allocates"] {
        let calls = trace.calls_under(function);
        assert_eq!(
            calls,
            truth.get("calls_each"),
            "{function}: {:?}",
            trace.stacks()
        );
    }
}

#[test]
fn sealed_processes_can_be_attached_to() {
    if !require(Feature::Root) {
        return;
    }
    for seal in ["seccomp", "undumpable"] {
        let mut sealed = Command::new(target("sealed"));
        let (recorded, ended) =
            record_from_mark(&Launch::new(), sealed.args(["500", seal, "wait"]));
        assert_eq!(
            ended.status.code(),
            Some(13),
            "{seal}:\n{}",
            recorded.stderr
        );
        let calls = Truth::parse(&ended.stdout).get("calls");
        assert_eq!(
            recorded.trace().calls,
            calls,
            "{seal}:\n{}",
            recorded.stderr
        );
    }
}

#[test]
fn no_such_process() {
    if !require(Feature::Root) {
        return;
    }
    // Beyond the largest process id of any kernel.
    let ended = Launch::new().attach_in_vain(4_194_305);
    assert_refused(&ended, &["no such process", "no process", "does not exist"]);
    assert!(ended.stderr.contains("4194305"), "{}", ended.stderr);
}

#[test]
fn a_kernel_thread() {
    if !require(Feature::Root) || !require(Feature::KernelThreads) {
        return;
    }
    assert_refused(&Launch::new().attach_in_vain(2), &["kernel"]);
}

#[test]
fn a_process_without_malloc() {
    if !require(Feature::Root) {
        return;
    }
    let static_program = start("static_asm", &[]);
    assert_refused(
        &Launch::new().attach_in_vain(static_program.pid()),
        &["malloc"],
    );
    assert_eq!(
        static_program.finish().status.code(),
        Some(0),
        "the target did not live on"
    );
}

#[test]
fn a_process_that_is_already_traced() {
    if !require(Feature::Root) {
        return;
    }
    let mut counts = start("counts", &["1", "200", "all", "wait"]);
    let first = Attached::to(counts.pid());
    let ended = Launch::new().attach_in_vain(counts.pid());
    assert_refused(&ended, &["already"]);

    // The first goes on undisturbed.
    counts.say(b"g");
    let truth = Truth::parse(&counts.finish().stdout);
    let recorded = first.finish();
    assert_eq!(
        recorded.trace().calls,
        truth.get("mark_calls"),
        "{}",
        recorded.stderr
    );
}

#[test]
fn a_process_can_be_traced_again() {
    if !require(Feature::Root) {
        return;
    }
    let mut worker = start("worker", &["1000", "paced"]);
    for _ in 0..2 {
        let tracer = Attached::to(worker.pid());
        worker.say(b"g");
        worker.wait_for_line("working");
        let recorded = tracer.stop(Signal::SIGINT);
        assert_eq!(recorded.trace().calls, 1000, "{}", recorded.stderr);
    }
    assert_eq!(worker.finish().status.code(), Some(11));
}

#[test]
fn threads_in_the_middle_of_calls_survive_coming_and_going() {
    if !require(Feature::Root) {
        return;
    }
    let busy = start("busy", &["4"]);
    for _ in 0..4 {
        let recorded = Attached::to(busy.pid()).stop(Signal::SIGINT);
        assert_eq!(recorded.status.code(), Some(0), "{}", recorded.stderr);
        // The model refuses a free of what was never allocated.
        let trace = recorded.trace();
        assert!(trace.leaked >= 0 && !trace.truncated, "{}", recorded.stderr);
        assert_eq!(
            changed_code(busy.pid(), "/libc.so.6"),
            [],
            "a probe was left behind"
        );
    }
    let ended = busy.finish();
    assert_eq!(ended.status.code(), Some(14), "{}", ended.stderr);
    assert!(ended.stdout.ends_with(b"done\n"));
}

#[test]
fn somebody_elses_process() {
    if !require(Feature::Root) || !require(Feature::Setpriv) {
        return;
    }
    let worker = start("worker", &[]);
    let scratch = htrace_tests::Scratch::new();
    let tracer = scratch.copy_program(&htrace_tests::tracer::binary());
    let nobody = Launch::new()
        .under(&caps::nobody_with(&["bpf", "perfmon"]))
        .binary(tracer);
    assert_refused(
        &nobody.attach_in_vain(worker.pid()),
        &["permission", "not permitted"],
    );
}
