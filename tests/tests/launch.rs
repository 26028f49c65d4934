//! What a launched program may rely on: its streams, its status, its signals,
//! its user and its surroundings are its own.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use htrace_tests::process::{Ended, Running, run};
use htrace_tests::text_bytes::changed_code;
use htrace_tests::tracer::binary;
use htrace_tests::truth::Truth;
use htrace_tests::{Feature, Launch, Recorded, Scratch, require, target};
use nix::sys::signal::Signal;

fn shell(script: &str) -> Recorded {
    Launch::new().run("sh", &["-c", script])
}

/// What the tracer says when it cannot run a program.
fn fail(launch: &Launch, program: &str) -> Ended {
    let scratch = Scratch::new();
    run(&mut launch.command(&scratch, Path::new(program), &[]), b"")
}

#[test]
fn standard_streams_pass_through() {
    if !require(Feature::Root) {
        return;
    }
    let recorded = Launch::new().stdin(b"some\0bytes\n").run("cat", &[]);
    assert_eq!(recorded.stdout, b"some\0bytes\n", "{}", recorded.stderr);
    let recorded = shell("echo to stderr >&2");
    assert_eq!(recorded.stdout, b"", "{}", recorded.stderr);
    assert!(
        recorded.stderr.contains("to stderr\n"),
        "{}",
        recorded.stderr
    );
}

#[test]
fn the_status_is_the_programs() {
    if !require(Feature::Root) {
        return;
    }
    for (script, status) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255)] {
        let recorded = shell(script);
        assert_eq!(
            recorded.status.code(),
            Some(status),
            "{script}:\n{}",
            recorded.stderr
        );
    }
    for (signal, status) in [("TERM", 143), ("KILL", 137), ("SEGV", 139), ("USR1", 138)] {
        let recorded = shell(&format!("kill -{signal} $$"));
        assert_eq!(
            recorded.status.code(),
            Some(status),
            "{signal}:\n{}",
            recorded.stderr
        );
    }
}

#[test]
fn a_program_that_is_not_there() {
    if !require(Feature::Root) {
        return;
    }
    for program in ["no-such-program-anywhere", "/no/such/program"] {
        let ended = fail(&Launch::new(), program);
        assert_eq!(ended.status.code(), Some(127), "{}", ended.stderr);
        assert!(ended.stderr.contains(program), "{}", ended.stderr);
        assert!(ended.stdout.is_empty());
    }
}

#[test]
fn a_program_that_cannot_be_executed() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.join("data");
    std::fs::write(&file, "not a program").expect("write a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("set its mode");
    for program in [file.as_path(), scratch.path()] {
        let program = program.to_string_lossy();
        let ended = fail(&Launch::new(), &program);
        assert_eq!(ended.status.code(), Some(126), "{}", ended.stderr);
        assert!(ended.stderr.contains(&*program), "{}", ended.stderr);
    }
}

#[test]
fn a_failure_of_its_own() {
    if !require(Feature::Root) {
        return;
    }
    // The later -o wins, or two are refused as usage; both must not run.
    let mut command = Command::new(binary());
    command.args(["-o", "/proc/nowhere/trace", "--", "echo", "ran"]);
    let ended = run(&mut command, b"");
    assert_eq!(ended.status.code(), Some(125), "{}", ended.stderr);
    assert!(ended.stdout.is_empty(), "the program ran: {}", ended.stderr);
    assert!(ended.stderr.contains("/proc/nowhere"), "{}", ended.stderr);
}

#[test]
fn wrong_usage() {
    let wrong: [&[&str]; 5] = [
        &["--no-such-option", "--", "true"],
        &[],
        &["--pid", "none"],
        &["--duration", "soon", "--", "true"],
        &["--pid", "1", "--", "true"],
    ];
    for args in wrong {
        let ended = run(Command::new(binary()).args(args), b"");
        assert_eq!(ended.status.code(), Some(2), "{args:?}:\n{}", ended.stderr);
        assert!(!ended.stderr.is_empty(), "{args:?}: nothing is said");
    }
}

#[test]
fn surroundings_are_the_same() {
    if !require(Feature::Root) {
        return;
    }
    let scripts: [(&str, &[&str]); 4] = [
        ("env", &[]),
        ("pwd", &[]),
        ("ls", &["/proc/self/fd"]),
        (
            "cat",
            &[
                "/proc/self/limits",
                "/proc/self/oom_score_adj",
                "/proc/self/personality",
            ],
        ),
    ];
    for (program, args) in scripts {
        let recorded = Launch::new().run(program, args);
        recorded.assert_same_as(&run(Command::new(program).args(args), b""));
    }
}

/// Lines of a process's status that a program can depend on. glibc's two
/// internal signals, 32 and 33, are no program's business.
fn attributes(status: &[u8]) -> String {
    let fields = [
        "Umask",
        "Uid",
        "Gid",
        "Groups",
        "Sig",
        "Cap",
        "NoNewPrivs",
        "Seccomp",
    ];
    let is_wanted = |line: &&str| fields.iter().any(|field| line.starts_with(field));
    let text = String::from_utf8_lossy(status);
    let lines = text
        .lines()
        .filter(is_wanted)
        .filter(|line| !line.starts_with("SigQ"));
    lines
        .map(|line| without_internal_signals(line) + "\n")
        .collect()
}

fn without_internal_signals(line: &str) -> String {
    match line.split_once(":\t") {
        Some((name, set)) if name.starts_with("Sig") => {
            let set = u64::from_str_radix(set, 16).unwrap_or(u64::MAX);
            format!("{name} {:016x}", set & !(3 << 31))
        }
        _ => line.to_owned(),
    }
}

/// Other signals may be ignored as well, as in the background of a shell.
fn ignores_hang_up(attributes: &str) -> bool {
    let ignored = attributes
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn "));
    let set = ignored.and_then(|set| u64::from_str_radix(set, 16).ok());
    set.is_some_and(|set| set & 1 != 0)
}

#[test]
fn attributes_of_the_process_are_the_same() {
    if !require(Feature::Root) {
        return;
    }
    // A hang-up that is ignored, as by nohup, stays ignored.
    let nohup = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"];
    let recorded = Launch::new()
        .under(&nohup)
        .run("cat", &["/proc/self/status"]);
    let mut untraced = Command::new(nohup[0]);
    untraced
        .args(&nohup[1..])
        .args(["cat", "/proc/self/status"]);
    let untraced = attributes(&run(&mut untraced, b"").stdout);
    assert!(ignores_hang_up(&untraced), "{untraced}");
    assert_eq!(
        attributes(&recorded.stdout),
        untraced,
        "{}",
        recorded.stderr
    );
}

#[test]
fn the_program_is_a_member_of_the_tracers_process_group() {
    if !require(Feature::Root) {
        return;
    }
    // Fields 5 and 6 of stat are the process group and the session; the harness
    // makes the tracer the leader of a group.
    let scratch = Scratch::new();
    let args = ["-d ", "-f5,6", "/proc/self/stat"];
    let tracer = Running::start(&mut Launch::new().command(&scratch, Path::new("cut"), &args));
    let session = nix::unistd::getsid(None).expect("this test has a session");
    let expected = format!("{} {session}\n", tracer.pid());
    let ended = tracer.finish();
    assert_eq!(
        String::from_utf8_lossy(&ended.stdout),
        expected,
        "{}",
        ended.stderr
    );
}

fn interrupt(signal: Signal, count: &str) {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let command = &mut Launch::new().command(&scratch, &target("sigcount"), &[]);
    let mut tracer = Running::start(command);
    tracer.wait_for_line("ready");
    tracer.signal(signal);
    tracer.wait_for_line(&format!("got {signal}"));
    let recorded = Recorded::of(tracer.finish(), scratch);
    assert_eq!(recorded.status.code(), Some(12), "{}", recorded.stderr);
    assert_eq!(recorded.truth().get(count), 1, "{}", recorded.stderr);
    let trace = recorded.trace();
    assert!(
        !trace.truncated,
        "the file is cut short:\n{}",
        recorded.stderr
    );
    assert_eq!(trace.calls, 10, "{}", recorded.stderr);
}

#[test]
fn sigint_is_forwarded_once() {
    interrupt(Signal::SIGINT, "interrupts");
}

#[test]
fn sigterm_is_forwarded_once() {
    interrupt(Signal::SIGTERM, "terminations");
}

#[test]
fn a_program_that_dies_of_the_forwarded_signal() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let args = ["-c", "echo ready; exec cat"];
    let mut tracer = Running::start(&mut Launch::new().command(&scratch, Path::new("sh"), &args));
    tracer.wait_for_line("ready");
    tracer.signal(Signal::SIGTERM);
    // Standard input stays open until the program has gone.
    let ended = tracer.wait();
    assert_eq!(ended.status.code(), Some(143), "{}", ended.stderr);
}

/// Presses Ctrl-C on a terminal of the tracer's own.
#[test]
fn control_c_reaches_the_program_once() {
    if !require(Feature::Root) {
        return;
    }
    let terminal = nix::pty::openpty(None, None).expect("a terminal");
    let (mut keyboard, stdin): (File, OwnedFd) = (terminal.master.into(), terminal.slave);
    let scratch = Scratch::new();
    let launch = Launch::new().under(&["setsid", "--ctty", "--wait"]);
    let command = &mut launch.command(&scratch, &target("sigcount"), &[]);
    let mut tracer = Running::start_reading(command, Stdio::from(stdin));
    tracer.wait_for_line("ready");
    keyboard.write_all(b"\x03").expect("press Ctrl-C");
    tracer.wait_for_line("got SIGINT");
    keyboard.write_all(b"go\n").expect("type a line");
    let recorded = Recorded::of(tracer.finish(), scratch);
    assert_eq!(recorded.status.code(), Some(12), "{}", recorded.stderr);
    assert_eq!(recorded.truth().get("interrupts"), 1, "{}", recorded.stderr);
    assert!(
        !recorded.trace().truncated,
        "the file is cut short:\n{}",
        recorded.stderr
    );
}

#[test]
fn under_sudo_the_program_runs_as_the_invoking_user() {
    if !require(Feature::Root) {
        return;
    }
    let sudo = || {
        Launch::new()
            .env("SUDO_UID", "65534")
            .env("SUDO_GID", "65534")
            .env("SUDO_USER", "nobody")
    };
    let script = "id -u; id -g; id -G";
    let recorded = sudo().run("sh", &["-c", script]);
    assert_eq!(
        recorded.stdout, b"65534\n65534\n65534\n",
        "{}",
        recorded.stderr
    );
    let recorded = sudo()
        .option("--user")
        .option("root")
        .run("sh", &["-c", "id -u"]);
    assert_eq!(recorded.stdout, b"0\n", "{}", recorded.stderr);
    let recorded = Launch::new()
        .option("--user")
        .option("nobody")
        .run("id", &["-u"]);
    assert_eq!(recorded.stdout, b"65534\n", "{}", recorded.stderr);
}

#[test]
fn a_duration_ends_the_recording_not_the_program() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let launch = Launch::new().option("--duration").option("1s");
    let mut tracer = Running::start(&mut launch.command(&scratch, &target("worker"), &["100"]));
    let pid = Truth::parse(tracer.wait_for_line("pid=").as_bytes()).get("pid");
    let pid = u32::try_from(pid).expect("a process id");
    tracer.wait_for_line("ready");
    assert_ne!(changed_code(pid, "/libc.so.6"), [], "nothing is probed");
    tracer.say(b"g");
    // The program works on; its lines are the clock.
    while !changed_code(pid, "/libc.so.6").is_empty() {
        tracer.wait_for_line("working");
    }
    tracer.wait_for_line("working");
    let recorded = Recorded::of(tracer.finish(), scratch);
    assert_eq!(recorded.status.code(), Some(11), "{}", recorded.stderr);
    recorded.assert_nothing_lost();
    let trace = recorded.trace();
    assert!(!trace.truncated, "{}", recorded.stderr);
    assert!(
        (1..recorded.truth().get("calls")).contains(&trace.calls),
        "{}",
        recorded.stderr
    );
}
