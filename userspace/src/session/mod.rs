//! One recording, from the target to the finished file.
//!
//! [`record`] is the whole story in named steps. The work is in the modules: [`converter`] turns
//! records into lines of the file (pure), [`recorder`] feeds it on a thread of its own,
//! [`allocators`] finds what to probe, [`control`] waits for the end, [`output`] names and makes
//! the file, [`progress`] and [`summary`] talk to the user.

pub mod allocators;
mod blocks;
mod chosen_functions;
mod control;
mod converter;
mod counted;
mod false_leaks;
mod names;
mod options;
pub mod output;
mod pauses;
mod progress;
mod recorder;
mod selection;
mod subject;
mod summary;
mod time_stamps;
pub mod uncovered;
mod unwinding;

use std::{fs, path::PathBuf, sync::Arc};

use anyhow::Context;
use htrace_trace_format::TargetExit;
use tokio::sync::mpsc as tokio_mpsc;

pub use self::options::{Limits, Options, Target, Verbosity};
use self::{
    allocators::Allocators,
    output::Output,
    pauses::Pauses,
    recorder::{Recorder, RecorderInput},
    selection::Selection,
    subject::Subject,
    summary::{Closing, Losses},
    unwinding::Unwinding,
};
use crate::{
    drain::{Drain, Input, Spill, now, queue::queue},
    loader::{LinkTest, Programs},
    modules::Module,
    sys::capabilities,
    unwind::{Snapshots, Worker},
};

/// Batches that may wait for the recorder in memory, of a MiB or 10 ms each.
const QUEUED_BATCHES: usize = 16;

/// Records a target and returns the exit status that this process is to have.
///
/// # Errors
/// When nothing, or not all, could be recorded. What the target does is never an error.
pub async fn record(options: Options) -> anyhow::Result<u8> {
    let signals = control::Signals::take_over().context("cannot take over signals")?;
    let mut subject = Subject::prepare(&options, signals.inherited_mask())?;
    // Threads that are started from here on inherit it; the target was started before.
    options
        .scheduling
        .apply()
        .context("cannot run as --nice or --cpu say")?;
    let links = LinkTest::start();
    let unwinding = Unwinding::prepare(&subject, &options);
    let mut programs = Programs::load(&unwinding.settings(&options.settings), links)?;
    let mut allocators = Allocators::default();
    allocators.attach_all(&mut programs, &subject)?;
    programs.attach_tracepoints()?;
    subject.require_allocator(&allocators)?;

    let output = output::create(options.output.as_deref(), &subject.output_context())?;
    let snapshots = Arc::new(Snapshots::default());
    let worker = unwinding.start(&mut programs, &subject, Arc::clone(&snapshots))?;
    let (pipeline, mut modules_seen) =
        Pipeline::start(&mut programs, &subject, output, snapshots, worker, &options)?;
    programs.start()?;
    if let Err(error) = subject.resume() {
        programs.stop()?;
        pipeline.discard();
        return Err(error.into());
    }
    // The programs' log is found with CAP_SYS_ADMIN.
    if !options.settings.log {
        capabilities::keep_while_recording();
    }
    options.verbosity.say(&subject.started_message());

    let mut wait = control::Wait {
        signals,
        subject: &mut subject,
        programs: &mut programs,
        allocators: &mut allocators,
        modules_seen: &mut modules_seen,
        stats: pipeline.recorder.stats(),
        verbosity: options.verbosity,
        duration: options.duration,
        max_memory: options.limits.memory,
        pauses: Pauses::default(),
    };
    if options.settings.paused {
        wait.pauses.set(true, now());
    }
    let end = wait.for_end().await?;
    let until_finished = wait.signals.end_at_once(end, options.verbosity)?;
    wait.complain_if_never_begun();
    wait.programs.stop()?;
    if let Some(reason) = end.reason() {
        options.verbosity.complain(reason);
    }
    let knows_all_blocks = wait.subject.is_launched() && records_all_blocks(&options);
    let losses = Losses::read(wait.programs, knows_all_blocks);
    let finished = pipeline.finish(Closing {
        losses,
        exit: end.target_exit(),
        pauses: wait.pauses.until(now()),
    });
    drop(until_finished);
    match &finished {
        Ok(summary) => options.verbosity.say(summary),
        Err(error) => options
            .verbosity
            .complain(&format!("htrace-bpf: {error:#}")),
    }
    let status = wait.exit_status(end).await?;
    // A program's success must not hide that its recording failed.
    Ok(if finished.is_err() && status == 0 {
        options.target.failure_status()
    } else {
        status
    })
}

/// Whether no allocation is left out by choice.
fn records_all_blocks(options: &Options) -> bool {
    !options.settings.paused && Selection::of(options).is_everything()
}

/// Drain, recorder and file.
struct Pipeline {
    drain: Drain,
    recorder: Recorder,
    lookout: Worker,
    path: PathBuf,
}

type ModulesSeen = tokio_mpsc::UnboundedReceiver<Arc<Module>>;

impl Pipeline {
    fn start(
        programs: &mut Programs,
        subject: &Subject,
        output: Output,
        snapshots: Arc<Snapshots>,
        lookout: Worker,
        options: &Options,
    ) -> anyhow::Result<(Self, ModulesSeen)> {
        let limits = options.limits;
        let (new_modules, modules_seen) = tokio_mpsc::unbounded_channel();
        let spill = Spill::beside(&output.path, limits.file);
        let (batches, batch_receiver) = queue(QUEUED_BATCHES, spill);
        let recorder = Recorder::start(RecorderInput {
            batches: batch_receiver,
            file: output.file,
            max_bytes: limits.file,
            header: subject.file_header(),
            names: subject.names(new_modules),
            compression_level: options.compression_level,
            selection: Selection::of(options),
        })?;
        let events = programs
            .take_events()
            .context("the ring buffer is taken once")?;
        let drain = Drain::start(Input {
            events,
            pid: subject.pid(),
            waits_for_program: subject.is_launched(),
            noted_mappings: Box::new(move |stamp| snapshots.take(stamp)),
            batches,
        })?;
        Ok((
            Self {
                drain,
                recorder,
                lookout,
                path: output.path,
            },
            modules_seen,
        ))
    }

    /// Completes the file, and returns what there is to say about it.
    fn finish(self, closing: Closing) -> anyhow::Result<String> {
        let drained = self.drain.finish();
        self.lookout.finish();
        // When the recorder has failed, the drain has failed because of that.
        let totals = self.recorder.finish(closing.clone())?;
        drained?;
        Ok(summary::text(&totals, &closing, &self.path))
    }

    /// There is nothing to record: leaves no file.
    fn discard(self) {
        let closing = Closing {
            losses: Losses::default(),
            exit: TargetExit::Detached,
            pauses: Vec::new(),
        };
        let path = self.path.clone();
        if let Err(error) = self.finish(closing) {
            tracing::debug!("while giving up: {error:#}");
        }
        if let Err(error) = fs::remove_file(&path) {
            tracing::debug!("{}: {error}", path.display());
        }
    }
}
