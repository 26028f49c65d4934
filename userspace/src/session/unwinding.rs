//! Unwind tables for a recording: made before the target runs, served while it does.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{options::Options, subject::Subject};
use crate::{
    loader::{LoadError, Programs, Settings, Unwind},
    unwind::{Built, Cache, Snapshots, TableWork, Tables, Work, Worker, build_all},
};

/// Who takes so long says so.
const LONG: Duration = Duration::from_secs(1);

/// Tables made of what the target has loaded, or will load as far as can be foretold.
pub(super) struct Unwinding {
    cache: Cache,
    built: Vec<Built>,
}

impl Unwinding {
    /// Makes the tables.
    pub(super) fn prepare(subject: &Subject, options: &Options) -> Self {
        if options.settings.unwind == Unwind::FramePointers {
            let (cache, built) = (Cache::none(), Vec::new());
            return Self { cache, built };
        }
        let (cache, modules, start) = (Cache::of_user(), subject.modules(), Instant::now());
        let built = build_all(&modules, &cache);
        let (files, took) = (built.len(), start.elapsed());
        if took >= LONG {
            let seconds = took.as_secs_f64();
            let text = format!("htrace-bpf: unwind tables of {files} files took {seconds:.1} s");
            options.verbosity.say(&text);
        }
        Self { cache, built }
    }

    /// Settings with room for the tables.
    pub(super) fn settings(&self, settings: &Settings) -> Settings {
        Settings {
            table_words: Tables::words_for(&self.built),
            max_waiting: Worker::max_waiting(),
            ..*settings
        }
    }

    /// Hands the tables over, and starts to serve the target.
    pub(super) fn start(
        self,
        programs: &mut Programs,
        subject: &Subject,
        snapshots: Arc<Snapshots>,
    ) -> anyhow::Result<Worker> {
        let tables = programs.take_tables().map(|maps| {
            let mut tables = Tables::new(maps);
            tables.add(&self.built);
            TableWork::new(tables, subject.module_table(), self.cache)
        });
        let work = Work {
            pid: subject.pid(),
            notices: notices(programs)?,
            acknowledgement: programs.acknowledgement(),
            snapshots,
            tables,
        };
        Ok(Worker::start(work)?)
    }
}

fn notices(programs: &mut Programs) -> Result<crate::loader::Notices, LoadError> {
    let taken = || io::Error::other("the notices are taken already");
    programs.take_notices().ok_or_else(|| LoadError::System {
        action: "cannot look out for new modules".to_owned(),
        source: taken(),
    })
}
