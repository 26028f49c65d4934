//! What the user wants of a recording.

use std::{ffi::OsString, io::Write, path::PathBuf, time::Duration};

use crate::{loader::Settings, sys::scheduling::Scheduling};

/// What to record.
#[derive(Clone, Debug)]
pub enum Target {
    /// A program to start.
    Launch {
        /// Name or path.
        program: OsString,
        /// Its arguments.
        arguments: Vec<OsString>,
        /// As whom; `None` for the user who called sudo, or else ourselves.
        user: Option<String>,
    },
    /// A process that runs.
    Attach {
        /// Its id in our pid namespace.
        pid: u32,
    },
}

impl Target {
    /// Exit status when we fail: for a program that of env(1), which a program's own is unlikely
    /// to be.
    #[must_use]
    pub const fn failure_status(&self) -> u8 {
        match self {
            Self::Launch { .. } => 125,
            Self::Attach { .. } => 1,
        }
    }
}

/// A recording as the user wants it.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to record.
    pub target: Target,
    /// Where to; `None` for a name made of program and process id.
    pub output: Option<PathBuf>,
    /// For how long at most.
    pub duration: Option<Duration>,
    /// Where to end.
    pub limits: Limits,
    /// How much to say.
    pub verbosity: Verbosity,
    /// How hard to compress the file: a level of zstd.
    pub compression_level: i32,
    /// How our own threads are to run.
    pub scheduling: Scheduling,
    /// Names of the functions below which allocations are recorded; all are if there are none.
    pub functions: Vec<String>,
    /// How to load the programs.
    pub settings: Settings,
}

/// Bounds at which a recording ends, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the trace file. It may grow beyond by what was in one batch.
    pub file: Option<u64>,
    /// Bytes of memory that this process may have.
    pub memory: Option<u64>,
}

/// How much to say. Everything goes to standard error: standard output is the target's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbosity {
    /// Errors only.
    Quiet,
    /// What was done, and progress on a terminal.
    Normal,
}

impl Verbosity {
    /// Says something unless it is to be quiet.
    pub fn say(self, text: &str) {
        if self == Self::Normal {
            self.complain(text);
        }
    }

    /// Says something in any case. A closed standard error is no reason to fail.
    pub fn complain(self, text: &str) {
        let _closed = writeln!(std::io::stderr(), "{text}");
    }
}
