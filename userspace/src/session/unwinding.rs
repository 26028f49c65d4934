//! Unwind tables for a recording: made before the target runs, served while it does.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
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
        let (cache, modules) = (Cache::of_user(), subject.modules());
        let files = modules.len();
        let built = telling_if_long(
            || build_all(&modules, &cache),
            LONG,
            |text| {
                options.verbosity.say(&format!(
                    "htrace-bpf: unwind tables of {files} files {text}"
                ))
            },
        );
        Self { cache, built }
    }

    /// Settings with room for the tables.
    pub(super) fn settings(&self, settings: &Settings) -> Settings {
        Settings {
            table_words: Tables::words_for(&self.built),
            max_waiting: Worker::max_waiting(),
            ..settings.clone()
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

/// Does `work`, and tells by `say` when it goes on for long, and how long it took then.
fn telling_if_long<T: Send>(
    work: impl FnOnce() -> T + Send,
    long: Duration,
    say: impl Fn(&str),
) -> T {
    let start = Instant::now();
    let (done, result) = mpsc::channel();
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let value = work();
            // The receiver waits, or has timed out and will join.
            let _not_waited_for = done.send(());
            value
        });
        if result.recv_timeout(long) == Err(RecvTimeoutError::Timeout) {
            say("are being made");
            let _the_end = result.recv();
            say(&format!("took {:.1} s", start.elapsed().as_secs_f64()));
        }
        match worker.join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn notices(programs: &mut Programs) -> Result<crate::loader::Notices, LoadError> {
    let taken = || io::Error::other("the notices are taken already");
    programs.take_notices().ok_or_else(|| LoadError::System {
        action: "cannot look out for new modules".to_owned(),
        source: taken(),
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn only_what_takes_long_is_told_and_before_it_ends() {
        let told = RefCell::new(Vec::new());
        let say = |text: &str| told.borrow_mut().push(text.to_owned());
        assert_eq!(telling_if_long(|| 7, Duration::MAX, say), 7);
        assert!(told.borrow().is_empty());

        // The work ends when it has been told of.
        let (go_on, wait) = mpsc::channel();
        let say = |text: &str| {
            told.borrow_mut().push(text.to_owned());
            let _ended_already = go_on.send(());
        };
        telling_if_long(move || wait.recv().unwrap(), Duration::ZERO, say);
        let told = told.into_inner();
        assert_eq!(told[0], "are being made");
        assert!(told[1].starts_with("took "), "{told:?}");
    }
}
