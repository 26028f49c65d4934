//! C libraries and allocators that programs of this machine do not use: musl, glibc before its
//! hooks were gone, and what is built for control-flow enforcement. Each call is recorded once.

use std::path::Path;
use std::process::Command;

use htrace_tests::elsewhere::Libraries;
use htrace_tests::heaptrack::Counts;
use htrace_tests::process::Running;
use htrace_tests::{Feature, Launch, Recorded, Scratch, require};

const ROUNDS: &str = "1000";

fn record(program: &Path, args: &[&str]) -> Recorded {
    let recorded = Launch::new().option("-v").run(program, args);
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.stderr);
    recorded.assert_nothing_lost();
    recorded
}

/// Records `counts` on some libraries and compares with its own books. What the libraries allocate
/// for themselves is there without rounds too.
fn assert_exact(libraries: Libraries, threads: &str) -> Recorded {
    let scratch = Scratch::new();
    let program = libraries.counts(&scratch);
    let calls = match libraries.are_like_a_c_library() {
        true => "all",
        false => "hooked",
    };
    let base = Counts::from(&record(&program, &[threads, "0", calls]).trace());
    let recorded = record(&program, &[threads, ROUNDS, calls]);
    let (own, truth) = (Counts::from(&recorded.trace()) - base, recorded.truth());
    let stderr = &recorded.stderr;
    assert_eq!(
        own.calls,
        truth.get("total_calls"),
        "{libraries:?}: {stderr}"
    );
    assert_eq!(
        own.leaked,
        truth.get("total_leaked"),
        "{libraries:?}: {stderr}"
    );
    recorded
}

/// Demands that each stack ends in a module without unwind data: behind `main`, but for what
/// `strdup` allocates, once a round.
fn assert_cut_behind_main(recorded: &Recorded, module: &str) {
    let trace = recorded.trace();
    assert_eq!(trace.calls_under("main"), trace.calls - 1000);
    for (_, stack) in trace.stacks() {
        let last = stack.last().map(|ip| ip.function.as_str());
        assert_eq!(last, Some("[stack cut: no-unwind-data]"), "{stack:?}");
    }
    let told = format!("{module}: no-unwind-data");
    let mut lines = recorded.stderr.lines();
    let line = lines.find(|line| line.ends_with("no-unwind-data"));
    let calls = trace.calls.to_string();
    let is_told = line.is_some_and(|line| line.contains(&calls) && line.ends_with(&told));
    assert!(is_told, "{}", recorded.stderr);
    assert_eq!(lines.next(), Some(""), "{}", recorded.stderr);
}

/// True if a probe is behind the `endbr64` of a function that begins with one.
fn is_behind_first_instruction(recorded: &Recorded, module: &str, function: &str) -> bool {
    const LENGTH: usize = 4;
    let place = format!("{module}: {function}+{LENGTH:#x}: first instruction that the kernel");
    recorded.stderr.contains(&place)
}

#[test]
fn musl() {
    if !(require(Feature::Root) && require(Feature::Musl)) {
        return;
    }
    let recorded = assert_exact(Libraries::Musl, "1");
    assert_cut_behind_main(&recorded, "musl/libc.so");
    assert_exact(Libraries::Musl, "4");
}

#[test]
fn musl_in_a_static_program() {
    if !(require(Feature::Root) && require(Feature::Musl)) {
        return;
    }
    let recorded = assert_exact(Libraries::MuslStatic, "1");
    assert_cut_behind_main(&recorded, "/counts_static");
    assert_eq!(recorded.trace().calls_under("strdup"), 1000);
}

#[test]
fn what_musl_lacks_is_told() {
    if !require(Feature::Musl) {
        return;
    }
    let scratch = Scratch::new();
    let program = Libraries::Musl.counts(&scratch);
    let mut waiting = Running::start(Command::new(program).args(["1", "0", "all", "wait"]));
    waiting.wait_for_line("ready");
    let pid = waiting.pid().to_string();
    let told = Command::new(htrace_tests::tracer::binary())
        .args(["check", "--pid", &pid])
        .output();
    waiting.close_stdin();
    assert_eq!(waiting.finish().status.code(), Some(0));

    let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let told = told.unwrap_or_default();
    for place in [
        "libc.so: malloc+0x0: entry; the kernel emulates the instruction\n",
        "libc.so: malloc+0x0: return\n",
        "bytes of code: stacks end there, as no-unwind-data\n",
    ] {
        assert!(told.contains(place), "{place} in {told}");
    }
    assert!(!told.contains("counts_musl: unwind data"), "{told}");
}

#[test]
fn musl_built_for_control_flow_enforcement() {
    let needed = [Feature::Root, Feature::Musl, Feature::OtherLibcs];
    if !needed.map(require).iter().all(|is_there| *is_there) {
        return;
    }
    let recorded = assert_exact(Libraries::MuslEnforced, "1");
    for function in ["malloc", "calloc", "realloc", "free"] {
        let cheap = is_behind_first_instruction(&recorded, "musl/libc.so", function);
        assert!(cheap, "{function}: {}", recorded.stderr);
    }
}

#[test]
fn allocators_built_for_control_flow_enforcement() {
    if !(require(Feature::Root) && require(Feature::OtherLibcs)) {
        return;
    }
    for name in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let recorded = assert_exact(Libraries::Allocator(name), "1");
        let trace = recorded.trace();
        assert!(trace.calls_under("main") > 11_000, "{}", recorded.stderr);
        let cheap = is_behind_first_instruction(&recorded, name, "realloc");
        assert!(cheap, "{name}: {}", recorded.stderr);
        assert!(
            !recorded.stderr.contains("stacks cut"),
            "{}",
            recorded.stderr
        );
    }
}

#[test]
fn glibc_with_hooks() {
    if !(require(Feature::Root) && require(Feature::OtherLibcs)) {
        return;
    }
    assert_exact(Libraries::Glibc231, "1");
    assert_exact(Libraries::Glibc231, "4");
}
