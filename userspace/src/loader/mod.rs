//! Loads the BPF programs, attaches them to a target, and hands out their maps.
//!
//! This module and `drain` are the only ones that know aya. It knows files and process ids, but
//! not how a target was started or what its events mean.
//!
//! aya 0.14 parses the object, makes the maps and applies relocations; loading and linking are
//! done here, because it has no multi-uprobe links (Linux 6.6), which attach all functions of a
//! file at once and are cheap to take away.

pub mod attach_points;
mod chosen_threads;
mod error;
mod fallback;
pub mod functions;
pub mod inventory;
mod kernel_types;
mod links;
mod log;
mod notices;
mod object;
pub mod operators;
pub mod placement;
mod privileges;
mod self_test;
mod symbols;
pub mod tables;
mod walks;

use std::{collections::BTreeMap, fs::File, os::fd::OwnedFd, time::Duration};

use aya::maps::{Array, MapData, RingBuf};
use htrace_ebpf_common::{
    control::{Control, MAX_FRAMES},
    counters::Counter,
};

pub use self::{
    attach_points::{AttachPoint, AttachPoints, Placing},
    chosen_threads::ThreadChoice,
    error::LoadError,
    log::ProgramLog,
    notices::{Notice, Notices},
    self_test::LinkTest,
    tables::{Acknowledgement, TableMaps},
    walks::Unwind,
};
use self::{links::LinkKind, object::Object, walks::Walks};

/// How the programs are to be loaded.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Size of the ring buffer in bytes; a power of two of at least a page.
    pub ring_bytes: u32,
    /// Threads that can be followed at once.
    pub max_threads: u32,
    /// Distinct stacks that are remembered as sent.
    pub known_stacks: u32,
    /// How stacks are walked.
    pub unwind: Unwind,
    /// Largest number of frames of a stack.
    pub max_frames: u32,
    /// True to follow frame pointers through code without unwind data.
    pub guess_frame_pointers: bool,
    /// Room for unwind tables, in words of 8 bytes.
    pub table_words: u32,
    /// How many threads of the target may wait for us at once; each keeps a CPU busy.
    pub max_waiting: u64,
    /// For how long at most a thread waits for room in the ring buffer; not at all if zero.
    pub max_pause: Duration,
    /// True to let programs log what they do.
    pub log: bool,
    /// Attach with one perf event a probe, as before Linux 6.6, even where links can do more.
    pub perf_links: bool,
    /// Probe every function at entry and return, even where one probe inside would do.
    pub return_probes: bool,
    /// Allocations of fewer bytes are left out.
    pub min_size: u64,
    /// Mean distance in bytes of the marks by which allocations are sampled; 0 for no sampling.
    pub sample_bytes: u64,
    /// The threads whose allocations are recorded; all if there are none.
    pub threads: Vec<ThreadChoice>,
    /// Begin with a pause.
    pub paused: bool,
    /// Begin when this function is first called: the name of its symbol.
    pub wait_for: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ring_bytes: 64 << 20,
            max_threads: 32 << 10,
            known_stacks: 256 << 10,
            unwind: Unwind::Auto,
            max_frames: MAX_FRAMES as u32,
            guess_frame_pointers: false,
            table_words: 2 << 20,
            max_waiting: 0,
            max_pause: Duration::from_millis(100),
            log: false,
            perf_links: false,
            return_probes: false,
            min_size: 0,
            sample_bytes: 0,
            threads: Vec::new(),
            paused: false,
            wait_for: None,
        }
    }
}

/// The loaded programs and what they are attached to. Dropping it takes all probes away.
pub struct Programs {
    programs: BTreeMap<String, OwnedFd>,
    links: Vec<OwnedFd>,
    kind: LinkKind,
    by_tables: bool,
    control: Array<MapData, PodControl>,
    counters: Array<MapData, u64>,
    events: Option<RingBuf<MapData>>,
    notices: Option<Notices>,
    tables: Option<TableMaps>,
    acknowledgement: Acknowledgement,
    logs: bool,
    settings: Control,
    inside: bool,
    paused: bool,
    awaited: Option<String>,
}

/// [`Control`] as a value that aya copies byte by byte.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct PodControl(Control);

// SAFETY: plain integers without padding: two u32 and u64s.
unsafe impl aya::Pod for PodControl {}

impl Programs {
    /// Loads the programs into the kernel; nothing is attached yet. `links` is the test that tells
    /// which links there are.
    ///
    /// # Errors
    /// When this binary has none, when the kernel is too old, or when it refuses: then the error
    /// says which capability is missing.
    pub fn load(settings: &Settings, links: LinkTest) -> Result<Self, LoadError> {
        let ways = Walks::choose(settings.unwind)?.and_simpler(settings.unwind);
        let kind = if !settings.perf_links && links.succeeds() {
            LinkKind::Multi
        } else {
            tracing::debug!("no multi-uprobe links: one perf event a probe");
            LinkKind::Perf
        };
        fallback::first_accepted(&ways, |walks| match walks {
            Walks::Old => Self::load_for(settings, walks, LinkKind::Perf),
            _ => Self::load_for(settings, walks, kind),
        })
    }

    fn load_for(settings: &Settings, walks: Walks, kind: LinkKind) -> Result<Self, LoadError> {
        let inside = kind == LinkKind::Multi && !settings.return_probes;
        let mut object = Object::prepare(settings, walks, inside)?;
        let programs = object.load_programs(kind)?;
        let tables = match walks {
            Walks::Tables(_) => {
                let words = object.take_map("TABLE_WORDS")?;
                let tables = object.take_map("TABLES")?;
                let count = settings.table_words as usize;
                Some(TableMaps::new(tables, &words, count)?)
            }
            Walks::FramePointers | Walks::Old => None,
        };
        chosen_threads::store(&mut object, &settings.threads)?;
        let mut programs = Self {
            programs,
            links: Vec::new(),
            kind,
            by_tables: matches!(walks, Walks::Tables(_)),
            control: object.array("CONTROL")?,
            counters: object.array("COUNTERS")?,
            events: Some(object.ring_buffer("EVENTS")?),
            notices: Some(Notices::new(object.ring_buffer("NOTICES")?)),
            tables,
            acknowledgement: Acknowledgement::new(&object.take_map("ACKNOWLEDGED")?)?,
            logs: settings.log,
            paused: settings.paused,
            awaited: settings.wait_for.clone(),
            inside,
            settings: Control {
                max_frames: settings.max_frames,
                guess_frame_pointers: settings.guess_frame_pointers.into(),
                wake_at: u64::from(settings.ring_bytes) / 8,
                wait_ns: WAIT_NS,
                sleep_ns: SLEEP_NS,
                max_waiting: settings.max_waiting,
                min_size: settings.min_size,
                sample_bytes: settings.sample_bytes,
                only_threads: u64::from(!settings.threads.is_empty()),
                ..pauses(settings)
            },
        };
        programs.store_control()?;
        Ok(programs)
    }

    /// The ring buffer; once.
    pub fn take_events(&mut self) -> Option<RingBuf<MapData>> {
        self.events.take()
    }

    /// What the target waits for; once.
    pub fn take_notices(&mut self) -> Option<Notices> {
        self.notices.take()
    }

    /// Where unwind tables go; once, and only if stacks are walked by tables.
    pub fn take_tables(&mut self) -> Option<TableMaps> {
        self.tables.take()
    }

    /// By what to tell the target to go on.
    #[must_use]
    pub fn acknowledgement(&self) -> Acknowledgement {
        self.acknowledgement.clone()
    }

    /// What programs log, if they were loaded with logging.
    ///
    /// # Errors
    /// When the log cannot be found; that needs CAP_SYS_ADMIN.
    pub fn log(&self) -> Result<Option<ProgramLog>, LoadError> {
        if !self.logs {
            return Ok(None);
        }
        let log = ProgramLog::of_program(self.program("enter_free")?);
        log.map(Some)
            .map_err(|source| LoadError::system("cannot read the programs' log", source))
    }

    /// Where probes are to be placed.
    #[must_use]
    pub fn placing(&self) -> Placing {
        Placing {
            kernel: object::kernel_version(),
            inside: self.inside,
        }
    }

    /// Attaches to all `points` of `file` in the process `pid`: first to entries, then to
    /// returns, so that each return that is seen was preceded by an entry that was.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach(
        &mut self,
        file: &File,
        points: &AttachPoints,
        pid: u32,
    ) -> Result<(), LoadError> {
        for (program, on_return, points) in points.by_program() {
            let is_loaded = self.programs.contains_key(program);
            if !is_loaded && functions::NOT_FOR_OLD.contains(&program) {
                continue;
            }
            for points in self.kind.attached_together(points) {
                let number = points.numbers.first().copied().unwrap_or(0);
                let fd = self.program(&object::program_of(program, number, self.kind))?;
                let made = links::attach(self.kind, fd, file, &points, on_return, pid)
                    .map_err(|source| LoadError::attach(program, source))?;
                self.links.extend(made);
            }
        }
        if points.text_length > self.settings.allocator_text {
            self.settings.allocator_text = points.text_length;
            self.store_control()?;
        }
        Ok(())
    }

    /// Follows the ends of the target's threads and its execs.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach_tracepoints(&mut self) -> Result<(), LoadError> {
        for (program, tracepoint) in functions::TRACEPOINTS {
            let link = links::attach_tracepoint(self.program(program)?, tracepoint)
                .map_err(|source| LoadError::attach(program, source))?;
            self.links.push(link);
        }
        Ok(())
    }

    /// Records what happens from now on, or begins with a pause if the settings say so.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(&mut self) -> Result<(), LoadError> {
        if self.awaited.is_some() && !self.paused {
            self.settings.phase = Control::WAITING;
            return self.store_control();
        }
        self.set_paused(self.paused)
    }

    /// The function with whose first call the recording begins.
    #[must_use]
    pub fn awaited(&self) -> Option<&str> {
        self.awaited.as_deref()
    }

    /// True if the recording waits for a function that was not called so far.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.settings.phase == Control::WAITING && self.counter(Counter::Awaited) == 0
    }

    /// Records from now on, or only ends of blocks.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_paused(&mut self, paused: bool) -> Result<(), LoadError> {
        self.settings.phase = match paused {
            true => Control::PAUSED,
            false => Control::RECORDING,
        };
        self.store_control()
    }

    /// Records no more, and takes all probes away.
    ///
    /// # Errors
    /// When the kernel refuses; the probes are away all the same.
    pub fn stop(&mut self) -> Result<(), LoadError> {
        self.settings.phase = Control::STOPPED;
        let stored = self.store_control();
        links::take_away(std::mem::take(&mut self.links));
        stored
    }

    /// The value of a counter.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(&counter.slot(), 0).unwrap_or(0)
    }

    /// True if programs find what is mapped at an address.
    #[must_use]
    pub const fn can_look_up_mappings(&self) -> bool {
        self.by_tables
    }

    /// How probes are attached, for messages.
    #[must_use]
    pub const fn link_kind(&self) -> &'static str {
        self.kind.name()
    }

    fn program(&self, name: &str) -> Result<&OwnedFd, LoadError> {
        self.programs
            .get(name)
            .ok_or_else(|| LoadError::MissingPart {
                name: name.to_owned(),
            })
    }

    /// Stores the settings.
    fn store_control(&mut self) -> Result<(), LoadError> {
        self.control
            .set(0, PodControl(self.settings), 0)
            .map_err(LoadError::map)
    }
}

/// When threads wait for room in the ring buffer: from three quarters to a half. They never do
/// if they may not.
fn pauses(settings: &Settings) -> Control {
    let ring = u64::from(settings.ring_bytes);
    let pause_at = if settings.max_pause.is_zero() {
        u64::MAX
    } else {
        ring / 4 * 3
    };
    Control {
        pause_at,
        resume_at: ring / 2,
        max_pause_ns: u64::try_from(settings.max_pause.as_nanos()).unwrap_or(u64::MAX),
        ..Control::default()
    }
}

/// For how long the target waits at most until we have looked at new modules.
const WAIT_NS: u64 = 100_000_000;

/// As [`WAIT_NS`], where waiting keeps nobody from a CPU: on a busy machine it may take a while until
/// we have one. It is also for how long a thread still waits when we have been killed meanwhile.
const SLEEP_NS: u64 = 500_000_000;
