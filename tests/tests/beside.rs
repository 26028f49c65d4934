//! Other tools at the same process: each does its work, or says why it cannot.

use std::process::Command;

use htrace_tests::process::{Running, run};
use htrace_tests::tracer::{Attached, record_from_mark};
use htrace_tests::truth::Truth;
use htrace_tests::{Feature, Launch, Scratch, require, target};

fn counts() -> Running {
    let mut counts =
        Running::start(Command::new(target("counts")).args(["1", "200", "all", "wait"]));
    counts.wait_for_line("ready");
    counts
}

/// Two recorders of ours: the second is refused, the first goes on.
#[test]
fn a_second_recorder_is_refused() {
    if !require(Feature::Root) {
        return;
    }
    let mut counts = counts();
    let tracer = Attached::to(counts.pid());
    let refused = Launch::new().attach_in_vain(counts.pid());
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("already being recorded"),
        "{}",
        refused.stderr
    );
    counts.say(b"g");
    let truth = Truth::parse(&counts.finish().stdout);
    let recorded = tracer.finish();
    recorded.assert_nothing_lost();
    assert_eq!(recorded.trace().calls, truth.get("mark_calls"));
}

/// bpftrace probes the same functions, at entry and return, before us and after.
#[test]
fn bpftrace_beside() {
    if !require(Feature::Root) || !require(Feature::Bpftrace) {
        return;
    }
    let mut counts = counts();
    let pid = counts.pid().to_string();
    let script = &format!(
        r#"
        BEGIN {{ printf("probing\n"); }}
        uprobe:libc:malloc /pid == {pid}/ {{ @enter = count(); }}
        uretprobe:libc:malloc /pid == {pid}/ {{ @leave = count(); }}
    "#
    );
    let mut bpftrace = Running::start(Command::new("bpftrace").args(["-p", &pid, "-e", script]));
    bpftrace.wait_for_line("probing");
    let tracer = Attached::to(counts.pid());
    counts.say(b"g");
    let truth = Truth::parse(&counts.finish().stdout);
    let recorded = tracer.finish();
    recorded.assert_nothing_lost();
    assert_eq!(
        recorded.trace().calls,
        truth.get("mark_calls"),
        "{}",
        recorded.stderr
    );
    assert!(recorded.trace().calls_under("work") > 0);
    let counted = String::from_utf8_lossy(&bpftrace.finish().stdout).into_owned();
    let number = |name: &str| -> i64 {
        let line = counted.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|number| number.trim_start_matches(':').trim().parse().ok())
            .unwrap_or(0)
    };
    assert!(number("@enter") > 0, "{counted}");
    assert_eq!(number("@enter"), number("@leave"), "{counted}");
}

/// gdb attaches, stops the program in the middle of its work, and lets it go.
#[test]
fn gdb_beside() {
    if !require(Feature::Root) || !require(Feature::Gdb) {
        return;
    }
    let mut stress = Running::start(Command::new(target("stress")).args(["2", "3600000"]));
    stress.wait_for_line("ready");
    let tracer = Attached::to(stress.pid());
    stress.say(b"g");
    stress.wait_for_line("working");
    let pid = stress.pid().to_string();
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-batch", "-nx", "-p", &pid]);
    // Not where one of our probes is: the kernel takes such a trap for the probe's.
    for command in ["break work", "continue", "bt", "delete", "detach"] {
        gdb.args(["-ex", command]);
    }
    let seen = run(&mut gdb, b"");
    stress.wait_for_line("working");
    let ended = stress.finish();
    assert_eq!(ended.status.code(), Some(12));
    let text = String::from_utf8_lossy(&seen.stdout).into_owned();
    assert!(text.contains("Breakpoint 1, "), "{text}{}", seen.stderr);
    let truth = Truth::parse(&ended.stdout);
    let recorded = tracer.finish();
    recorded.assert_nothing_lost();
    assert_eq!(
        recorded.trace().calls,
        truth.get("allocations") + truth.get("reallocs"),
        "{}",
        recorded.stderr
    );
}

/// heaptrack's library in the process: both record what the program does.
#[test]
fn heaptrack_beside() {
    if !require(Feature::Root) || !require(Feature::Heaptrack) {
        return;
    }
    let scratch = Scratch::new();
    let (recorded, ended) = record_from_mark(
        &Launch::new(),
        Command::new(target("counts"))
            .args(["1", "200", "hooked", "wait"])
            .env("LD_PRELOAD", heaptrack_library())
            .env("DUMP_HEAPTRACK_OUTPUT", scratch.join("raw")),
    );
    recorded.assert_nothing_lost();
    let truth = Truth::parse(&ended.stdout);
    // heaptrack's own allocations are made below its hooks, the program's too.
    let under_main = recorded.trace().calls_under("main");
    assert!(under_main >= truth.get("mark_calls"), "{}", recorded.stderr);
    let raw = std::fs::read(scratch.join("raw")).unwrap_or_default();
    let allocations = raw
        .split(|byte| *byte == b'\n')
        .filter(|line| line.starts_with(b"+ "));
    let by_heaptrack = i64::try_from(allocations.count()).unwrap_or(0);
    assert!(
        by_heaptrack >= truth.get("total_calls"),
        "{by_heaptrack} calls"
    );
}

fn heaptrack_library() -> String {
    let script = "find /usr/lib -name libheaptrack_preload.so | head -1";
    let found = run(Command::new("sh").args(["-c", script]), b"");
    String::from_utf8_lossy(&found.stdout).trim().to_owned()
}
