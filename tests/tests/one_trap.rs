//! Probes inside `malloc` see what probes at its entry and return see: each event, in the same
//! order, with the same size, on this machine's C library and on those of other suites.

use std::path::Path;
use std::process::Command;

use htrace_tests::elsewhere::Libraries;
use htrace_tests::features::python;
use htrace_tests::process::Running;
use htrace_tests::{Feature, Launch, Recorded, Scratch, require, target};

/// The option that leaves the probes at entry and return.
const RETURN_PROBES: &str = "--return-probes";

fn record(launch: Launch, program: &Path, args: &[&str]) -> Recorded {
    let recorded = launch
        // The same addresses each time: hash tables of pointers are walked in their order.
        .under(&["setarch", "-R"])
        .env("PYTHONHASHSEED", "0")
        .env("PYTHONMALLOC", "malloc")
        .env("RUST_LOG", "info")
        .run(program, args);
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.stderr);
    recorded.assert_nothing_lost();
    recorded
}

/// Records twice, and demands the same events. Returns what was recorded with probes inside
/// functions.
fn assert_same_events(program: &Path, args: &[&str]) -> Recorded {
    let inside = record(Launch::new(), program, args);
    let plain = record(Launch::new().option(RETURN_PROBES), program, args);
    assert!(is_probed_at_return(&plain, "malloc"), "{}", plain.stderr);
    assert!(is_probed_at_return(&plain, "calloc"), "{}", plain.stderr);
    let (found, expected) = (inside.trace().events, plain.trace().events);
    assert!(expected.len() > 2000, "{} events", expected.len());
    let differing = found
        .iter()
        .zip(&expected)
        .position(|(one, other)| one != other);
    assert_eq!(
        differing,
        None,
        "{} and {} events",
        found.len(),
        expected.len()
    );
    assert_eq!(found.len(), expected.len());
    inside
}

/// What the tracer says of where it has placed probes.
fn is_probed_at_return(recorded: &Recorded, function: &str) -> bool {
    let place = format!(" {function}+");
    let mut lines = recorded.stderr.lines();
    lines.any(|line| line.contains(&place) && line.ends_with(": return"))
}

#[test]
fn every_function_of_the_allocator_gives_the_same_events() {
    if !require(Feature::Root) {
        return;
    }
    assert_same_events(&target("counts"), &["1", "1000", "all"]);
}

#[test]
fn a_real_program_gives_the_same_events() {
    if !(require(Feature::Root) && require(Feature::Python)) {
        return;
    }
    let python = python().expect("it is required");
    // Without the machine's own site packages, whose caches change from run to run.
    assert_same_events(
        &python,
        &[
            "-s",
            "-S",
            "-B",
            "-c",
            "print(sum(map(len, map(str, range(9999)))))",
        ],
    );
}

#[test]
fn other_c_libraries_give_the_same_events() {
    if !(require(Feature::Root) && require(Feature::OtherLibcs)) {
        return;
    }
    let scratch = Scratch::new();
    for libraries in [
        Libraries::Newer("trixie"),
        Libraries::Newer("sid"),
        Libraries::OwnAllocator("-fomit-frame-pointer"),
        Libraries::OwnAllocator("-fno-omit-frame-pointer"),
    ] {
        let program = libraries.counts(&scratch);
        let recorded = assert_same_events(&program, &["1", "1000", "all"]);
        let at_return = |function| is_probed_at_return(&recorded, function);
        assert!(!at_return("malloc"), "{libraries:?}: {}", recorded.stderr);
        // That of an allocator of our own calls its malloc.
        let own = matches!(libraries, Libraries::OwnAllocator(_));
        assert!(
            own || !at_return("calloc"),
            "{libraries:?}: {}",
            recorded.stderr
        );
    }
    // Its functions can leave by a hook.
    let program = Libraries::Glibc231.counts(&scratch);
    let recorded = assert_same_events(&program, &["1", "1000", "all"]);
    for function in ["malloc", "calloc"] {
        assert!(
            is_probed_at_return(&recorded, function),
            "{}",
            recorded.stderr
        );
    }
}

#[test]
fn the_places_of_a_process_are_told_with_reasons() {
    let mut worker = Running::start(Command::new(target("worker")).args(["1000", "paced"]));
    worker.wait_for_line("ready");
    let pid = worker.pid().to_string();
    let told = Command::new(htrace_tests::tracer::binary())
        .args(["check", "--pid", &pid])
        .output();
    worker.close_stdin();
    assert_eq!(
        worker.finish().status.code(),
        Some(11),
        "its way of doing well"
    );

    let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let told = told.unwrap_or_default();
    assert!(told.contains("libc.so.6: malloc+"), "{told}");
    assert!(told.contains("libc.so.6: free+"), "{told}");
    assert!(told.contains("the kernel emulates"), "{told}");
}
