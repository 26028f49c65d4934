//! Targets that go wrong, or lie: each is recorded up to its end or the
//! mishap, behaves as it does untraced, and does the recorder no harm.

#![expect(
    clippy::expect_used,
    reason = "helpers of tests report failures by panicking"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use htrace_tests::caps::nobody_with;
use htrace_tests::process::{Ended, Running, code, run};
use htrace_tests::tracer::{Attached, Recorded, binary, record_from_mark};
use htrace_tests::truth::Truth;
use htrace_tests::{Feature, Launch, Scratch, require, target};
use nix::sys::signal::Signal;

/// Attaches to a program that waits for its mishap, and takes what both left.
fn record(mishap: &str) -> (Recorded, Ended) {
    let target = &mut Command::new(target("mishaps"));
    let (recorded, ended) = record_from_mark(&Launch::new(), target.arg(mishap));
    recorded.assert_nothing_lost();
    (recorded, ended)
}

/// The program ends by `status`, as it does untraced, and `key` of what it tells
/// is what was recorded.
fn assert_recorded(mishap: &str, status: i32, key: &str) {
    if !require(Feature::Root) {
        return;
    }
    let (recorded, ended) = record(mishap);
    assert_eq!(code(ended.status), status, "{}", recorded.stderr);
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.stderr);
    let untraced = run(Command::new(target("mishaps")).arg(mishap), b"g");
    assert_eq!(code(untraced.status), status);
    assert_eq!(ended.stdout, untraced.stdout);
    let (trace, truth) = (recorded.trace(), Truth::parse(&ended.stdout));
    assert!(!trace.truncated, "{}", recorded.stderr);
    assert_eq!(
        trace.calls_under("main"),
        truth.get(key),
        "{}",
        recorded.stderr
    );
}

const WENT_ON: i32 = 16;
const ABORTED: i32 = 128 + 6;

#[test]
fn it_becomes_another_user() {
    assert_recorded("change-user", WENT_ON, "calls");
}

#[test]
fn it_closes_all_descriptors() {
    assert_recorded("close-everything", WENT_ON, "calls");
}

#[test]
fn it_forbids_itself_nearly_all_system_calls() {
    assert_recorded("filter", WENT_ON, "calls");
}

#[test]
fn it_unmaps_the_c_library() {
    assert_recorded("unmap-library", 15, "calls_before");
}

#[test]
fn it_allocates_a_hundred_gigabytes() {
    assert_recorded("huge", WENT_ON, "calls");
}

/// The library may allocate on its way to abort.
fn assert_aborts(mishap: &str, function: &str, calls: i64) {
    if !require(Feature::Root) {
        return;
    }
    let (recorded, ended) = record(mishap);
    assert_eq!(code(ended.status), ABORTED, "{}", recorded.stderr);
    let trace = recorded.trace();
    assert!(!trace.truncated, "{}", recorded.stderr);
    assert_eq!(trace.calls_under("allocate"), 100, "{}", recorded.stderr);
    assert!(trace.calls_under(function) >= calls, "{}", recorded.stderr);
}

#[test]
fn it_frees_a_block_twice() {
    assert_aborts("free-twice", "free_twice", 1);
}

#[test]
fn it_writes_over_its_heap() {
    assert_aborts("corrupt-heap", "corrupt_heap", 2);
}

#[test]
fn it_has_ten_thousand_threads() {
    if !require(Feature::Root) {
        return;
    }
    let (recorded, ended) = record("many-threads");
    let (trace, truth) = (recorded.trace(), Truth::parse(&ended.stdout));
    let threads = truth.get("threads");
    assert!(threads >= 1000, "the machine allows {threads} threads only");
    assert_eq!(
        trace.calls_under("allocate_together"),
        threads,
        "{}",
        recorded.stderr
    );
}

/// Whoever has stopped a process lets it go on, not its tracer.
#[test]
fn somebody_stops_it() {
    if !require(Feature::Root) {
        return;
    }
    let mut stress = Running::start(Command::new(target("stress")).args(["2", "3600000"]));
    stress.wait_for_line("ready");
    let tracer = Attached::to(stress.pid());
    stress.say(b"g");
    stress.wait_for_line("working");
    stress.signal(Signal::SIGSTOP);
    while stress.state() != 'T' {
        std::thread::yield_now();
    }
    let recorded = tracer.stop(Signal::SIGINT);
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.stderr);
    assert_eq!(stress.state(), 'T');
    stress.signal(Signal::SIGCONT);
    assert_eq!(stress.finish().status.code(), Some(12));
}

/// A program that anybody starts, and that runs as root.
#[test]
fn it_is_a_set_user_id_program() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.copy_program(&target("counts"));
    let mode = fs::Permissions::from_mode(0o4755);
    fs::set_permissions(&program, mode).expect("set the user id bit");
    let launch = Launch::new().option("--user").option("nobody");
    let recorded = launch.run(&program, &["1", "200", "all"]);
    recorded.assert_nothing_lost();
    let (trace, truth) = (recorded.trace(), recorded.truth());
    assert_eq!(trace.calls, truth.get("total_calls"), "{}", recorded.stderr);
    assert!(trace.calls_under("plain") > 0, "{:?}", trace.stacks());
}

/// As before, but the tracer may not look into what root's program is: it records
/// what it may, and the program does what it does.
#[test]
fn it_is_a_set_user_id_program_of_somebody_else() {
    if !require(Feature::Root) || !require(Feature::Setpriv) {
        return;
    }
    let scratch = Scratch::new();
    let (tracer, program) = (
        scratch.copy_program(&binary()),
        scratch.copy_program(&target("counts")),
    );
    let mode = fs::Permissions::from_mode(0o4755);
    fs::set_permissions(&program, mode).expect("set the user id bit");
    let launch = Launch::new()
        .under(&nobody_with(&["bpf", "perfmon"]))
        .binary(tracer);
    let recorded = launch.run(&program, &["1", "200", "all"]);
    recorded.assert_nothing_lost();
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.stderr);
    let (trace, truth) = (recorded.trace(), recorded.truth());
    assert_eq!(trace.calls, truth.get("total_calls"), "{}", recorded.stderr);
}

#[test]
fn its_stacks_are_full_of_lies() {
    if !require(Feature::Root) {
        return;
    }
    let untraced = run(Command::new(target("wildstack")).args(["2000", "1"]), b"");
    for seed in ["1", "2", "3"] {
        let recorded = Launch::new().run(target("wildstack"), &["2000", seed]);
        recorded.assert_nothing_lost();
        recorded.assert_same_as(&untraced);
        let trace = recorded.trace();
        assert!(trace.calls >= 2000, "{}", recorded.stderr);
        // What was under the lies is not known: no stack claims that it is.
        let honest = trace.calls_under("main");
        assert!(honest < 200, "{honest} stacks reach main through lies");
    }
}

/// Numbers that are the same in every run, for a failure to come back.
fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Spoils of a library what the dynamic linker does not look at: section headers,
/// symbols of the debugger, unwind information.
fn spoil(library: &Path, seed: u64) {
    let mut bytes = fs::read(library).expect("read a library");
    let mut next = noise(seed);
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..at + 8).expect("a header");
        usize::try_from(u64::from_le_bytes(word.try_into().expect("eight bytes"))).expect("small")
    };
    let sections = word(&bytes, 0x28);
    let headers = sections..bytes.len().min(sections + 64 * 40);
    match seed % 3 {
        // Where the section headers are, how many and how large.
        0 => {
            for at in (0x28..0x30).chain(0x3a..0x40) {
                bytes[at] = next() as u8;
            }
        }
        // The section headers themselves.
        1 => {
            for at in headers {
                if next().is_multiple_of(4) {
                    bytes[at] = next() as u8;
                }
            }
        }
        // `.eh_frame_hdr` and `.eh_frame`, by the program header of type
        // PT_GNU_EH_FRAME.
        _ => {
            let start = eh_frame_header(&bytes).expect("unwind information");
            for byte in bytes.iter_mut().skip(start).take(200) {
                if next().is_multiple_of(8) {
                    *byte = next() as u8;
                }
            }
        }
    }
    fs::write(library, bytes).expect("write a library");
}

/// File offset of `.eh_frame_hdr`.
fn eh_frame_header(bytes: &[u8]) -> Option<usize> {
    const PT_GNU_EH_FRAME: [u8; 4] = 0x6474_e550_u32.to_le_bytes();
    let (first, length) = (64, 56);
    let headers = bytes.get(first..)?.chunks(length).take(20);
    let header = headers
        .into_iter()
        .find(|h| h.starts_with(&PT_GNU_EH_FRAME))?;
    let offset: [u8; 8] = header.get(8..16)?.try_into().ok()?;
    usize::try_from(u64::from_le_bytes(offset)).ok()
}

#[test]
fn its_libraries_have_spoilt_headers() {
    if !require(Feature::Root) {
        return;
    }
    for seed in 0..9 {
        let scratch = Scratch::new();
        let plugins = ["alpha.so", "beta.so"].map(|name| {
            let copy = scratch.copy_program(&target(name));
            spoil(&copy, seed);
            copy.to_string_lossy().into_owned()
        });
        let args = ["3", "50", &plugins[0], &plugins[1]];
        let untraced = run(Command::new(target("plugins")).args(args), b"");
        let recorded = Launch::new().run(target("plugins"), &args);
        assert_eq!(
            code(recorded.status),
            code(untraced.status),
            "seed {seed}:\n{}",
            recorded.stderr
        );
        recorded.assert_nothing_lost();
        assert!(!recorded.stderr.contains("panicked"), "{}", recorded.stderr);
        // Two plugins, three times 50 calls each, and what the linker allocates.
        assert!(
            recorded.trace().calls >= 300,
            "seed {seed}:\n{}",
            recorded.stderr
        );
    }
}
