//! Waits for the end of a recording, and does meanwhile what comes up.

use std::{
    fs,
    io::{self, PipeWriter},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use anyhow::Context;
use htrace_trace_format::TargetExit;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, SigmaskHow, Signal, sigprocmask},
        signalfd::{SfdFlags, SignalFd, siginfo},
    },
};
use tokio::{
    io::unix::AsyncFd,
    sync::mpsc::UnboundedReceiver,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::{
    allocators::Allocators, options::Verbosity, pauses::Pauses, progress::Progress,
    recorder::Stats, subject::Subject,
};
use crate::{
    drain::now,
    loader::{ProgramLog, Programs},
    modules::Module,
    sys::{capabilities, readiness},
    target::Exit,
};

/// Why a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The target has ended; how, if we are its parent.
    Exited(Option<Exit>),
    /// The user wants it.
    Asked,
    /// The time is up.
    Duration,
    /// The trace file cannot be written.
    RecorderFailed,
    /// The trace file is as large as it may be.
    FileLimit,
    /// We use as much memory as we may.
    MemoryLimit,
}

impl End {
    /// How the file tells it.
    pub(super) fn target_exit(self) -> TargetExit {
        match self {
            Self::Exited(Some(Exit::Code(code))) => TargetExit::Code(code),
            Self::Exited(Some(Exit::Signal(signal))) => TargetExit::Signal(signal),
            Self::Exited(None)
            | Self::Asked
            | Self::Duration
            | Self::RecorderFailed
            | Self::FileLimit
            | Self::MemoryLimit => TargetExit::Detached,
        }
    }

    /// What the user is told if the end is not what he waits for.
    pub(super) fn reason(self) -> Option<&'static str> {
        match self {
            Self::FileLimit => Some(
                "htrace-bpf: the trace file has reached --max-size: the recording ends here, the \
                 program runs on",
            ),
            Self::MemoryLimit => Some(
                "htrace-bpf: this process has reached --max-memory: the recording ends here, the \
                 program runs on",
            ),
            _ => None,
        }
    }
}

/// Signals that would end us or are meant for us, as something to wait for.
pub(super) struct Signals {
    signals: SignalFd,
    arrival: AsyncFd<OwnedFd>,
    inherited: SigSet,
}

/// A signal, and whether it came from the terminal.
#[derive(Clone, Copy, Debug)]
struct Received {
    signal: i32,
    /// The terminal signals all processes of its foreground group: the target has it already.
    from_terminal: bool,
}

/// Exit status when a second signal has ended us.
const GAVE_UP: i32 = 1;

const TAKEN: [Signal; 6] = [
    // Begin or resume, and pause.
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

impl Signals {
    /// Blocks the signals in this thread and those it starts, and makes them readable. To be
    /// called before there are other threads.
    pub(super) fn take_over() -> io::Result<Self> {
        let taken: SigSet = TAKEN.into_iter().collect();
        let mut inherited = SigSet::empty();
        let mut blocked = taken;
        // A file that grows over a limit is an error of writing, not our death.
        blocked.add(Signal::SIGXFSZ);
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&blocked), Some(&mut inherited))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&taken, flags)?;
        let arrival = readiness::readable(signals.as_fd().try_clone_to_owned()?)?;
        Ok(Self {
            signals,
            arrival,
            inherited,
        })
    }

    /// Signals that were blocked when we were started.
    pub(super) fn inherited_mask(&self) -> SigSet {
        self.inherited
    }

    /// From now on, the `end` of the recording, a signal ends this process at once, while it still
    /// takes probes away and writes what it has. The kernel takes away what is left, and the file is
    /// readable up to its last checkpoint then, and says that it is cut short.
    ///
    /// Returns what has to be kept for as long as that is to be so.
    pub(super) fn end_at_once(&self, end: End, verbosity: Verbosity) -> io::Result<PipeWriter> {
        if matches!(end, End::Exited(_)) {
            // The one that has ended the program may be here still: a terminal's goes to both.
            while self.signals.read_signal()?.is_some() {}
        }
        let signals = self.signals.as_fd().try_clone_to_owned()?;
        let (kept, keep) = io::pipe()?;
        let give_up = move || {
            capabilities::keep_while_recording();
            let mut waits = [
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(kept.as_fd(), PollFlags::POLLIN),
            ];
            while let Err(nix::Error::EINTR) = poll(&mut waits, PollTimeout::NONE) {}
            if waits[0].any() == Some(true) && waits[1].any() != Some(true) {
                verbosity
                    .complain("htrace-bpf: ended by a second signal: the recording is cut short");
                std::process::exit(GAVE_UP);
            }
        };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(give_up)?;
        Ok(keep)
    }

    async fn next(&mut self) -> io::Result<Received> {
        loop {
            let mut ready = self.arrival.readable_mut().await?;
            match self.signals.read_signal() {
                Ok(Some(info)) => return Ok(Received::from(&info)),
                Ok(None) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl From<&siginfo> for Received {
    fn from(info: &siginfo) -> Self {
        // sigaction(2): SI_KERNEL for what the terminal sends, SI_USER and below for processes.
        const SI_KERNEL: i32 = 0x80;
        Self {
            signal: info.ssi_signo.cast_signed(),
            from_terminal: info.ssi_code == SI_KERNEL,
        }
    }
}

/// What a wait needs.
pub(super) struct Wait<'a> {
    pub(super) signals: Signals,
    pub(super) subject: &'a mut Subject,
    pub(super) programs: &'a mut Programs,
    pub(super) allocators: &'a mut Allocators,
    pub(super) modules_seen: &'a mut UnboundedReceiver<Arc<Module>>,
    pub(super) stats: Arc<Stats>,
    pub(super) verbosity: Verbosity,
    pub(super) duration: Option<Duration>,
    /// Bytes of memory that this process may have.
    pub(super) max_memory: Option<u64>,
    /// When the recording has paused so far.
    pub(super) pauses: Pauses,
}

/// Distance of progress lines, and of looks at whether the recorder still works.
const TICK: Duration = Duration::from_millis(500);

impl Wait<'_> {
    /// Waits until the recording has to end.
    pub(super) async fn for_end(&mut self) -> anyhow::Result<End> {
        let exited = exit_of(self.subject)?;
        let mut log = self.programs.log()?;
        let mut progress = Progress::start(self.verbosity);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let deadline = self.duration.map(|duration| Instant::now() + duration);
        let end = loop {
            tokio::select! {
                signal = self.signals.next() => {
                    if let Some(end) = self.signalled(signal.context("cannot wait for signals")?) {
                        break end;
                    }
                }
                ready = exited.readable() => {
                    drop(ready.context("cannot wait for the target")?);
                    break End::Exited(self.subject.reap()?);
                }
                () = until(deadline) => break End::Duration,
                Some(module) = self.modules_seen.recv() => self.module_loaded(&module),
                _ = ticks.tick() => {
                    flush(&mut log);
                    progress.show(&self.stats, self.programs);
                    if let Some(end) = self.at_limit() {
                        break end;
                    }
                }
            }
        };
        flush(&mut log);
        progress.clear();
        Ok(end)
    }

    /// Why the recording cannot go on, if it cannot.
    fn at_limit(&self) -> Option<End> {
        if self.stats.failed.load(Ordering::Acquire) {
            return Some(End::RecorderFailed);
        }
        if self.stats.file_is_full.load(Ordering::Acquire) {
            return Some(End::FileLimit);
        }
        let limit = self.max_memory?;
        (resident_bytes()? >= limit).then_some(End::MemoryLimit)
    }

    /// Tells the user that the function was not called with which the recording was to begin.
    pub(super) fn complain_if_never_begun(&self) {
        if self.programs.is_waiting() {
            let name = self.programs.awaited().unwrap_or_default();
            self.verbosity.complain(&format!(
                "htrace-bpf: {name} was never called, so nothing is recorded; --wait-for takes the \
                 name of a symbol, which nm(1) tells"
            ));
        }
    }

    /// Our exit status is the program's, for whose end we wait in any case; a process that was
    /// attached to keeps its own.
    pub(super) async fn exit_status(&mut self, end: End) -> anyhow::Result<u8> {
        let exit = match end {
            End::Exited(exit) => exit,
            _ if self.subject.is_launched() => self.for_exit().await?,
            _ => None,
        };
        Ok(exit.map_or(0, Exit::status))
    }

    /// Waits until a program that runs on without being recorded ends, too.
    async fn for_exit(&mut self) -> anyhow::Result<Option<Exit>> {
        let exited = exit_of(self.subject)?;
        loop {
            tokio::select! {
                signal = self.signals.next() => { self.signalled(signal?); }
                ready = exited.readable() => {
                    drop(ready?);
                    return Ok(self.subject.reap()?);
                }
            }
        }
    }

    /// A program gets signals that were meant for it; a recording of another process ends.
    fn signalled(&mut self, received: Received) -> Option<End> {
        let pauses = [(Signal::SIGUSR1, false), (Signal::SIGUSR2, true)];
        let pause = pauses
            .iter()
            .find(|(signal, _)| *signal as i32 == received.signal);
        if let Some((_, paused)) = pause {
            self.pause(*paused);
            return None;
        }
        if !self.subject.is_launched() {
            return Some(End::Asked);
        }
        if !received.from_terminal
            && let Err(error) = self.subject.process().signal(received.signal)
        {
            tracing::debug!("cannot pass signal {} on: {error}", received.signal);
        }
        None
    }

    /// Pauses the recording, or goes on with it.
    fn pause(&mut self, paused: bool) {
        let done = self.programs.set_paused(paused);
        if done.is_ok() {
            self.pauses.set(paused, now());
        }
        match done {
            Ok(()) if paused => self.verbosity.say("htrace-bpf: paused"),
            Ok(()) => self.verbosity.say("htrace-bpf: going on"),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// Attaches to an allocator that was not foretold.
    fn module_loaded(&mut self, module: &Arc<Module>) {
        let pid = self.subject.pid();
        let name = module.name();
        match self.allocators.attach(self.programs, module, pid) {
            Ok(true) => tracing::warn!(
                "{name}: the allocator in it is recorded from now on, not from its beginning"
            ),
            Ok(false) => {}
            Err(error) => tracing::warn!("{name}: {error}"),
        }
    }
}

/// Readable once the target has ended.
fn exit_of(subject: &Subject) -> anyhow::Result<AsyncFd<OwnedFd>> {
    let descriptor = subject.process().as_fd().try_clone_to_owned()?;
    readiness::readable(descriptor).context("cannot wait for the target")
}

/// Bytes of memory that this process has: `VmRSS` in proc(5).
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn flush(log: &mut Option<ProgramLog>) {
    if let Some(log) = log {
        log.flush();
    }
}
