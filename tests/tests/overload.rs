//! A program that allocates faster than can be recorded: it waits for room and
//! nothing is lost, or what finds no room is counted, exactly. Whatever the
//! tracer does meanwhile, standing still or dying, the program goes on.

#![expect(
    clippy::panic,
    reason = "helpers of tests report failures by panicking"
)]

use std::io::Read as _;
use std::process::Command;

use htrace_tests::process::{Ended, Running};
use htrace_tests::trace_file::Trace;
use htrace_tests::tracer::{Attached, Recorded, record_from_mark, report};
use htrace_tests::truth::Truth;
use htrace_tests::{Feature, Launch, Scratch, require, soak, target};
use nix::sys::signal::Signal;

/// The smallest buffer between kernel and recorder there is.
fn small_ring() -> Launch {
    Launch::new().option("--ring-size").option("1").option("-v")
}

fn stress(milliseconds: u64) -> Command {
    let mut command = Command::new(target("stress"));
    command.args(["2", &milliseconds.to_string()]);
    command
}

/// Longer than the test lets it run: until its input ends.
fn endless() -> Command {
    stress(3_600_000)
}

const STATUS_OF_STRESS: i32 = 12;

/// Every call was either recorded or counted as lost.
fn assert_all_accounted_for(recorded: &Recorded, ended: &Ended) {
    let (trace, truth) = (recorded.trace(), Truth::parse(&ended.stdout));
    let lost_reallocs = recorded.lost("reallocs-ring-full");
    assert_eq!(
        trace.calls + recorded.lost("allocations-ring-full") + lost_reallocs,
        truth.get("allocations") + truth.get("reallocs"),
        "allocations:\n{}",
        recorded.stderr
    );
    // The address of a block whose free was lost was used again: the file has a
    // free there that was not called.
    let reused = recorded.summary_or_zero("frees not seen (address reused):");
    let unknown = recorded.summary_or_zero("INFO frees of unknown blocks:");
    assert_eq!(
        trace.frees - reused + unknown + recorded.lost("frees-ring-full") + lost_reallocs,
        truth.get("frees") + truth.get("reallocs"),
        "frees:\n{}",
        recorded.stderr
    );
}

#[test]
fn nothing_is_lost_at_full_speed_in_a_small_ring() {
    if !require(Feature::Root) {
        return;
    }
    let mut stress = stress(soak::stress_seconds() * 1000);
    let (recorded, ended) = record_from_mark(&small_ring(), &mut stress);
    assert_eq!(ended.status.code(), Some(STATUS_OF_STRESS));
    recorded.assert_nothing_lost();
    assert_all_accounted_for(&recorded, &ended);
    let truth = Truth::parse(&ended.stdout);
    assert_eq!(recorded.trace().leaked, truth.get("kept"));
}

/// Attaches to a program at full speed, lets the tracer stand still while that
/// goes on working, and returns what both left.
fn with_a_pause_of_the_tracer(launch: &Launch) -> (Recorded, Ended) {
    let mut target = Running::start(&mut endless());
    target.wait_for_line("ready");
    let mut tracer = Attached::with(launch, target.pid());
    target.say(b"g");
    target.wait_for_line("working");
    tracer.tracer().signal(Signal::SIGSTOP);
    // So many calls cannot be in the buffer: 10 times 256 times 64 pairs of at
    // least 48 bytes.
    for _ in 0..10 {
        target.wait_for_line("working");
    }
    tracer.tracer().signal(Signal::SIGCONT);
    for _ in 0..3 {
        target.wait_for_line("working");
    }
    let ended = target.finish();
    (tracer.finish(), ended)
}

#[test]
fn what_is_dropped_is_counted_exactly() {
    if !require(Feature::Root) {
        return;
    }
    let launch = small_ring().option("--on-overload").option("drop");
    let (recorded, ended) = with_a_pause_of_the_tracer(&launch);
    assert_eq!(ended.status.code(), Some(STATUS_OF_STRESS));
    assert_all_accounted_for(&recorded, &ended);
    assert!(
        recorded.lost("allocations-ring-full") > 0 && recorded.lost("frees-ring-full") > 0,
        "{}",
        recorded.stderr
    );
    assert!(
        !recorded.stderr.contains("pauses until"),
        "{}",
        recorded.stderr
    );
    let (real, shown) = (
        Truth::parse(&ended.stdout).get("kept"),
        recorded.trace().leaked,
    );
    assert_bounds_hold(&recorded.stderr, shown - real);
}

/// The summary's bounds of false leaks, against what is known of them.
fn assert_bounds_hold(stderr: &str, false_bytes: i64) {
    let line = stderr
        .lines()
        .find(|line| line.ends_with("may be among the lost"));
    let line = line.unwrap_or_else(|| panic!("no bounds:\n{stderr}"));
    let sizes: Vec<f64> = line.split_whitespace().filter_map(size).collect();
    let [at_least, at_most] = sizes[..] else {
        panic!("no two sizes in `{line}`");
    };
    // Sizes are shown with one digit behind the point.
    let (false_bytes, rounding) = (false_bytes as f64, 0.06 * 1000.0);
    assert!(
        at_least - rounding <= false_bytes && false_bytes <= at_most * 1.06 + rounding,
        "{false_bytes} bytes of the leaks are false, and: {line}"
    );
}

/// `1.5K` as a number.
fn size(word: &str) -> Option<f64> {
    let units = [("B", 1.0), ("K", 1e3), ("M", 1e6), ("G", 1e9)];
    let (digits, factor) = units
        .into_iter()
        .find_map(|(unit, factor)| Some((word.strip_suffix(unit)?, factor)))?;
    digits.parse::<f64>().ok().map(|number| number * factor)
}

#[test]
fn a_tracer_that_stands_still_holds_nobody_up_for_long() {
    if !require(Feature::Root) {
        return;
    }
    let launch = small_ring().option("--max-pause").option("20ms");
    let (recorded, ended) = with_a_pause_of_the_tracer(&launch);
    assert_eq!(ended.status.code(), Some(STATUS_OF_STRESS));
    assert_all_accounted_for(&recorded, &ended);
    assert!(
        recorded.stderr.contains("reached --max-pause"),
        "{}",
        recorded.stderr
    );
}

/// Threads wait for a tracer that stands still again and again, and lose nothing.
#[test]
fn pauses_lose_nothing() {
    if !require(Feature::Root) {
        return;
    }
    let launch = small_ring().option("--max-pause").option("100s");
    let mut target = Running::start(&mut endless());
    target.wait_for_line("ready");
    let mut tracer = Attached::with(&launch, target.pid());
    target.say(b"g");
    for _ in 0..5 {
        target.wait_for_line("working");
        tracer.tracer().signal(Signal::SIGSTOP);
        // In that time the buffer fills several times, if nobody waits.
        let began = target.system_ticks();
        while target.system_ticks() < began + 50 {
            std::thread::yield_now();
        }
        tracer.tracer().signal(Signal::SIGCONT);
    }
    let ended = target.finish();
    let recorded = tracer.finish();
    recorded.assert_nothing_lost();
    assert_all_accounted_for(&recorded, &ended);
    assert!(
        recorded.stderr.contains("pauses until"),
        "{}",
        recorded.stderr
    );
}

/// Kills the tracer while threads wait for it: it stands still, so they do.
#[test]
fn a_tracer_that_dies_leaves_nobody_waiting() {
    if !require(Feature::Root) {
        return;
    }
    // The longest pause that a test would not notice the end of otherwise.
    let launch = small_ring().option("--max-pause").option("1s");
    let mut target = Running::start(&mut endless());
    target.wait_for_line("ready");
    let mut tracer = Attached::with(&launch, target.pid());
    target.say(b"g");
    target.wait_for_line("working");
    tracer.tracer().signal(Signal::SIGSTOP);
    target.wait_for_line("working");
    tracer.tracer().kill();
    // Probes that are gone let it run at its own speed.
    for _ in 0..10 {
        target.wait_for_line("working");
    }
    let ended = target.finish();
    assert_eq!(ended.status.code(), Some(STATUS_OF_STRESS));
    let truth = Truth::parse(&ended.stdout);
    assert!(truth.get("allocations") > truth.get("reallocs"));
}

/// Nobody sees the target stop: its parent, which is this test, waits for stops.
#[test]
fn pauses_are_no_stops_to_the_parent() {
    if !require(Feature::Root) {
        return;
    }
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    let mut target = Running::start(&mut endless());
    target.wait_for_line("ready");
    let mut tracer = Attached::with(&small_ring(), target.pid());
    target.say(b"g");
    tracer.tracer().signal(Signal::SIGSTOP);
    for _ in 0..5 {
        target.wait_for_line("working");
    }
    let pid = nix::unistd::Pid::from_raw(target.pid().cast_signed());
    let stops = WaitPidFlag::WSTOPPED | WaitPidFlag::WCONTINUED | WaitPidFlag::WNOHANG;
    assert_eq!(
        waitid(Id::Pid(pid), stops).expect("ask for stops"),
        WaitStatus::StillAlive
    );
    tracer.tracer().signal(Signal::SIGCONT);
    target.finish();
    let recorded = tracer.finish();
    assert!(
        recorded.stderr.contains("pauses until"),
        "{}",
        recorded.stderr
    );
}

/// Output into a pipe that nobody reads for a while: what comes meanwhile waits
/// in a file, the program is not held up, and nothing is lost.
#[test]
fn a_slow_disk_holds_nobody_up() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let mut target = Running::start(&mut endless());
    target.wait_for_line("ready");
    let (tracer, mut reader) = small_ring().attach_into_pipe(&scratch, target.pid());
    target.say(b"g");
    // Far more than the memory of the queue takes.
    for _ in 0..40 {
        target.wait_for_line("working");
    }
    let ended = target.finish();
    let mut packed = Vec::new();
    reader.read_to_end(&mut packed).expect("read the trace");
    let tracer = tracer.finish();
    let pipe = scratch.join("trace.zst");
    std::fs::remove_file(&pipe).expect("remove a pipe");
    std::fs::write(&pipe, packed).expect("keep the trace");
    let truth = Truth::parse(&ended.stdout);
    let trace = Trace::read(&pipe);
    assert_eq!(
        trace.calls,
        truth.get("allocations") + truth.get("reallocs"),
        "{}",
        tracer.stderr
    );
    assert!(
        !tracer.stderr.contains("reached --max-pause"),
        "{}",
        tracer.stderr
    );
    assert_eq!(report(&pipe).status.code(), Some(0));
}
