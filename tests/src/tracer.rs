//! Runs `htrace-bpf`: launching a target, attaching to one, reporting a file.
//!
//! The binary is `HTRACE_BPF_BIN`, or else the workspace's release build.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use nix::sys::{signal::Signal, stat::Mode};
use nix::unistd::mkfifo;

use crate::process::{Ended, Running, code, run};
use crate::report::Report;
use crate::scratch::Scratch;
use crate::trace_file::Trace;
use crate::truth::Truth;

/// The tracer under test.
///
/// # Panics
/// When it has not been built.
pub fn binary() -> PathBuf {
    let path = std::env::var_os("HTRACE_BPF_BIN").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/htrace-bpf"),
        PathBuf::from,
    );
    path.canonicalize().unwrap_or_else(|error| {
        panic!(
            "{}: {error}; run `cargo xtask build --release` first, or set HTRACE_BPF_BIN",
            path.display()
        )
    })
}

/// A run of the tracer that launches its target, to be configured.
#[derive(Debug, Default)]
pub struct Launch {
    runner: Vec<OsString>,
    binary: Option<PathBuf>,
    options: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    stdin: Vec<u8>,
}

/// A finished recording.
#[derive(Debug)]
pub struct Recorded {
    /// The tracer's exit status: the target's own when it was launched.
    pub status: ExitStatus,
    /// Standard output: the target's, nothing else.
    pub stdout: Vec<u8>,
    /// Standard error of the tracer (and of a launched target).
    pub stderr: String,
    /// The recorded file.
    pub file: PathBuf,
    scratch: Scratch,
}

impl Launch {
    /// Nothing but `-o` into a directory of its own.
    pub fn new() -> Self {
        Self::default()
    }

    /// Prefixes the tracer's command line, as `setpriv …` would.
    #[must_use]
    pub fn under(mut self, runner: &[impl AsRef<OsStr>]) -> Self {
        self.runner = runner.iter().map(|word| word.as_ref().to_owned()).collect();
        self
    }

    /// Adds a word to that prefix.
    #[must_use]
    pub fn under_too(mut self, word: &str) -> Self {
        self.runner.push(word.into());
        self
    }

    /// Uses a copy of the tracer, which another user can execute.
    #[must_use]
    pub fn binary(mut self, path: PathBuf) -> Self {
        self.binary = Some(path);
        self
    }

    /// Adds an option of the tracer.
    #[must_use]
    pub fn option(mut self, option: impl AsRef<OsStr>) -> Self {
        self.options.push(option.as_ref().to_owned());
        self
    }

    /// Adds options of the tracer, in order.
    #[must_use]
    pub fn options(self, options: &[&str]) -> Self {
        options.iter().fold(self, Self::option)
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.envs.push((name.into(), value.into()));
        self
    }

    /// What the target reads.
    #[must_use]
    pub fn stdin(mut self, bytes: &[u8]) -> Self {
        self.stdin = bytes.to_owned();
        self
    }

    /// The tracer with its options and its output in `scratch`; what to record is to be added.
    fn recording_into(&self, scratch: &Scratch) -> Command {
        let mut words = self.runner.clone();
        words.push(self.binary.clone().unwrap_or_else(binary).into());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg("-o")
            .arg(scratch.join("trace"))
            .args(&self.options);
        command
    }

    /// The command, with its output in `scratch`.
    pub fn command(&self, scratch: &Scratch, program: &Path, args: &[&str]) -> Command {
        let mut command = self.recording_into(scratch);
        command
            .arg("--")
            .arg(program)
            .args(args)
            .envs(self.envs.iter().map(|(k, v)| (k, v)));
        command
    }

    /// Records a program from its start to its end.
    ///
    /// # Panics
    /// When no file was recorded.
    pub fn run(&self, program: impl AsRef<Path>, args: &[&str]) -> Recorded {
        let scratch = Scratch::new();
        let ended = run(
            &mut self.command(&scratch, program.as_ref(), args),
            &self.stdin,
        );
        Recorded::of(ended, scratch)
    }
}

impl Recorded {
    /// Takes the output of a tracer that was told to write into `scratch`.
    ///
    /// # Panics
    /// When no file was recorded.
    pub fn of(ended: Ended, scratch: Scratch) -> Self {
        let file = scratch.join("trace.zst");
        let Ended {
            status,
            stdout,
            stderr,
        } = ended;
        assert!(file.exists(), "no file was recorded ({status}):\n{stderr}");
        Self {
            status,
            stdout,
            stderr,
            file,
            scratch,
        }
    }

    /// The file, replayed by the naive model.
    pub fn trace(&self) -> Trace {
        Trace::read(&self.file)
    }

    /// What the target printed about itself.
    pub fn truth(&self) -> Truth {
        Truth::parse(&self.stdout)
    }

    /// `htrace-bpf report` with all sections.
    ///
    /// # Panics
    /// When the report fails.
    pub fn report(&self) -> Report {
        let ended = report(&self.file);
        assert!(
            ended.status.success(),
            "the report failed: {}\n{}",
            ended.status,
            ended.stderr
        );
        Report::new(&ended.stdout)
    }

    /// Asserts that a launched program did what it does untraced: the same
    /// standard output, the same status.
    ///
    /// # Panics
    /// When it did not.
    pub fn assert_same_as(&self, untraced: &Ended) {
        assert_eq!(
            code(self.status),
            code(untraced.status),
            "status:\n{}",
            self.stderr
        );
        assert!(
            self.stdout == untraced.stdout,
            "standard output differs; traced:\n{}\nuntraced:\n{}\nstderr:\n{}",
            head(&self.stdout),
            head(&untraced.stdout),
            self.stderr
        );
    }

    /// A number of the summary that ends a recording.
    ///
    /// # Panics
    /// When the summary lacks it.
    pub fn summary(&self, name: &str) -> i64 {
        self.in_summary(name)
            .unwrap_or_else(|| panic!("no `{name}` in the summary:\n{}", self.stderr))
    }

    /// A number of the summary, which leaves out some that are 0.
    pub fn summary_or_zero(&self, name: &str) -> i64 {
        self.in_summary(name).unwrap_or(0)
    }

    fn in_summary(&self, name: &str) -> Option<i64> {
        let mut lines = self.stderr.lines();
        let line = lines.find(|line| line.trim_start().starts_with(name))?;
        line.split_whitespace().last()?.parse().ok()
    }

    /// Events lost for a reason, by the summary.
    pub fn lost(&self, reason: &str) -> i64 {
        let start = format!("lost {reason}:");
        let line = self
            .stderr
            .lines()
            .find_map(|line| line.strip_prefix(&start));
        line.map_or(0, |count| {
            count.trim().parse().expect("a number of lost events")
        })
    }

    /// The directory that the recording was made in.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Asserts that not a single event was lost.
    ///
    /// # Panics
    /// When the summary speaks of losses.
    pub fn assert_nothing_lost(&self) {
        let losses: Vec<&str> = self.stderr.lines().filter(|line| is_loss(line)).collect();
        assert!(
            losses.is_empty(),
            "events were lost: {losses:?}\n{}",
            self.stderr
        );
    }
}

/// The summary's lines about losses start with that word, after the program's
/// name or not.
fn is_loss(line: &str) -> bool {
    line.trim_start_matches("htrace-bpf:")
        .trim_start()
        .starts_with("lost")
}

fn head(output: &[u8]) -> String {
    String::from_utf8_lossy(&output[..output.len().min(2000)]).into_owned()
}

/// `htrace-bpf report` on any file, with all sections and all that groups hold.
pub fn report(file: &Path) -> Ended {
    run(
        Command::new(binary())
            .args(["report", "-l", "1", "-s", "1000000"])
            .arg(file),
        b"",
    )
}

/// The tracer, attached to a target and recording.
#[derive(Debug)]
pub struct Attached {
    tracer: Running,
    scratch: Scratch,
}

impl Attached {
    /// Attaches to a process and returns once all probes are live.
    pub fn to(pid: u32) -> Self {
        Self::with(&Launch::new(), pid)
    }

    /// The same under a configuration.
    ///
    /// # Panics
    /// When the tracer ends without recording.
    pub fn with(launch: &Launch, pid: u32) -> Self {
        let scratch = Scratch::new();
        let mut tracer = Running::start(&mut launch.attach_command(&scratch, pid));
        tracer.wait_for_stderr("recording");
        Self { tracer, scratch }
    }

    /// The tracer's process.
    pub fn tracer(&mut self) -> &mut Running {
        &mut self.tracer
    }

    /// Waits for the tracer to end by itself.
    pub fn finish(self) -> Recorded {
        Recorded::of(self.tracer.finish(), self.scratch)
    }

    /// Ends the recording by a signal.
    pub fn stop(self, signal: Signal) -> Recorded {
        self.tracer.signal(signal);
        self.finish()
    }

    /// Kills the tracer and returns what it left.
    pub fn kill(self) -> Recorded {
        self.stop(Signal::SIGKILL)
    }
}

impl Launch {
    /// The command that attaches to `pid`, with its output in `scratch`.
    pub fn attach_command(&self, scratch: &Scratch, pid: u32) -> Command {
        let mut command = self.recording_into(scratch);
        command
            .arg("--pid")
            .arg(pid.to_string())
            .envs(self.envs.iter().map(|(k, v)| (k, v)));
        command
    }

    /// Attaches to `pid` with a pipe for the trace file, and returns the tracer, which records, and
    /// the pipe's other end.
    ///
    /// # Panics
    /// When the tracer ends without recording.
    pub fn attach_into_pipe(&self, scratch: &Scratch, pid: u32) -> (Running, File) {
        let pipe = scratch.join("trace.zst");
        mkfifo(&pipe, Mode::S_IRWXU).expect("make a pipe");
        let mut tracer = Running::start(&mut self.attach_command(scratch, pid));
        let reader = File::open(&pipe).expect("open a pipe");
        tracer.wait_for_stderr("recording");
        (tracer, reader)
    }

    /// Attaches where that has to fail, and returns what the tracer said.
    pub fn attach_in_vain(&self, pid: u32) -> Ended {
        let scratch = Scratch::new();
        run(&mut self.attach_command(&scratch, pid), b"")
    }
}

/// A target attached to from its mark on: start it, wait for its "ready",
/// attach, let it go, take what both left. Its input stays open until it ends.
///
/// # Panics
/// When any of that fails.
pub fn record_from_mark(launch: &Launch, target: &mut Command) -> (Recorded, Ended) {
    let mut target = Running::start(target);
    target.wait_for_line("ready");
    let tracer = Attached::with(launch, target.pid());
    target.say(b"g");
    let ended = target.wait();
    (tracer.finish(), ended)
}
