//! What goes wrong on the recorder's side: no room, no permission, signals. The
//! target runs on as ever, what was recorded can be read, and a message says
//! what it was.

#![expect(
    clippy::expect_used,
    reason = "helpers of tests report failures by panicking"
)]

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use htrace_tests::process::{Ended, Running, run};
use htrace_tests::tracer::{Attached, report};
use htrace_tests::truth::Truth;
use htrace_tests::{Feature, Launch, Scratch, require, target};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;

/// A program at full speed until its input ends, at its mark.
fn stress() -> Running {
    let mut stress = Running::start(Command::new(target("stress")).args(["2", "3600000"]));
    stress.wait_for_line("ready");
    stress
}

/// It did what it does untraced.
fn assert_ended_well(ended: &Ended) {
    assert_eq!(ended.status.code(), Some(12), "{}", ended.stderr);
    assert!(Truth::parse(&ended.stdout).get("allocations") > 0);
}

/// The file opens, and says whether it is whole.
fn assert_readable(file: &Path, whole: bool) {
    const DAMAGED: i32 = 3;
    let ended = report(file);
    let status = if whole { 0 } else { DAMAGED };
    assert_eq!(ended.status.code(), Some(status), "{}", ended.stderr);
    assert!(
        whole || ended.stderr.contains("cut short"),
        "{}",
        ended.stderr
    );
}

/// Attaches with the output in `scratch`, lets the target work until the tracer
/// ends by itself, and returns what the tracer said.
fn until_it_stops(launch: &Launch, scratch: &Scratch) -> Ended {
    let mut target = stress();
    let mut tracer = Running::start(&mut launch.attach_command(scratch, target.pid()));
    tracer.wait_for_stderr("recording");
    target.say(b"g");
    let ended = tracer.wait();
    // It is not traced any more, and goes on.
    target.wait_for_line("working");
    assert_ended_well(&target.finish());
    ended
}

fn assert_says(ended: &Ended, words: &[&str]) {
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    for word in words {
        assert!(
            ended.stderr.contains(word),
            "no {word:?} in:\n{}",
            ended.stderr
        );
    }
}

/// A file system of its own at a directory, with room for so many bytes.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn at(directory: &'a Path, bytes: u32) -> Self {
        let size = format!("size={bytes},mode=0777");
        let kind = Some("tmpfs");
        mount(kind, directory, kind, MsFlags::empty(), Some(size.as_str())).expect("mount a tmpfs");
        Self(directory)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.0, MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_full_disk() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let _disk = SmallDisk::at(scratch.path(), 16 << 10);
    let ended = until_it_stops(&Launch::new(), &scratch);
    assert_says(&ended, &["cannot write the trace file", "No space left"]);
    assert_readable(&scratch.join("trace.zst"), false);
}

#[test]
fn a_limit_of_file_sizes() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let launch = Launch::new().under(&["prlimit", "--fsize=16384"]);
    let ended = until_it_stops(&launch, &scratch);
    assert_says(&ended, &["cannot write the trace file", "File too large"]);
    assert_readable(&scratch.join("trace.zst"), false);
}

#[test]
fn a_reader_that_goes_away() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let mut target = stress();
    let (tracer, reader) = Launch::new().attach_into_pipe(&scratch, target.pid());
    drop(reader);
    target.say(b"g");
    let ended = tracer.wait();
    assert_says(&ended, &["cannot write the trace file", "Broken pipe"]);
    assert_ended_well(&target.finish());
}

#[test]
fn an_output_that_cannot_be_made() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    fs::write(scratch.join("file"), "").expect("write a file");
    fs::create_dir(scratch.join("directory.zst")).expect("make a directory");
    for output in ["file/trace", "directory"] {
        let output = scratch.join(output);
        let ended = run(
            Command::new(htrace_tests::tracer::binary())
                .arg("-o")
                .arg(&output)
                .args(["--", "echo", "it ran"]),
            b"",
        );
        assert_eq!(ended.status.code(), Some(125), "{}", ended.stderr);
        assert!(ended.stdout.is_empty(), "the program ran");
        let name = output.to_string_lossy();
        assert!(ended.stderr.contains(&*name), "{}", ended.stderr);
    }
}

#[test]
fn a_directory_that_goes_away() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let directory = scratch.join("sub");
    let mut target = stress();
    let attach = &mut Command::new(htrace_tests::tracer::binary());
    attach.arg("-o").arg(directory.join("trace"));
    attach.arg("--pid").arg(target.pid().to_string());
    let mut tracer = Running::start(attach);
    tracer.wait_for_stderr("recording");
    fs::remove_dir_all(&directory).expect("remove the output's directory");
    target.say(b"g");
    target.wait_for_line("working");
    assert_ended_well(&target.finish());
    assert_says(&tracer.wait(), &["removed during the recording"]);
}

#[test]
fn a_standard_error_that_is_closed() {
    if !require(Feature::Root) {
        return;
    }
    let program = target("ends");
    let scratch = Scratch::new();
    let command = Launch::new().command(&scratch, &program, &["20", "return"]);
    let untraced = run(Command::new(&program).args(["20", "return"]), b"");
    // Once closed altogether, and once a pipe that nobody reads.
    let shell = |script: &str| {
        let words = [command.get_program()]
            .into_iter()
            .chain(command.get_args());
        run(
            Command::new("sh").args(["-c", script, "sh"]).args(words),
            b"",
        )
    };
    for script in [
        r#"exec "$@" 2>&-"#,
        r#"exec 3>&1; { "$@" 2>&1 >&3; echo $? >&4; } 4>status | true; exit $(cat status)"#,
    ] {
        let script = format!("cd {}; {script}", scratch.path().display());
        let ended = shell(&script);
        assert_eq!(ended.status.code(), untraced.status.code(), "{script}");
        assert_eq!(ended.stdout, untraced.stdout, "{script}");
        assert_readable(&scratch.join("trace.zst"), true);
    }
}

/// Ends an attached recording by signals; the file is whole.
fn ends_by(signals: &[Signal]) {
    if !require(Feature::Root) {
        return;
    }
    let mut target = stress();
    let mut tracer = Attached::to(target.pid());
    target.say(b"g");
    target.wait_for_line("working");
    for signal in signals {
        tracer.tracer().signal(*signal);
        // A stop must have come to pass before it is taken back.
        while *signal == Signal::SIGTSTP && tracer.tracer().state() != 'T' {
            std::thread::yield_now();
        }
    }
    let recorded = tracer.finish();
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.stderr);
    assert_readable(&recorded.file, true);
    assert_ended_well(&target.finish());
}

#[test]
fn a_terminal_that_hangs_up() {
    ends_by(&[Signal::SIGHUP]);
}

#[test]
fn a_quit_signal() {
    ends_by(&[Signal::SIGQUIT]);
}

/// SIGPIPE is nothing to the recorder, and what stops it stops the recording,
/// not the target.
#[test]
fn being_stopped_and_continued() {
    ends_by(&[
        Signal::SIGPIPE,
        Signal::SIGTSTP,
        Signal::SIGCONT,
        Signal::SIGTERM,
    ]);
}

/// The first signal ends the recording, the second also the writing of it.
#[test]
fn a_second_signal_while_it_writes() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let mut target = stress();
    // Nobody reads it, so the recorder never comes to an end.
    let (tracer, _reader) = Launch::new().attach_into_pipe(&scratch, target.pid());
    target.say(b"g");
    for _ in 0..20 {
        target.wait_for_line("working");
    }
    tracer.signal(Signal::SIGINT);
    // The probes are gone when the first signal has done its part.
    while traced_by_bpf(&tracer) {
        std::thread::yield_now();
    }
    tracer.signal(Signal::SIGINT);
    assert_says(&tracer.wait(), &["second signal"]);
    assert_ended_well(&target.finish());
}

/// Whether a tracer holds links of BPF programs.
fn traced_by_bpf(tracer: &Running) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", tracer.pid())).expect("list descriptors");
    descriptors.flatten().any(|entry| {
        let name = fs::read_link(entry.path()).unwrap_or_default();
        ["anon_inode:bpf_link", "anon_inode:[perf_event]"].contains(&&*name.to_string_lossy())
    })
}

/// A control group of its own that may have so much memory, in either version.
struct MemoryLimit(std::path::PathBuf);

impl MemoryLimit {
    fn new(bytes: u64) -> Option<Self> {
        let name = format!("htrace-test.{}", std::process::id());
        let places = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        places.into_iter().find_map(|(root, limit)| {
            let group = Path::new(root).join(&name);
            fs::create_dir(&group).ok()?;
            let group = Self(group);
            fs::write(group.0.join(limit), bytes.to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn no_memory_for_bpf_maps() {
    if !require(Feature::Root) || !require(Feature::MemoryGroups) {
        return;
    }
    let limit = MemoryLimit::new(200 << 20).expect("a control group");
    let processes = limit.0.join("cgroup.procs");
    let script = format!(r#"echo $$ > {} && exec "$@""#, processes.display());
    let launch = Launch::new()
        .under(&["sh", "-c", &script, "sh"])
        .option("--ring-size")
        .option("1024");
    let target = stress();
    assert_says(
        &launch.attach_in_vain(target.pid()),
        &["not enough memory", "EVENTS", "--ring-size"],
    );
    assert_ended_well(&target.finish());
}

/// Before Linux 5.11 BPF maps count as locked memory; since, the limit is nothing
/// to us.
#[test]
fn a_limit_of_locked_memory() {
    if !require(Feature::Root) || !require(Feature::Setpriv) {
        return;
    }
    let launch = Launch::new().under(&[
        "prlimit",
        "--memlock=65536:65536",
        "setpriv",
        "--bounding-set=-sys_resource",
        "--inh-caps=-sys_resource",
    ]);
    let scratch = Scratch::new();
    let ended = run(
        &mut launch.command(&scratch, &target("ends"), &["20", "return"]),
        b"",
    );
    if counts_as_locked() {
        assert_eq!(ended.status.code(), Some(125), "{}", ended.stderr);
        assert!(ended.stderr.contains("ulimit -l"), "{}", ended.stderr);
    } else {
        assert_readable(&scratch.join("trace.zst"), true);
    }
}

fn counts_as_locked() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("read the release");
    let mut numbers = release
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version < (5, 11)
}

#[test]
fn a_full_limit_of_the_trace_file() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let launch = Launch::new().option("--max-size").option("20K");
    let ended = until_it_stops(&launch, &scratch);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("--max-size"), "{}", ended.stderr);
    let file = scratch.join("trace.zst");
    assert_readable(&file, true);
    let length = fs::metadata(&file).expect("the file is there").len();
    assert!((20 << 10..1 << 20).contains(&length), "{length} bytes");
}

#[test]
fn a_limit_of_the_recorders_memory() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let launch = Launch::new().option("--max-memory").option("1M");
    let ended = until_it_stops(&launch, &scratch);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("--max-memory"), "{}", ended.stderr);
    assert_readable(&scratch.join("trace.zst"), true);
}

/// Standard input of a terminal is not needed for any of this.
#[test]
fn descriptors_that_are_not_there() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let program = target("ends");
    let command = Launch::new().command(&scratch, &program, &["20", "return"]);
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let null = OwnedFd::from(File::open("/dev/null").expect("open /dev/null"));
    let mut closed = Command::new("sh");
    closed
        .args(["-c", r#"exec "$@" <&- >&- 2>&-"#, "sh"])
        .args(words);
    let ended = Running::start_reading(&mut closed, Stdio::from(null)).wait();
    let untraced = run(Command::new(&program).args(["20", "return"]), b"");
    assert_eq!(ended.status.code(), untraced.status.code());
    assert_readable(&scratch.join("trace.zst"), true);
}
