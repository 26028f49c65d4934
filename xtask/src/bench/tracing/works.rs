//! What is done under the tracers.

use std::process::Command;

use anyhow::Result;

use super::Place;
use crate::command::{capture, command};

/// A piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Work {
    /// malloc and free, three calls below `main`.
    Loop,
    /// The same below 33 functions of C++.
    Deep,
    /// The same in two threads.
    DeepTwo,
    /// The loop, with the kernel counting the time in BPF programs.
    Programs,
    /// The loop, of which the recorder's CPU counts.
    Recorder,
    /// A program that ends at once.
    Start,
    /// An interpreter that allocates each object by malloc.
    Python,
    /// A database in memory.
    Sqlite,
    /// A compiler.
    Cc1plus,
    /// A server under load, which is attached to.
    Redis,
    /// Attaching to a process with many libraries, and detaching.
    Attach,
}

/// How the figures of a work are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
}

impl Unit {
    /// Its name, and how many digits are worth telling.
    pub(super) const fn shown(self) -> (&'static str, usize) {
        match self {
            Self::Nanoseconds => ("ns a pair", 0),
            Self::Microseconds => ("µs an event", 3),
            Self::Milliseconds => ("ms", 0),
            Self::Seconds => ("s", 2),
        }
    }
}

/// Pairs of malloc and free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PairWork {
    depth: u32,
    threads: u32,
}

impl PairWork {
    pub(super) const LOOP: Self = Self {
        depth: 3,
        threads: 1,
    };

    /// The command line.
    pub(super) fn words(self, place: &Place, count: u32) -> Vec<String> {
        vec![
            place.file("pairs").to_string_lossy().into_owned(),
            self.depth.to_string(),
            self.threads.to_string(),
            count.to_string(),
            place.result().to_string_lossy().into_owned(),
        ]
    }
}

impl Work {
    pub(super) const ALL: [Self; 11] = [
        Self::Loop,
        Self::Deep,
        Self::DeepTwo,
        Self::Programs,
        Self::Recorder,
        Self::Start,
        Self::Python,
        Self::Sqlite,
        Self::Cc1plus,
        Self::Redis,
        Self::Attach,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Deep => "deep",
            Self::DeepTwo => "deep-two",
            Self::Programs => "programs",
            Self::Recorder => "recorder",
            Self::Start => "start",
            Self::Python => "python",
            Self::Sqlite => "sqlite",
            Self::Cc1plus => "cc1plus",
            Self::Redis => "redis",
            Self::Attach => "attach",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Loop => "Tight loop of malloc and free, 1 thread",
            Self::Deep => "The same below 33 frames of C++, 1 thread",
            Self::DeepTwo => "The same below 33 frames of C++, 2 threads on 2 CPUs",
            Self::Programs => "Time in BPF programs, tight loop",
            Self::Recorder => "The recorder's CPU, tight loop",
            Self::Start => "Start to end of a program that does nothing",
            Self::Python => "python3 with PYTHONMALLOC=malloc: 900,000 strings",
            Self::Sqlite => "sqlite3: 200,000 rows and an index in memory",
            Self::Cc1plus => "cc1plus on a source with `<regex>` and `<iostream>`",
            Self::Redis => "redis-server: 20,000 SETs of 10 clients",
            Self::Attach => {
                "Attaching to a process of more than 20 libraries, its tables kept from before"
            }
        }
    }

    pub(super) const fn unit(self) -> Unit {
        match self {
            Self::Loop | Self::Deep | Self::DeepTwo | Self::Programs => Unit::Nanoseconds,
            Self::Recorder => Unit::Microseconds,
            Self::Start | Self::Python | Self::Sqlite | Self::Cc1plus | Self::Redis => {
                Unit::Seconds
            }
            Self::Attach => Unit::Milliseconds,
        }
    }

    /// What is done in a work with pairs.
    pub(super) const fn pairs(self) -> Option<PairWork> {
        let (depth, threads) = match self {
            Self::Loop => return Some(PairWork::LOOP),
            Self::Deep => (33, 1),
            Self::DeepTwo => (33, 2),
            _ => return None,
        };
        Some(PairWork { depth, threads })
    }

    /// The words of a program that is run from its begin to its end.
    pub(super) fn program(self, place: &Place) -> Result<Option<Vec<String>>> {
        const PYTHON: &str = "d={}\nfor i in range(300000): d[i%1000]=str(i)+'x'*(i%50)";
        const SQL: &str = "create table t(a,b); with recursive c(x) as (select 1 union all select \
                           x+1 from c where x<200000) insert into t select x,hex(x)||'abcdefgh' \
                           from c; create index i on t(b); select count(*) from t;";
        const SOURCE: &str = "#include <iostream>\n#include <regex>\n\
                              int main() { return std::regex_match(\"\", std::regex(\"a*\")); }\n";
        let words: Vec<String> = match self {
            Self::Python => {
                let python = "import sys,os;print(os.path.realpath(sys.executable))";
                let python = capture(command("python3").args(["-c", python]))?;
                vec![python.trim().to_owned(), "-c".into(), PYTHON.into()]
            }
            Self::Start => vec!["/bin/true".into()],
            Self::Sqlite => vec!["sqlite3".into(), ":memory:".into(), SQL.into()],
            Self::Cc1plus => {
                let source = place.file("source.cpp");
                std::fs::write(&source, SOURCE)?;
                let program = capture(command("g++").arg("-print-prog-name=cc1plus"))?;
                let source = source.to_string_lossy().into_owned();
                let program = program.trim().to_owned();
                vec![
                    program,
                    "-quiet".into(),
                    "-imultiarch".into(),
                    "x86_64-linux-gnu".into(),
                    "-D_GNU_SOURCE".into(),
                    source,
                    "-o".into(),
                    "/dev/null".into(),
                ]
            }
            _ => return Ok(None),
        };
        Ok(Some(words))
    }
}

/// The environment in which all run.
pub(super) fn set_environment(command: &mut Command) -> &mut Command {
    command
        .env("PYTHONMALLOC", "malloc")
        .env("PYTHONHASHSEED", "0")
}
