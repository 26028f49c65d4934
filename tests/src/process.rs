//! Child processes whose moments are known: wait for a line, say a byte, take
//! the rest of the output.
//!
//! Each child leads a process group of its own. A watchdog kills the group of a
//! child that outlives [`patience`], so that a hang becomes a failure with its
//! standard error shown; a child that a failing test drops is killed with its
//! group as well, so that nothing is left behind.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::soak;

/// How long any child of a test may live. No test measures time; this only
/// bounds a hang. A soak adds its own length.
fn patience() -> Duration {
    Duration::from_secs(300 + soak::longest_seconds())
}

/// A child with its three streams held by the test. Standard error is drained
/// by a thread from the start, so no child ever blocks on it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    seen: Vec<u8>,
    stderr: Option<Stderr>,
    _watchdog: Sender<()>,
}

#[derive(Debug)]
struct Stderr {
    lines: Receiver<String>,
    all: JoinHandle<String>,
}

/// What a child that has ended left.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// All of its standard output.
    pub stdout: Vec<u8>,
    /// All of its standard error, as text.
    pub stderr: String,
}

impl Running {
    /// Starts a command with pipes for all three streams.
    pub fn start(command: &mut Command) -> Self {
        Self::start_reading(command, Stdio::piped())
    }

    /// Starts a command with a standard input of its own, a terminal's for
    /// example, and pipes for the other two streams.
    pub fn start_reading(command: &mut Command, stdin: Stdio) -> Self {
        command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let stderr = Stderr::drain(child.stderr.take().expect("stderr is piped"));
        let watchdog = watch(Pid::from_raw(child.id().cast_signed()));
        Self {
            child,
            stdout,
            seen: Vec::new(),
            stderr: Some(stderr),
            _watchdog: watchdog,
        }
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads standard output up to and including a line that starts with
    /// `start`, and returns that line.
    ///
    /// # Panics
    /// When the output ends before.
    pub fn wait_for_line(&mut self, start: &str) -> String {
        loop {
            let mut line = Vec::new();
            let length = self
                .stdout
                .read_until(b'\n', &mut line)
                .expect("read a child's output");
            self.seen.extend_from_slice(&line);
            let line = String::from_utf8_lossy(&line);
            if line.starts_with(start) {
                return line.trim_end().to_owned();
            }
            assert!(
                length != 0,
                "output ended before `{start}`:{}",
                self.last_words()
            );
        }
    }

    /// Reads standard error up to and including a line that contains `part`,
    /// and returns that line.
    ///
    /// # Panics
    /// When standard error ends before.
    pub fn wait_for_stderr(&mut self, part: &str) -> String {
        let stderr = self.stderr.as_ref().expect("stderr is held until the end");
        match stderr.lines.iter().find(|line| line.contains(part)) {
            Some(line) => line,
            None => panic!("standard error ended before `{part}`:{}", self.last_words()),
        }
    }

    /// Gives the child bytes on its standard input, which stays open. A child
    /// that no longer reads is not an error.
    pub fn say(&mut self, bytes: &[u8]) {
        if let Some(stdin) = &mut self.child.stdin {
            let _ = stdin.write_all(bytes);
            let _ = stdin.flush();
        }
    }

    /// Ends the child's standard input.
    pub fn close_stdin(&mut self) {
        self.child.stdin = None;
    }

    /// Sends a signal to the child alone.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("signal a child");
    }

    /// Reads standard output up to and including a line that starts with one of
    /// `starts`, and returns which.
    ///
    /// # Panics
    /// When the output ends before.
    pub fn wait_for_one_of(&mut self, starts: &[&str]) -> usize {
        loop {
            let line = self.wait_for_line("");
            if let Some(found) = starts.iter().position(|start| line.starts_with(start)) {
                return found;
            }
        }
    }

    /// Memory that the child has, in KiB: `VmRSS` of proc(5).
    ///
    /// # Panics
    /// When the child is gone.
    pub fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("read a child's status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.unwrap_or_else(|| panic!("no VmRSS in {status}"))
    }

    /// Time that the child's threads have spent inside the kernel, in the ticks of
    /// proc(5), of which most systems have 100 a second.
    ///
    /// # Panics
    /// When the child is gone.
    pub fn system_ticks(&self) -> u64 {
        let ticks = self.stat_field(12);
        ticks.parse().expect("a number of ticks")
    }

    /// The child's state as proc(5) tells it: `T` when it is stopped.
    ///
    /// # Panics
    /// When the child is gone.
    pub fn state(&self) -> char {
        self.stat_field(0).chars().next().expect("a letter")
    }

    /// A field of `/proc/PID/stat`, counted from the state on, which follows the
    /// name in parentheses.
    fn stat_field(&self, index: usize) -> String {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(path).expect("read a child's state");
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
        let field = fields.and_then(|fields| fields.split_whitespace().nth(index));
        field
            .unwrap_or_else(|| panic!("unknown form of `{stat}`"))
            .to_owned()
    }

    /// Whether the child has not ended yet.
    pub fn is_alive(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("ask for a child's status")
            .is_none()
    }

    /// Sends SIGKILL and waits for the child's death; its streams, which others
    /// may share, stay open.
    pub fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        // Waiting closes the standard input that the child holds.
        let stdin = self.child.stdin.take();
        self.child.wait().expect("wait for a child");
        self.child.stdin = stdin;
    }

    /// Closes standard input, takes the rest of the output, and waits.
    pub fn finish(mut self) -> Ended {
        self.close_stdin();
        self.wait()
    }

    /// Takes the rest of the output and waits, with standard input still open.
    pub fn wait(mut self) -> Ended {
        let stdin = self.child.stdin.take();
        let mut stdout = std::mem::take(&mut self.seen);
        self.stdout
            .read_to_end(&mut stdout)
            .expect("read a child's output");
        let status = self.child.wait().expect("wait for a child");
        drop(stdin);
        let stderr = self.stderr.take().expect("stderr is held until the end");
        Ended {
            status,
            stdout,
            stderr: stderr.rest(),
        }
    }

    fn kill_group(&self) {
        let _ = killpg(
            Pid::from_raw(self.child.id().cast_signed()),
            Signal::SIGKILL,
        );
    }

    fn last_words(&mut self) -> String {
        self.kill_group();
        let status = self.child.wait();
        let stderr = self.stderr.take().map(Stderr::rest).unwrap_or_default();
        let stdout = String::from_utf8_lossy(&self.seen).into_owned();
        format!("\nstatus: {status:?}\nstdout:\n{stdout}\nstderr:\n{stderr}")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Whoever waited took standard error along.
        if self.stderr.is_some() {
            self.kill_group();
            let _ = self.child.wait();
        }
    }
}

impl Stderr {
    fn drain(stderr: std::process::ChildStderr) -> Self {
        let (sender, lines) = channel();
        let all = std::thread::spawn(move || {
            let mut all = String::new();
            let mut reader = BufReader::new(stderr);
            let mut line = Vec::new();
            while reader
                .read_until(b'\n', &mut line)
                .is_ok_and(|length| length > 0)
            {
                let text = String::from_utf8_lossy(&line).into_owned();
                all.push_str(&text);
                let _ = sender.send(text);
                line.clear();
            }
            all
        });
        Self { lines, all }
    }

    fn rest(self) -> String {
        self.all.join().expect("the thread that drains stderr")
    }
}

/// A status as a shell sees it: the exit status, or 128 and the signal.
pub fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(-1)
}

/// Runs a command to its end with `stdin` as its standard input.
pub fn run(command: &mut Command, stdin: &[u8]) -> Ended {
    let mut running = Running::start(command);
    running.say(stdin);
    running.finish()
}

/// Kills the process group when the returned sender is still there after
/// [`patience`].
fn watch(group: Pid) -> Sender<()> {
    let (sender, receiver) = channel::<()>();
    std::thread::spawn(move || {
        if receiver.recv_timeout(patience()) == Err(RecvTimeoutError::Timeout) {
            let _ = killpg(group, Signal::SIGKILL);
        }
    });
    sender
}

#[cfg(test)]
mod tests {
    use super::{Running, run};
    use std::process::Command;

    #[test]
    fn reads_a_line_and_leaves_the_rest() {
        let script = "echo first; read x; echo got $x; echo problem >&2; exit 4";
        let mut child = Running::start(Command::new("sh").args(["-c", script]));
        assert_eq!(child.wait_for_line("fir"), "first");
        child.say(b"word\n");
        let ended = child.finish();
        assert_eq!(ended.stdout, b"first\ngot word\n");
        assert_eq!(ended.stderr, "problem\n");
        assert_eq!(ended.status.code(), Some(4));
    }

    #[test]
    #[should_panic(expected = "last words")]
    fn shows_standard_error_when_the_line_never_comes() {
        let script = "echo last words >&2";
        Running::start(Command::new("sh").args(["-c", script])).wait_for_line("never");
    }

    #[test]
    fn passes_standard_input() {
        assert_eq!(run(&mut Command::new("cat"), b"a\0b").stdout, b"a\0b");
    }
}
