//! Runs a program under the preloaded oracle and the BPF programs, and compares.

use std::{
    fs::{self, File},
    path::Path,
    sync::{Arc, mpsc},
    thread,
};

use htrace_bpf::{
    drain::{Drain, Input},
    loader::{AttachPoints, LinkTest, Programs, Settings, Unwind, functions},
    modules::{Module, ModuleId, ModuleTable, ProcOpener},
    target::{launch::Program, libraries::Foretold},
    unwind::{Built, Cache, Snapshots, TableWork, Tables, Work, Worker, build_all},
};
use htrace_ebpf_common::{counters::Counter, function::Function};

use crate::{
    comparison::{Calls, Outcome},
    oracle,
};

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
    let built = build_tables(command, library.file());
    let program = program(command, library.file(), log.path());
    let stopped = program.start_stopped().unwrap();
    let pid = stopped.pid();

    let settings = Settings {
        unwind: Unwind::EhFrame,
        table_words: Tables::words_for(&built),
        max_waiting: Worker::max_waiting(),
        ..Settings::default()
    };
    let mut programs = Programs::load(&settings, LinkTest::start()).unwrap();
    attach(&mut programs, library.file(), pid);
    programs.attach_tracepoints().unwrap();
    let snapshots = Arc::new(Snapshots::default());
    let worker = start_worker(&mut programs, pid, &built, &snapshots);
    let (batches, received) = mpsc::sync_channel(64);
    let drain = Drain::start(Input {
        events: programs.take_events().unwrap(),
        pid,
        waits_for_program: true,
        noted_mappings: Box::new(move |stamp| snapshots.take(stamp)),
        batches,
    });
    let calls = thread::spawn(move || Calls::count(&received));
    programs.start().unwrap();
    let mut child = stopped.resume().unwrap();
    let status = child.wait().unwrap();
    programs.stop().unwrap();
    drain.unwrap().finish().unwrap();
    worker.finish();
    let mut outcome = calls.join().unwrap().compare(&oracle::stacks(log.path()));
    outcome.status = status.code();
    for (counter, name) in Counter::LOST.iter().chain(&Counter::HANDLED) {
        outcome.counters.insert(name, programs.counter(*counter));
    }
    outcome.counters.retain(|_, count| *count != 0);
    outcome
}

/// The tables of what the program will load, as a recording makes them.
fn build_tables(command: &[impl AsRef<str>], library: &Path) -> Vec<Built> {
    let foretold = |command: &[&str]| {
        Foretold::of(&Program {
            name: command[0].into(),
            arguments: command[1..].iter().map(Into::into).collect(),
            identity: None,
            blocked_signals: nix::sys::signal::SigSet::empty(),
        })
        .unwrap()
    };
    let command: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
    let (program, env) = (foretold(&command), foretold(&["/usr/bin/env"]));
    let files = program.files().chain(program.linker.as_deref());
    let files = files.chain([library]).chain(env.files());
    let modules: Vec<Arc<Module>> = (0..)
        .zip(files)
        .map(|(number, path)| Arc::new(Module::of_path(ModuleId(number), path).unwrap()))
        .collect();
    build_all(&modules, &Cache::none())
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
    let placing = programs.placing();
    let points = |path: &Path, functions| {
        AttachPoints::find(&*fs::read(path).unwrap(), functions, placing).unwrap()
    };
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

fn start_worker(
    programs: &mut Programs,
    pid: u32,
    built: &[Built],
    snapshots: &Arc<Snapshots>,
) -> Worker {
    let opener = Arc::new(ProcOpener::new(Path::new("/proc"), pid));
    let modules = ModuleTable::new(opener, ModuleTable::DEFAULT_OPEN_FILES);
    let mut tables = Tables::new(programs.take_tables().unwrap());
    tables.add(built);
    Worker::start(Work {
        pid,
        notices: programs.take_notices().unwrap(),
        acknowledgement: programs.acknowledgement(),
        snapshots: Arc::clone(snapshots),
        tables: Some(TableWork::new(tables, modules, Cache::none())),
    })
    .unwrap()
}
