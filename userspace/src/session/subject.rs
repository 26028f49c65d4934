//! The target of a recording, started or found: what of it differs between the two is here, so
//! that the rest of a session need not care.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    path::Path,
    process::Child,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use nix::{
    sys::signal::SigSet,
    unistd::{SysconfVar, gethostname, sysconf},
};
use tokio::sync::mpsc::UnboundedSender;

use super::{
    allocators::Allocators,
    names::{self, NamesSource},
    options::{Options, Target},
    output::OutputContext,
};
use crate::{
    modules::{Module, ModuleId, ModuleOpener, ModuleTable, ProcOpener},
    symbolize::{RunningTarget, embedded_suppressions},
    target::{
        AttachError, Claim, Exit, Identity, LaunchError, Process, Stopped, launch::Program,
        libraries::Foretold,
    },
};

/// The target of a recording.
pub(super) struct Subject {
    process: Process,
    way: Way,
    command: Vec<Vec<u8>>,
    opener: Arc<ProcOpener>,
    owner: Option<Identity>,
    modules: Vec<Arc<Module>>,
    _claim: Claim,
}

/// How we came by it.
enum Way {
    /// A child that waits to be let go.
    Waiting(Stopped),
    /// A child that runs.
    Running(Child),
    /// A process that ran before.
    Found,
}

/// What stands at the top of a trace file.
pub(super) struct FileHeader {
    pub(super) command: Vec<Vec<u8>>,
    pub(super) page_size: u64,
    pub(super) pages: u64,
    pub(super) suppressions: Vec<String>,
    pub(super) attached: Option<u32>,
    /// Milliseconds since 1970.
    pub(super) started: u64,
}

impl Subject {
    /// Starts the program, stopped, or gets hold of the process.
    pub(super) fn prepare(options: &Options, inherited_mask: SigSet) -> anyhow::Result<Self> {
        match &options.target {
            Target::Launch {
                program,
                arguments,
                user,
            } => {
                let identity = match user {
                    Some(user) => Some(Identity::named(user)?),
                    None => Identity::behind_sudo()?,
                };
                let program = Program {
                    name: program.clone(),
                    arguments: arguments.clone(),
                    identity,
                    blocked_signals: inherited_mask,
                };
                Self::launch(&program)
            }
            Target::Attach { pid } => Self::attach(*pid),
        }
    }

    fn launch(program: &Program) -> anyhow::Result<Self> {
        let foretold = foretell(program)?;
        let stopped = program.start_stopped()?;
        let pid = stopped.pid();
        let process = Process::of_child(pid).context("cannot follow the program")?;
        Ok(Self {
            process,
            command: program
                .command_line()
                .map(|word| word.as_bytes().to_vec())
                .collect(),
            opener: Arc::new(ProcOpener::new(Path::new("/proc"), pid)),
            owner: Identity::behind_sudo()?,
            modules: modules_of_files(&foretold),
            way: Way::Waiting(stopped),
            _claim: Claim::on(pid)?,
        })
    }

    fn attach(pid: u32) -> anyhow::Result<Self> {
        let process = Process::open(pid)?;
        let claim = Claim::on(pid)?;
        warn_of_system_call_filter(&process);
        let opener = Arc::new(ProcOpener::new(Path::new("/proc"), pid));
        let mut subject = Self {
            command: process.command_line(),
            process,
            opener,
            owner: Identity::behind_sudo()?,
            modules: Vec::new(),
            way: Way::Found,
            _claim: claim,
        };
        subject.modules = subject.module_table().modules().to_vec();
        Ok(subject)
    }

    /// Its id in our pid namespace.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The process.
    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    /// True if it is a program that we have started.
    pub(super) fn is_launched(&self) -> bool {
        !matches!(self.way, Way::Found)
    }

    /// What it has loaded, or will load as far as can be foretold.
    pub(super) fn modules(&self) -> Vec<Arc<Module>> {
        self.modules.clone()
    }

    /// What names of its addresses are made of; `loaded` is told of modules that it loads.
    pub(super) fn names(&self, loaded: UnboundedSender<Arc<Module>>) -> NamesSource {
        NamesSource {
            pid: self.pid(),
            table: self.module_table(),
            root: self.opener.root(),
            loaded,
        }
    }

    /// Its modules as of now. A program that has yet to start has none.
    pub(super) fn module_table(&self) -> ModuleTable {
        let opener: Arc<dyn ModuleOpener> = self.opener.clone();
        match self.is_launched() {
            true => names::no_modules(opener),
            false => names::current_modules(self.pid(), opener),
        }
    }

    /// Refuses a process in which there is nothing to record. A program may yet load an
    /// allocator.
    pub(super) fn require_allocator(&self, allocators: &Allocators) -> Result<(), AttachError> {
        if self.is_launched() || !allocators.found().is_empty() {
            return Ok(());
        }
        Err(AttachError::NoAllocator {
            pid: self.pid(),
            name: self.process.name(),
        })
    }

    /// Lets a program that was started begin.
    pub(super) fn resume(&mut self) -> Result<(), LaunchError> {
        self.way = match std::mem::replace(&mut self.way, Way::Found) {
            Way::Waiting(stopped) => Way::Running(stopped.resume()?),
            other => other,
        };
        Ok(())
    }

    /// How it ended, once it has; `None` if that is its parent's to know.
    pub(super) fn reap(&mut self) -> std::io::Result<Option<Exit>> {
        match &mut self.way {
            Way::Running(child) => child.wait().map(Exit::of).map(Some),
            Way::Waiting(_) | Way::Found => Ok(None),
        }
    }

    /// What is said when the recording has begun.
    pub(super) fn started_message(&self) -> String {
        let (pid, name) = (self.pid(), self.process.name());
        match self.is_launched() {
            true => format!("htrace-bpf: recording PID {pid}"),
            false => format!("htrace-bpf: recording PID {pid} ({name}); Ctrl-C ends the recording"),
        }
    }

    /// What the trace file's name is made of.
    pub(super) fn output_context(&self) -> OutputContext {
        OutputContext {
            program: self.program_name(),
            pid: self.pid(),
            host: gethostname().unwrap_or_default(),
            owner: self.owner.clone(),
        }
    }

    /// What stands at the top of the trace file.
    pub(super) fn file_header(&self) -> FileHeader {
        let system = |variable| sysconf(variable).ok().flatten().unwrap_or(0);
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        FileHeader {
            command: self.command.clone(),
            page_size: system(SysconfVar::PAGE_SIZE).unsigned_abs(),
            pages: system(SysconfVar::_PHYS_PAGES).unsigned_abs(),
            suppressions: self.suppressions(),
            attached: (!self.is_launched()).then(|| self.pid()),
            started: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Leak suppressions embedded in the target's modules.
    fn suppressions(&self) -> Vec<String> {
        let table = self.module_table();
        let running = |module: &Module| {
            let load_bias = table.load_bias(module.id())?;
            Some(RunningTarget {
                opener: self.opener.as_ref(),
                load_bias,
            })
        };
        let lines = |module: &Arc<Module>| embedded_suppressions(module, running(module));
        self.modules.iter().flat_map(lines).collect()
    }

    /// The program's name without directories.
    fn program_name(&self) -> OsString {
        let from_command = || {
            let word = self.command.first()?;
            Path::new(std::ffi::OsStr::from_bytes(word))
                .file_name()
                .map(OsString::from)
        };
        match self.is_launched() {
            true => from_command().unwrap_or_else(|| "program".into()),
            false => self.process.name().replace('/', "_").into(),
        }
    }
}

/// Return probes make a system call of their own since Linux 6.11 (`uretprobe`), and a filter that
/// does not know it may end the process.
fn warn_of_system_call_filter(process: &Process) {
    if process.filters_system_calls() {
        tracing::warn!(
            "process {} filters its system calls (seccomp); a filter that forbids the call \
             `uretprobe` (335) would end it. Kernels from 6.14 let that call pass",
            process.pid()
        );
    }
}

/// What a program will load. Only that there is no such program is an error: whatever else is
/// wrong with it, executing it will tell.
fn foretell(program: &Program) -> Result<Foretold, LaunchError> {
    Foretold::of(program).or_else(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Err(LaunchError::NotFound {
            program: program.name.clone(),
        }),
        _ => Ok(Foretold::default()),
    })
}

fn modules_of_files(foretold: &Foretold) -> Vec<Arc<Module>> {
    let files = foretold.files().chain(foretold.linker.as_deref());
    let open = |(number, path): (u32, &Path)| match Module::of_path(ModuleId(number), path) {
        Ok(module) => Some(Arc::new(module)),
        Err(error) => {
            tracing::debug!("{}: {error}", path.display());
            None
        }
    };
    (0..).zip(files).filter_map(open).collect()
}
