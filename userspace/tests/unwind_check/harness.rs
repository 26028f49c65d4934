//! Runs a program under the preloaded oracle and the BPF programs, and compares.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    path::Path,
    sync::{Arc, mpsc},
    thread,
};

use htrace_bpf::{
    drain::{Batch, Drain, Input, Item},
    loader::{AttachPoints, Programs, Settings, Unwind, functions},
    modules::{ModuleTable, ProcOpener},
    target::launch::Program,
    unwind::{Cache, Snapshots, TableWork, Tables, Work, Worker},
};
use htrace_ebpf_common::{
    counters::Counter,
    function::Function,
    wire::{Event, StackEnd},
};

use crate::oracle;

/// What a comparison came to, in calls.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Both stacks are the same.
    pub(crate) exact: u64,
    /// Ours ends early, and says why; what there is of it is the same.
    pub(crate) short: BTreeMap<&'static str, u64>,
    /// Ours is whole and goes on where the reference ends.
    pub(crate) deeper: u64,
    /// Anything else.
    pub(crate) wrong: u64,
    /// The first that is wrong: ours and the reference's.
    pub(crate) example: Option<String>,
    /// Counters of the programs that are not 0.
    pub(crate) counters: BTreeMap<&'static str, u64>,
}

/// The function of the oracle that is probed.
const PROBED: [functions::ProbedFunction; 1] = [functions::ProbedFunction {
    name: "unwind_oracle",
    enter: functions::ENTER,
    function: Some(Function::Malloc),
    leave: Some("leave_allocation"),
}];

/// Runs a program and compares all its stacks.
pub(crate) fn check(command: &[impl AsRef<str>]) -> Outcome {
    let library = oracle::library();
    let log = tempfile::NamedTempFile::new().unwrap();
    let program = program(command, library.file(), log.path());
    let stopped = program.start_stopped().unwrap();
    let pid = stopped.pid();

    let settings = Settings {
        unwind: Unwind::EhFrame,
        max_waiting: Worker::max_waiting(),
        ..Settings::default()
    };
    let mut programs = Programs::load(&settings).unwrap();
    attach(&mut programs, library.file(), pid);
    programs.attach_tracepoints().unwrap();
    let snapshots = Arc::new(Snapshots::default());
    let worker = start_worker(&mut programs, pid, &snapshots);
    let (batches, received) = mpsc::sync_channel(64);
    let drain = Drain::start(Input {
        events: programs.take_events().unwrap(),
        pid,
        waits_for_program: true,
        noted_mappings: Box::new(move |stamp| snapshots.take(stamp)),
        batches,
    });
    let calls = thread::spawn(move || count_calls(&received));
    programs.start().unwrap();
    let mut child = stopped.resume().unwrap();
    let status = child.wait().unwrap();
    println!("{status}");
    programs.stop().unwrap();
    drain.unwrap().finish().unwrap();
    worker.finish();
    let mut outcome = calls.join().unwrap().compare(&oracle::stacks(log.path()));
    for (counter, name) in Counter::LOST.iter().chain(&Counter::HANDLED) {
        outcome.counters.insert(name, programs.counter(*counter));
    }
    outcome.counters.retain(|_, count| *count != 0);
    outcome
}

/// The program with the library preloaded. The variable is set by env(1), whose own allocations
/// are not those of the program that it becomes.
fn program(command: &[impl AsRef<str>], library: &Path, log: &Path) -> Program {
    let variables = [
        format!("LD_PRELOAD={}", library.display()),
        format!("UNWIND_ORACLE_LOG={}", log.display()),
    ];
    let command = command.iter().map(|word| word.as_ref().into());
    Program {
        name: "/usr/bin/env".into(),
        arguments: variables
            .into_iter()
            .map(Into::into)
            .chain(command)
            .collect(),
        identity: None,
        blocked_signals: nix::sys::signal::SigSet::empty(),
    }
}

fn attach(programs: &mut Programs, library: &Path, pid: u32) {
    let points =
        |path: &Path, functions| AttachPoints::find(&*fs::read(path).unwrap(), functions).unwrap();
    let found = points(library, &PROBED);
    assert!(!found.is_empty());
    programs
        .attach(&File::open(library).unwrap(), &found, pid)
        .unwrap();
    let linker = fs::read_to_string("/proc/self/maps").unwrap();
    let linker = linker
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let linker = linker.map(Path::new).find(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
    });
    let linker = linker.expect("a dynamic linker");
    let found = points(linker, &functions::DYNAMIC_LINKER);
    programs
        .attach(&File::open(linker).unwrap(), &found, pid)
        .unwrap();
}

fn start_worker(programs: &mut Programs, pid: u32, snapshots: &Arc<Snapshots>) -> Worker {
    let opener = Arc::new(ProcOpener::new(Path::new("/proc"), pid));
    let modules = ModuleTable::new(opener, ModuleTable::DEFAULT_OPEN_FILES);
    let tables = Tables::new(programs.take_tables().unwrap());
    Worker::start(Work {
        pid,
        notices: programs.take_notices().unwrap(),
        acknowledgement: programs.acknowledgement(),
        snapshots: Arc::clone(snapshots),
        tables: Some(TableWork::new(tables, modules, Cache::none())),
    })
    .unwrap()
}

/// Calls by what was expected and what was found, and the stacks found.
#[derive(Default)]
struct Calls {
    counts: HashMap<(u64, u64), u64>,
    stacks: HashMap<u64, (StackEnd, Vec<u64>)>,
}

fn count_calls(batches: &mpsc::Receiver<Batch>) -> Calls {
    let mut calls = Calls::default();
    while let Ok(batch) = batches.recv() {
        for item in &batch.items {
            let Item::Records(records) = item else {
                continue;
            };
            for record in records.iter() {
                calls.add(&record.unwrap().event);
            }
        }
    }
    calls
}

impl Calls {
    fn add(&mut self, event: &Event<'_>) {
        match *event {
            Event::Stack { id, end, frames } => {
                self.stacks.insert(id, (end, frames.iter().collect()));
            }
            Event::Allocation { pointer, stack, .. } => {
                *self.counts.entry((pointer, stack)).or_default() += 1;
            }
            _ => {}
        }
    }

    fn compare(&self, reference: &HashMap<u64, Vec<u64>>) -> Outcome {
        let mut outcome = Outcome::default();
        for ((expected, found), count) in &self.counts {
            if expected == found {
                outcome.exact += count;
                continue;
            }
            let (Some((end, ours)), Some(theirs)) =
                (self.stacks.get(found), reference.get(expected))
            else {
                outcome.wrong += count;
                outcome.example = Some(format!("no stack {found:x} or {expected:x}"));
                continue;
            };
            if *end != StackEnd::Complete && theirs.starts_with(ours) {
                *outcome.short.entry(end.name()).or_default() += count;
            } else if ours == theirs {
                // The reference cannot tell whole stacks from others.
                *outcome.short.entry(end.name()).or_default() += count;
            } else if ours.starts_with(theirs) {
                outcome.deeper += count;
            } else {
                outcome.wrong += count;
                outcome.example = Some(format!("{end:?}\n{ours:x?}\n{theirs:x?}"));
            }
        }
        outcome
    }
}
