//! Recordings of some allocations only: the figures of what is chosen are those of the whole, and
//! those of a sample are right within what chance allows.

use std::collections::BTreeMap;
use std::process::Command;

use htrace_tests::process::Running;
use htrace_tests::tracer::report;
use htrace_tests::{Attached, Feature, Launch, Recorded, require, target};
use nix::sys::signal::Signal;

const ARGUMENTS: [&str; 3] = ["1", "1000", "all"];

fn record(options: &[&str]) -> Recorded {
    let recorded = Launch::new()
        .options(options)
        .run(target("counts"), &ARGUMENTS);
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.stderr);
    recorded.assert_nothing_lost();
    recorded
}

#[test]
fn small_blocks_are_left_out_and_all_others_are_not() {
    if !require(Feature::Root) {
        return;
    }
    const LEAST: i64 = 100;
    for how in [&[][..], &["--return-probes"]] {
        let whole = record(how).trace();
        let chosen = record(&[how, &["--min-size", "100"]].concat()).trace();
        let expected: BTreeMap<i64, i64> = whole
            .sizes()
            .into_iter()
            .filter(|(size, _)| *size >= LEAST)
            .collect();
        assert!(expected.len() < whole.sizes().len() && !expected.is_empty());
        assert_eq!(chosen.sizes(), expected);
        let events = whole
            .events
            .iter()
            .filter(|size| **size >= LEAST || **size < -LEAST);
        assert!(
            chosen.events.iter().eq(events),
            "ends are those of the whole"
        );
        let told = |comment: &String| comment.contains("less than 100 bytes");
        assert!(chosen.comments.iter().any(told), "{:?}", chosen.comments);
    }
}

#[test]
fn sums_of_a_sample_are_those_of_the_whole() {
    if !require(Feature::Root) {
        return;
    }
    const MEAN: f64 = 2048.0;
    let whole = record(&[]).trace();
    let sample = record(&["--sample", "2K"]).trace();
    let sum = |sizes: BTreeMap<i64, i64>| -> f64 {
        sizes
            .iter()
            .map(|(size, count)| (size * count) as f64)
            .sum()
    };
    // Of each allocation: size^2 (1 - chance) / chance.
    let variance: f64 = whole
        .sizes()
        .iter()
        .filter(|(size, _)| **size > 0)
        .map(|(size, count)| {
            let chance = 1.0 - (-(*size as f64) / MEAN).exp();
            (size * size * count) as f64 * (1.0 - chance) / chance
        })
        .sum();
    let (expected, found) = (sum(whole.sizes()), sum(sample.sizes()));
    // One recording in a million is farther off than five standard deviations.
    let tolerance = 5.0 * variance.sqrt();
    assert!(
        tolerance < expected / 2.0,
        "the test tells nothing: {tolerance} of {expected}"
    );
    assert!(
        (found - expected).abs() < tolerance,
        "{found}, {expected} within {tolerance}"
    );
    assert!(
        sample.calls * 4 < whole.calls,
        "{} of {}",
        sample.calls,
        whole.calls
    );
    assert!(sample.leaked >= 0 && sample.frees <= sample.calls);
    let told = |comment: &String| comment.contains("sampled: one allocation in 2048 bytes");
    assert!(sample.comments.iter().any(told), "{:?}", sample.comments);
}

/// Two batches of eight threads, each of which allocates a hundred blocks.
fn record_threads(options: &[&str]) -> Recorded {
    let recorded = Launch::new()
        .options(options)
        .run(target("threads"), &["2", "100"]);
    assert_eq!(recorded.status.code(), Some(6), "{}", recorded.stderr);
    recorded.assert_nothing_lost();
    recorded
}

#[test]
fn threads_that_are_not_named_are_left_out() {
    if !require(Feature::Root) {
        return;
    }
    for how in [&[][..], &["--return-probes"]] {
        let options = [how, &["--threads", "thread-3,thread-5"]].concat();
        let recorded = record_threads(&options);
        let trace = recorded.trace();
        let left_out = recorded.summary("calls left out by --threads");
        assert_eq!(left_out, record_threads(how).trace().calls - trace.calls);
        let expected: BTreeMap<i64, i64> = [3, 5]
            .into_iter()
            .flat_map(|thread| (0..100).map(move |round| 10 + thread * 100 + round % 90))
            .fold(BTreeMap::new(), |mut sizes, size| {
                *sizes.entry(size).or_default() += 2;
                sizes
            });
        assert_eq!(trace.sizes(), expected);
        // Other threads free them, all but the last of each.
        assert_eq!((trace.calls, trace.frees), (400, 396));
        assert_eq!(trace.leaked, 2 * (310 + 9) + 2 * (510 + 9));
        let told = |comment: &String| comment.contains("other than thread-3, thread-5");
        assert!(trace.comments.iter().any(told), "{:?}", trace.comments);
    }
}

#[test]
fn what_is_left_out_by_size_is_counted() {
    if !require(Feature::Root) {
        return;
    }
    for how in [&[][..], &["--return-probes"]] {
        let chosen = record_threads(&[how, &["--min-size", "100"]].concat());
        let calls = record_threads(how).trace().calls - chosen.trace().calls;
        assert!(calls > 0, "the test tells nothing");
        // None of them fails.
        assert_eq!(chosen.summary("calls left out by --min-size"), calls);
    }
}

/// Three threads, each of which does a hundred rounds of work.
fn record_shop(options: &[&str]) -> Recorded {
    let recorded = Launch::new()
        .options(options)
        .run(target("framepointers"), &["3", "100"]);
    recorded.assert_nothing_lost();
    recorded
}

#[test]
fn what_is_below_no_chosen_function_is_left_out() {
    if !require(Feature::Root) {
        return;
    }
    let whole = record_shop(&[]).trace();
    // `parse_all` calls `parse_record`, which allocates; `forget` leaks all that it allocates.
    let chosen = record_shop(&["--functions", "shop::parse_all(long),shop::forget"]);
    let (trace, truth) = (chosen.trace(), chosen.truth());
    let [parsed, forgotten] = ["parse_record_calls", "forget_calls"].map(|name| truth.get(name));
    assert_eq!(trace.calls_under("shop::parse_all(long)"), parsed);
    assert_eq!(trace.calls_under("shop::forget(long)"), forgotten);
    assert_eq!((trace.calls, trace.frees), (parsed + forgotten, parsed));
    assert_eq!(trace.leaked, whole.leaked_under("shop::forget(long)"));
    assert_eq!(chosen.summary("leaked allocations"), forgotten);
    assert_eq!(
        chosen.summary("allocations left out by --functions"),
        whole.calls - trace.calls
    );
    let ended = report(&chosen.file);
    let text = String::from_utf8_lossy(&ended.stdout);
    let left_out = format!(
        "{} allocations left out by --functions, ",
        whole.calls - trace.calls
    );
    assert!(text.contains(&left_out), "no `{left_out}` in:\n{text}");
    let told = |comment: &String| comment.contains("none of shop::parse_all(long), shop::forget");
    assert!(trace.comments.iter().any(told), "{:?}", trace.comments);

    let nothing = record_shop(&["--functions", "parse_all"]);
    assert_eq!(nothing.trace().calls, 0, "names are whole");
    assert!(nothing.stderr.contains("names are as reports show them"));
}

#[test]
fn a_recording_begins_with_the_first_call_of_the_awaited_function() {
    if !require(Feature::Root) {
        return;
    }
    let whole = record_threads(&[]).trace();
    for how in [&[][..], &["--perf-links"]] {
        let options = [how, &["--wait-for", "allocate_in_thread"]].concat();
        let waited = record_threads(&options).trace();
        // The C library has allocated for the first threads before any of them calls it.
        assert_eq!(waited.calls, 1600, "{how:?}");
        assert!(waited.calls < whole.calls, "the test tells nothing");
        let told = |comment: &String| comment.contains("first call of allocate_in_thread");
        assert!(waited.comments.iter().any(told), "{:?}", waited.comments);
    }
    let never = record_threads(&["--wait-for", "no_such_function"]);
    assert!(never.stderr.contains("no_such_function was never called"));
    assert_eq!(never.trace().calls, 0);
}

#[test]
fn signals_begin_pause_and_resume() {
    if !require(Feature::Root) {
        return;
    }
    let mut worker = Running::start(Command::new(target("worker")).args(["1000", "paced"]));
    worker.wait_for_line("ready");
    let mut tracer = Attached::with(&Launch::new().option("--paused"), worker.pid());
    let mut work = || {
        worker.say(b"g");
        worker.wait_for_line("working");
    };
    work();
    for _ in 0..2 {
        tracer.tracer().signal(Signal::SIGUSR1);
        tracer.tracer().wait_for_stderr("going on");
        work();
        tracer.tracer().signal(Signal::SIGUSR2);
        tracer.tracer().wait_for_stderr("paused");
        work();
    }
    let recorded = tracer.stop(Signal::SIGINT);
    worker.close_stdin();
    assert_eq!(
        worker.finish().status.code(),
        Some(11),
        "its way of doing well"
    );
    let trace = recorded.trace();
    assert_eq!(trace.calls, 2000, "{}", recorded.stderr);
    assert_eq!(trace.frees, 1980, "all but one in a hundred");
}
