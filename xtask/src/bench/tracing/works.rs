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
    Seconds,
    Milliseconds,
}

impl Work {
    pub(super) const ALL: [Self; 8] = [
        Self::Loop,
        Self::Deep,
        Self::DeepTwo,
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
            Self::Python => "python3 with PYTHONMALLOC=malloc: 300,000 strings",
            Self::Sqlite => "sqlite3: 40,000 rows and an index in memory",
            Self::Cc1plus => "cc1plus on a source with `<map>` and `<string>`",
            Self::Redis => "redis-server: 20,000 SETs of 10 clients",
            Self::Attach => "Attaching to python3 with its libraries",
        }
    }

    pub(super) const fn unit(self) -> Unit {
        match self {
            Self::Loop | Self::Deep | Self::DeepTwo => Unit::Nanoseconds,
            Self::Python | Self::Sqlite | Self::Cc1plus | Self::Redis => Unit::Seconds,
            Self::Attach => Unit::Milliseconds,
        }
    }

    /// Frames and threads of a work with pairs.
    pub(super) const fn pairs(self) -> Option<(u32, u32)> {
        match self {
            Self::Loop => Some((3, 1)),
            Self::Deep => Some((33, 1)),
            Self::DeepTwo => Some((33, 2)),
            _ => None,
        }
    }

    /// The words of a program that is run from its begin to its end.
    pub(super) fn program(self, place: &Place) -> Result<Option<Vec<String>>> {
        const PYTHON: &str = "d={}\nfor i in range(100000): d[i%1000]=str(i)+'x'*(i%50)";
        const SQL: &str = "create table t(a,b); with recursive c(x) as (select 1 union all select \
                           x+1 from c where x<40000) insert into t select x,hex(x)||'abcdefgh' \
                           from c; create index i on t(b); select count(*) from t;";
        const SOURCE: &str = "#include <map>\n#include <string>\n\
                              std::map<std::string, int> names;\n";
        let words: Vec<String> = match self {
            Self::Python => {
                let python = "import sys,os;print(os.path.realpath(sys.executable))";
                let python = capture(command("python3").args(["-c", python]))?;
                vec![python.trim().to_owned(), "-c".into(), PYTHON.into()]
            }
            Self::Sqlite => vec!["sqlite3".into(), ":memory:".into(), SQL.into()],
            Self::Cc1plus => {
                let source = place.dir.join("source.cpp");
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
