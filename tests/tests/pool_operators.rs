//! Programs that replace C++'s operators: by a pool that no probe on malloc sees, or by wrappers of
//! malloc, whose calls count once. Exceptions leave the operators, and the programs must not
//! notice that they are traced.

use std::path::{Path, PathBuf};
use std::process::Command;

use htrace_tests::heaptrack::Counts;
use htrace_tests::process::run;
use htrace_tests::scratch::Scratch;
use htrace_tests::tracer::record_from_mark;
use htrace_tests::{Feature, Launch, Recorded, require};

const ROUNDS: &str = "1000";

/// Compiles a target in one of its ways.
fn compile(scratch: &Scratch, name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("targets/{name}.cpp"));
    let program = scratch.join(name);
    let ended = run(
        Command::new("g++")
            .args(["-g", "-fno-omit-frame-pointer", "-fno-builtin"])
            .args(flags)
            .arg(source)
            .arg("-o")
            .arg(&program),
        b"",
    );
    assert!(ended.status.success(), "{flags:?}:\n{}", ended.stderr);
    program
}

fn record(launch: &Launch, program: &Path, rounds: &str) -> Recorded {
    let recorded = launch.run(program, &[rounds]);
    recorded.assert_nothing_lost();
    recorded
}

/// Asserts that the target behaves as untraced, and that its counts are its own.
fn assert_exact(flags: &[&str]) {
    assert_exact_under(&Launch::new(), flags);
}

fn assert_exact_under(launch: &Launch, flags: &[&str]) {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let program = compile(&scratch, "pool_operators", flags);
    let runtime = Counts::from(&record(launch, &program, "0").trace());
    let recorded = record(launch, &program, ROUNDS);
    recorded.assert_same_as(&run(Command::new(&program).arg(ROUNDS), b""));
    let (own, truth) = (Counts::from(&recorded.trace()) - runtime, recorded.truth());
    assert!(truth.get("thrown") > 100, "{flags:?}");
    for (what, own) in [("calls", own.calls), ("leaked", own.leaked)] {
        assert_eq!(
            own,
            truth.get(what),
            "{what} {flags:?}\n{}",
            recorded.stderr
        );
    }
}

#[test]
fn a_pool_without_optimization() {
    assert_exact(&["-O0"]);
}

#[test]
fn an_optimized_pool() {
    assert_exact(&["-O2"]);
}

#[test]
fn a_pool_with_one_event_a_probe() {
    assert_exact_under(&Launch::new().option("--perf-links"), &["-O2"]);
}

#[test]
fn a_pool_at_fixed_addresses() {
    assert_exact(&["-O1", "-no-pie", "-fno-pie"]);
}

#[test]
fn a_pool_that_is_called_without_linkage_tables() {
    assert_exact(&["-O2", "-fno-plt"]);
}

#[test]
fn a_pool_in_a_static_program() {
    assert_exact(&["-O2", "-static"]);
}

#[test]
fn wrappers_of_malloc_count_once() {
    assert_exact(&["-O0", "-DMALLOC"]);
    assert_exact(&["-O2", "-DMALLOC"]);
}

#[test]
fn a_running_program_without_malloc() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let flags = ["-O1", "-static", "-nostdlib", "-fno-stack-protector"];
    let program = compile(&scratch, "pool_alone", &flags);
    let (recorded, ended) = record_from_mark(&Launch::new(), &mut Command::new(program));
    assert_eq!(ended.status.code(), Some(0), "{}", recorded.stderr);
    recorded.assert_nothing_lost();
    let counts = Counts::from(&recorded.trace());
    let leaked = 6 * 24;
    assert_eq!(
        (counts.calls, counts.leaked),
        (10, leaked),
        "{}",
        recorded.stderr
    );
}
