//! Long runs: short here, as long as one wants by `cargo xtask soak`. A random
//! exerciser against its own ledger, the tracer killed at random moments, the
//! recorder's memory at full rate.

use std::process::Command;
use std::time::{Duration, Instant};

use htrace_tests::process::Running;
use htrace_tests::trace_file::Trace;
use htrace_tests::tracer::{Attached, record_from_mark, report};
use htrace_tests::truth::Truth;
use htrace_tests::{Feature, Launch, require, soak, target};
use nix::sys::signal::Signal;

/// A number that differs from run to run; a failure prints it.
fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0) % 1_000_000
}

const ALLOCATING: [&str; 11] = [
    "by_malloc",
    "by_calloc",
    "by_posix_memalign",
    "by_aligned_alloc",
    "by_memalign",
    "by_valloc",
    "by_pvalloc",
    "by_realloc_of_null",
    "by_strdup",
    "by_realloc",
    "by_reallocarray",
];

#[test]
fn a_random_exerciser_agrees_with_its_ledger() {
    if !require(Feature::Root) {
        return;
    }
    let (seed, milliseconds) = (seed(), soak::exercise_seconds() * 1000);
    let args = ["4", &milliseconds.to_string(), &seed.to_string()];
    let (recorded, ended) =
        record_from_mark(&Launch::new(), Command::new(target("exercise")).args(args));
    assert_eq!(
        ended.status.code(),
        Some(19),
        "seed {seed}: {}",
        ended.stderr
    );
    recorded.assert_nothing_lost();
    let (trace, truth) = (recorded.trace(), Truth::parse(&ended.stdout));
    let mut calls = 0;
    for function in ALLOCATING {
        let told = truth.get(&format!("calls_{function}"));
        let live = truth.get(&format!("live_{function}"));
        assert_eq!(
            trace.calls_under(function),
            told,
            "seed {seed}, {function}: calls"
        );
        assert_eq!(
            trace.leaked_under(function),
            live,
            "seed {seed}, {function}: bytes"
        );
        calls += told;
    }
    assert_eq!(trace.calls, calls, "seed {seed}");
    let reallocs = truth.get("calls_by_realloc") + truth.get("calls_by_reallocarray");
    assert_eq!(
        trace.frees,
        truth.get("frees") + reallocs,
        "seed {seed}: frees"
    );
}

fn stress() -> Running {
    let mut stress = Running::start(Command::new(target("stress")).args(["2", "3600000"]));
    stress.wait_for_line("ready");
    stress
}

/// What the tracer does when it is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// It drains and writes.
    AtWork,
    /// It stands still, so that threads wait for it.
    DuringPauses,
}

/// Kills the tracer after `lines` of the target: that ends as ever, and the file
/// holds a prefix of what it did. Returns how long the target took to go on and to end.
fn kill(moment: Moment, lines: u64) -> Duration {
    let mut target = stress();
    let launch = Launch::new().option("--ring-size").option("1");
    let mut tracer = Attached::with(&launch, target.pid());
    target.say(b"g");
    for _ in 0..lines {
        target.wait_for_line("working");
    }
    if matches!(moment, Moment::DuringPauses) {
        tracer.tracer().signal(Signal::SIGSTOP);
        let began = target.system_ticks();
        while target.system_ticks() < began + 10 {
            std::thread::yield_now();
        }
    }
    let killed = Instant::now();
    let recorded = tracer.kill();
    target.wait_for_line("working");
    let ended = target.finish();
    let took = killed.elapsed();
    assert_eq!(ended.status.code(), Some(12), "{moment:?} {lines}");
    let truth = Truth::parse(&ended.stdout);
    let trace = Trace::read(&recorded.file);
    assert!(
        trace.calls <= truth.get("allocations") + truth.get("reallocs"),
        "{moment:?} {lines}: {} calls",
        trace.calls
    );
    // Each thread has one block at a time.
    let live: i64 = trace.sizes().keys().copied().max().unwrap_or(0) * 2;
    assert!(
        trace.leaked <= live,
        "{moment:?} {lines}: {} live",
        trace.leaked
    );
    let status = report(&recorded.file).status.code();
    assert_eq!(status, Some(3), "{moment:?} {lines}: not cut short");
    took
}

#[test]
fn killed_at_random_moments() {
    if !require(Feature::Root) {
        return;
    }
    let mut times = Vec::new();
    for round in 0..soak::kill_rounds() {
        let moment = if round % 2 == 0 {
            Moment::AtWork
        } else {
            Moment::DuringPauses
        };
        times.push(kill(moment, seed() % 20));
    }
    tell_times(times);
}

/// How long targets took to end, for whoever looks: a busy machine must not fail a test.
fn tell_times(mut times: Vec<Duration>) {
    times.sort();
    let late = times
        .iter()
        .filter(|&&time| time > Duration::from_secs(1))
        .count();
    let count = times.len();
    if let (Some(middle), Some(longest)) = (times.get(count / 2), times.last()) {
        eprintln!(
            "killed {count} times: targets ended within {middle:.2?} (median), {longest:.2?} at most, {late} later than a second"
        );
    }
}

#[test]
fn the_recorders_memory_stays_flat_at_full_rate() {
    if !require(Feature::Root) {
        return;
    }
    const MOST_GROWTH_KIB: u64 = 8 << 10;
    let milliseconds = (soak::flat_seconds() * 1000).to_string();
    let mut target = Running::start(Command::new(target("stress")).args(["2", &milliseconds]));
    target.wait_for_line("ready");
    let mut tracer = Attached::to(target.pid());
    target.say(b"g");
    let mut samples = Vec::new();
    while target.wait_for_one_of(&["working", "allocations="]) == 0 {
        samples.push(tracer.tracer().resident_kib());
    }
    let ended = target.finish();
    assert_eq!(ended.status.code(), Some(12));
    let recorded = tracer.finish();
    recorded.assert_nothing_lost();
    // After a quarter everything that is needed once is there.
    let settled = &samples[samples.len() / 4..];
    let (first, last) = (settled.first().copied(), settled.last().copied());
    let growth = last.unwrap_or(0).saturating_sub(first.unwrap_or(0));
    assert!(samples.len() > 8, "{samples:?}");
    assert!(growth < MOST_GROWTH_KIB, "{growth} KiB more: {samples:?}");
}
