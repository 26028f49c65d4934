//! What the tracer gives up and does not let others use: capabilities, its
//! output file.

#![expect(
    clippy::expect_used,
    reason = "helpers of tests report failures by panicking"
)]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;

use htrace_tests::caps::nobody_with;
use htrace_tests::process::{Ended, Running, run};
use htrace_tests::tracer::binary;
use htrace_tests::{Attached, Feature, Scratch, require, target};

/// `linux/capability.h`: DAC_READ_SEARCH, KILL, SYS_PTRACE, PERFMON, BPF,
/// CHECKPOINT_RESTORE.
const KEPT: u64 = 1 << 2 | 1 << 5 | 1 << 19 | 1 << 38 | 1 << 39 | 1 << 40;

/// The hexadecimal numbers of these fields in all threads of a process.
fn of_all_threads(pid: u32, fields: &[&str]) -> Vec<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("list threads");
    let number = |line: &str| {
        let (name, value) = line.split_once(':')?;
        fields.contains(&name).then(|| value.trim().to_owned())
    };
    threads
        .flatten()
        .flat_map(|thread| {
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            let found: Vec<String> = status.lines().filter_map(number).collect();
            found
        })
        .map(|hex| u64::from_str_radix(&hex, 16).expect("a hexadecimal number"))
        .collect()
}

#[test]
fn capabilities_are_given_up_once_the_target_runs() {
    if !require(Feature::Root) {
        return;
    }
    let mut counts = Running::start(Command::new(target("counts")).args(["1", "9", "all", "wait"]));
    counts.wait_for_line("ready");
    let mut tracer = Attached::to(counts.pid());
    let pid = tracer.tracer().pid();
    let sets = ["CapInh", "CapPrm", "CapEff"];
    // Its threads do it as they begin, one by one.
    while of_all_threads(pid, &sets)
        .iter()
        .any(|set| set & !KEPT != 0)
    {
        std::thread::yield_now();
    }
    assert!(
        of_all_threads(pid, &["NoNewPrivs"])
            .iter()
            .all(|set| *set == 1)
    );
    // What it still has is enough.
    counts.say(b"g");
    counts.finish();
    let recorded = tracer.finish();
    recorded.assert_nothing_lost();
    assert!(
        recorded.trace().calls_under("work") > 0,
        "{}",
        recorded.stderr
    );
}

const NOBODY: u32 = 65534;

/// Records `true` to a path, as root or as root by sudo of nobody.
fn record_to(output: &Path, by_sudo: bool) -> Ended {
    let mut command = Command::new(binary());
    command.arg("-o").arg(output).args(["--", "true"]);
    if by_sudo {
        command.env("SUDO_UID", NOBODY.to_string());
    }
    run(&mut command, b"")
}

fn assert_refused(ended: &Ended) {
    assert_eq!(ended.status.code(), Some(125), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("cannot write the trace"),
        "{}",
        ended.stderr
    );
}

#[test]
fn the_file_is_the_invoking_users_alone() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let ended = record_to(&scratch.join("new/dir/run"), true);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    for (path, mode) in [
        ("new", 0o755),
        ("new/dir", 0o755),
        ("new/dir/run.zst", 0o600),
    ] {
        let metadata = fs::metadata(scratch.join(path)).expect("it was made");
        assert_eq!(metadata.uid(), NOBODY, "{path}");
        assert_eq!(metadata.mode() & 0o7777 & !mode, 0, "{path}");
    }
}

#[test]
fn root_is_not_led_by_the_links_of_others() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let precious = scratch.join("precious");
    fs::create_dir(&precious).expect("make a directory");
    fs::set_permissions(&precious, Permissions::from_mode(0o755)).expect("close it");
    symlink(&precious, scratch.join("link")).expect("plant a link");
    assert_refused(&record_to(&scratch.join("link/run"), true));
    assert_eq!(fs::read_dir(&precious).expect("list it").count(), 0);
    // Root's own directory serves where nobody's rights do not reach and no link leads.
    let ended = record_to(&precious.join("run"), true);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    // The last part of a path is never followed.
    let victim = scratch.join("victim");
    fs::write(&victim, "as before").expect("write a file");
    symlink(&victim, scratch.join("run.zst")).expect("plant a link");
    assert_refused(&record_to(&scratch.join("run"), false));
    assert_eq!(fs::read(&victim).expect("read it"), b"as before");
}

#[test]
fn a_file_that_somebody_else_has_put_there_is_not_written_to() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let planted = scratch.join("run.zst");
    fs::write(&planted, "").expect("write a file");
    chown(&planted, Some(NOBODY), Some(NOBODY)).expect("give it away");
    let ended = record_to(&scratch.join("run"), false);
    assert_refused(&ended);
    assert!(ended.stderr.contains("somebody else"), "{}", ended.stderr);
    assert_eq!(fs::metadata(&planted).expect("it is there").len(), 0);
}

#[test]
fn check_tells_what_is_missing_and_what_it_costs() {
    if !require(Feature::Root) || !require(Feature::Setpriv) {
        return;
    }
    let all = run(Command::new(binary()).arg("check"), b"");
    let text = String::from_utf8_lossy(&all.stdout).into_owned();
    assert_eq!(all.status.code(), Some(0), "{text}{}", all.stderr);
    assert!(text.contains("  yes  CAP_BPF\n"), "{text}");
    assert!(text.contains("kernel\n  yes  Linux "), "{text}");

    let scratch = Scratch::new();
    let words = nobody_with(&["bpf"]);
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .arg(scratch.copy_program(&binary()))
        .args(["check", "--system"]);
    let less = run(&mut command, b"");
    let text = String::from_utf8_lossy(&less.stdout).into_owned();
    assert_eq!(less.status.code(), Some(1), "{text}{}", less.stderr);
    assert!(text.contains("  yes  CAP_BPF\n"), "{text}");
    assert!(
        text.contains("  no   CAP_PERFMON: nothing can be recorded\n"),
        "{text}"
    );
}
