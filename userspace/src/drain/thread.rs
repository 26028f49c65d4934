//! The thread that empties the ring buffer.

use std::{
    fs::{self, File},
    io::{self, PipeReader, PipeWriter},
    os::{fd::AsFd, unix::fs::FileExt},
    thread::{self, JoinHandle},
};

use aya::maps::{MapData, RingBuf};
use htrace_ebpf_common::wire::{Event, Kind, Record, TICK_NS};
use nix::{
    sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
    time::{ClockId, clock_gettime},
};

use super::{
    batch::{Batch, Item},
    queue::{Disconnected, Queue},
};
use crate::sys::capabilities;

/// Milliseconds between two looks at a ring buffer that does not ask for one; also the distance
/// of time stamps and of memory samples.
const PERIOD_MS: u16 = 10;

/// Bytes after which a batch is passed on.
const BATCH_BYTES: usize = 1 << 20;

/// What to empty, and where to.
pub struct Input<Q> {
    /// The ring buffer.
    pub events: RingBuf<MapData>,
    /// The target, in our pid namespace.
    pub pid: u32,
    /// True to sample the target's memory only once it has sent a record: a child that has not
    /// yet become the program shows the memory of its parent.
    pub waits_for_program: bool,
    /// The target's mappings as they were noted while it waited, by the stamps of records.
    pub noted_mappings: Box<dyn Fn(u64) -> Option<Vec<u8>> + Send>,
    /// Where batches go. When there is no room the drain waits, and the ring buffer fills.
    pub batches: Q,
}

/// The running drain.
#[derive(Debug)]
pub struct Drain {
    thread: JoinHandle<Result<(), DrainError>>,
    stop: PipeWriter,
}

/// Why the drain ended early.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// It could not be started or cannot wait.
    #[error("cannot drain the ring buffer")]
    System(#[from] io::Error),
    /// Nobody takes its batches any more.
    #[error("the recorder has ended before the drain")]
    NoReceiver,
    /// A bug: the thread has panicked.
    #[error("the drain has died")]
    Died,
}

impl Drain {
    /// Starts to empty the ring buffer.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub fn start<Q: Queue>(input: Input<Q>) -> Result<Self, DrainError> {
        let (stopped, stop) = io::pipe()?;
        let worker = Worker::new(input, stopped)?;
        let thread = thread::Builder::new()
            .name("drain".to_owned())
            .spawn(move || {
                capabilities::keep_while_recording();
                worker.run()
            })?;
        Ok(Self { thread, stop })
    }

    /// Empties the ring buffer a last time and ends. No more records may come.
    ///
    /// # Errors
    /// When it has ended early.
    pub fn finish(self) -> Result<(), DrainError> {
        drop(self.stop);
        self.thread.join().map_err(|_| DrainError::Died)?
    }
}

struct Worker<Q> {
    input: Input<Q>,
    wakes: Epoll,
    /// Kept open: it is waited for.
    _stopped: PipeReader,
    statm: Option<File>,
    batch: Batch,
    /// Stamp of the mappings that were added last.
    added: u64,
}

/// Which descriptor has become ready.
const RING: u64 = 0;
const STOP: u64 = 1;

impl<Q: Queue> Worker<Q> {
    fn new(input: Input<Q>, stopped: PipeReader) -> io::Result<Self> {
        let wakes = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        // A ring buffer is always ready while there is something in it. Only its wake-ups are
        // waited for (edges), or the thread would spin.
        let edges = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        wakes.add(input.events.as_fd(), EpollEvent::new(edges, RING))?;
        wakes.add(&stopped, EpollEvent::new(EpollFlags::EPOLLIN, STOP))?;
        let statm = File::open(format!("/proc/{}/statm", input.pid)).ok();
        Ok(Self {
            input,
            wakes,
            _stopped: stopped,
            statm,
            batch: Batch::default(),
            added: 0,
        })
    }

    fn run(mut self) -> Result<(), DrainError> {
        loop {
            let last_round = self.wait()?;
            self.empty()?;
            self.pass_on()?;
            if last_round {
                return Ok(());
            }
        }
    }

    /// Waits for the next look; true if it is the last.
    fn wait(&self) -> Result<bool, DrainError> {
        let mut ready = [EpollEvent::empty(); 2];
        match self.wakes.wait(&mut ready, EpollTimeout::from(PERIOD_MS)) {
            Ok(count) => Ok(ready[..count].iter().any(|event| event.data() == STOP)),
            Err(nix::Error::EINTR) => Ok(false),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Copies all records that are there.
    fn empty(&mut self) -> Result<(), DrainError> {
        while let Some(changed) = self.copy_record() {
            if let Some(stamp) = changed {
                self.add_mappings(stamp);
            }
            if self.batch.len() >= BATCH_BYTES {
                self.pass_on()?;
            }
        }
        Ok(())
    }

    /// Copies one record, and returns its stamp if it tells of changed modules.
    fn copy_record(&mut self) -> Option<Option<u64>> {
        let record = self.input.events.next()?;
        self.batch.records().push(&record);
        self.input.waits_for_program = false;
        Some(stamp_of_change(&record))
    }

    /// Adds the mappings as they were noted, or else as they are right now. A target that is gone
    /// has none. Those of a later stamp, by another thread, were read later and hold these too.
    fn add_mappings(&mut self, stamp: u64) {
        if stamp <= self.added {
            return;
        }
        self.added = stamp;
        let text = self.noted(stamp).or_else(|| {
            let now = fs::read(format!("/proc/{}/maps", self.input.pid)).ok();
            // The target goes on once its mappings are noted. If that is only now, what was read
            // may be of later.
            self.noted(stamp).or(now)
        });
        self.batch.items.extend(text.map(Item::Mappings));
    }

    fn noted(&self, stamp: u64) -> Option<Vec<u8>> {
        (self.input.noted_mappings)(stamp).filter(|text| !text.is_empty())
    }

    fn pass_on(&mut self) -> Result<(), DrainError> {
        self.batch.now = now();
        self.batch.resident_pages = self.resident_pages();
        let batch = std::mem::take(&mut self.batch);
        self.input
            .batches
            .send(batch)
            .map_err(|Disconnected| DrainError::NoReceiver)
    }

    /// Second field of `/proc/PID/statm` (proc(5)).
    fn resident_pages(&self) -> Option<u64> {
        if self.input.waits_for_program {
            return None;
        }
        let mut buffer = [0; 128];
        let length = self.statm.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let text = std::str::from_utf8(buffer.get(..length)?).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}

/// The stamp of a record that tells of changed modules. Only those are decoded.
fn stamp_of_change(record: &[u8]) -> Option<u64> {
    const CHANGES: [u8; 2] = [Kind::ModulesChanged as u8, Kind::Exec as u8];
    if !CHANGES.contains(record.first()?) {
        return None;
    }
    match Record::decode(record).ok()?.event {
        Event::ModulesChanged { stamp } | Event::Exec { stamp } => Some(stamp),
        _ => None,
    }
}

/// `CLOCK_MONOTONIC` in ticks of 10 ms.
pub(crate) fn now() -> u64 {
    let Ok(time) = clock_gettime(ClockId::CLOCK_MONOTONIC) else {
        return 0;
    };
    const SECOND_NS: u64 = 1_000_000_000;
    let seconds = time.tv_sec().unsigned_abs() * SECOND_NS;
    (seconds + time.tv_nsec().unsigned_abs()) / TICK_NS
}
