//! The thread that turns batches into the file.

use std::{
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context, anyhow};
use htrace_trace_format::{Note, TraceWriter, compression::ZstdFrameWriter, writer::Header};

use super::{
    chosen_functions::{CHOICE_OF_FUNCTIONS, ChosenFunctions, LeftOut},
    converter::{Converter, Totals},
    counted::Counted,
    names::{NamesSource, ProcessNames},
    selection::Selection,
    subject::FileHeader,
    summary::Closing,
    time_stamps::TICK_MS,
};
use crate::{
    drain::{Batch, Item, now, queue::Receiver},
    sys::capabilities,
};

/// Ticks of 10 ms between two checkpoints: what a sudden death loses at most.
const CHECKPOINT_TICKS: u64 = 100;

/// What a recorder needs.
pub(super) struct RecorderInput {
    /// What to record.
    pub(super) batches: Receiver,
    /// Where to.
    pub(super) file: File,
    /// Bytes at which the file is complete.
    pub(super) max_bytes: Option<u64>,
    /// What stands at the top of the file.
    pub(super) header: FileHeader,
    /// What addresses mean.
    pub(super) names: NamesSource,
    /// Level of zstd.
    pub(super) compression_level: i32,
    /// Which allocations are recorded.
    pub(super) selection: Selection,
}

/// How far a recording is, for others to look at.
#[derive(Debug, Default)]
pub(super) struct Stats {
    /// Allocations so far.
    pub(super) allocations: AtomicU64,
    /// Live bytes.
    pub(super) live_bytes: AtomicU64,
    /// True when the recorder has ended because the file could not be written.
    pub(super) failed: AtomicBool,
    /// True when the file is as large as it may be. What came later is not in it.
    pub(super) file_is_full: AtomicBool,
}

/// The running recorder.
pub(super) struct Recorder {
    thread: JoinHandle<anyhow::Result<Totals>>,
    closing: Sender<Closing>,
    stats: Arc<Stats>,
}

type Sink = ZstdFrameWriter<Counted<File>>;
type FileConverter = Converter<Sink, ProcessNames>;

impl Recorder {
    /// Starts to record: the head of the file is written when this returns.
    pub(super) fn start(input: RecorderInput) -> anyhow::Result<Self> {
        let RecorderInput {
            batches,
            file,
            max_bytes,
            header,
            names,
            compression_level,
            selection,
        } = input;
        let writer =
            start_file(file, compression_level, &header, &selection).context(CANNOT_WRITE)?;
        let start = now();
        let (closing, closes) = mpsc::channel();
        let stats = Arc::new(Stats::default());
        let shared = Arc::clone(&stats);
        let record = move || {
            let mut converter = Converter::new(writer, ProcessNames::new(names), start);
            converter.sample_by(selection.sample_bytes);
            converter.choose(ChosenFunctions::new(selection.functions));
            convert_all(&mut converter, &batches, &shared, max_bytes)?;
            let totals = converter.totals();
            // Without a closing the recording was given up.
            if let Ok(closing) = closes.recv() {
                finish_file(converter, start, &totals, &closing)?;
            }
            Ok::<_, io::Error>(totals)
        };
        let shared = Arc::clone(&stats);
        let thread = thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || {
                capabilities::keep_while_recording();
                let result = record().context(CANNOT_WRITE);
                shared.failed.store(result.is_err(), Ordering::Release);
                result
            })?;
        Ok(Self {
            thread,
            closing,
            stats,
        })
    }

    /// How far it is.
    pub(super) fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// Waits until all batches are recorded, and completes the file. The sender of batches must
    /// be gone.
    pub(super) fn finish(self, closing: Closing) -> anyhow::Result<Totals> {
        // A recorder that has failed does not listen; its error follows.
        let _failed = self.closing.send(closing);
        self.thread
            .join()
            .map_err(|_| anyhow!("the recorder has died"))?
    }
}

const CANNOT_WRITE: &str = "cannot write the trace file";

fn convert_all(
    converter: &mut FileConverter,
    batches: &Receiver,
    stats: &Stats,
    max_bytes: Option<u64>,
) -> io::Result<()> {
    let mut checkpoint = now();
    while let Some(batch) = batches.receive()? {
        convert(converter, &batch)?;
        if batch.now >= checkpoint + CHECKPOINT_TICKS {
            checkpoint = batch.now;
            converter.writer().checkpoint()?;
        }
        let (allocations, live_bytes) = converter.progress();
        stats.allocations.store(allocations, Ordering::Relaxed);
        stats.live_bytes.store(live_bytes, Ordering::Relaxed);
        let written = converter.writer().sink_mut().sink().written();
        if max_bytes.is_some_and(|most| written >= most) {
            stats.file_is_full.store(true, Ordering::Release);
            return throw_away(batches);
        }
    }
    Ok(())
}

/// Takes what comes until nothing more comes, so that nobody waits.
fn throw_away(batches: &Receiver) -> io::Result<()> {
    while batches.receive()?.is_some() {}
    Ok(())
}

fn convert(converter: &mut FileConverter, batch: &Batch) -> io::Result<()> {
    for item in &batch.items {
        match item {
            Item::Mappings(text) => converter.mappings(text),
            Item::Records(records) => {
                for record in records.iter() {
                    match record {
                        Ok(record) => converter.record(&record, batch.now)?,
                        Err(_) => converter.malformed(),
                    }
                }
            }
        }
    }
    converter.sample(batch.now, batch.resident_pages)
}

fn start_file(
    file: File,
    level: i32,
    header: &FileHeader,
    selection: &Selection,
) -> io::Result<TraceWriter<Sink>> {
    let command: Vec<&[u8]> = header.command.iter().map(Vec::as_slice).collect();
    let suppressions: Vec<&str> = header.suppressions.iter().map(String::as_str).collect();
    let header = Header {
        command: &command,
        page_size: header.page_size,
        pages: header.pages,
        suppressions: &suppressions,
        attached: header.attached,
        started: Some(header.started),
    };
    let mut writer = TraceWriter::new(Sink::new(Counted::new(file), level)?, &header)?;
    for comment in selection.comments() {
        writer.comment(&comment)?;
    }
    writer.checkpoint()?;
    Ok(writer)
}

/// What has no name any more is lost to the user when we close it.
fn still_there(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.nlink() == 0 {
        return Err(io::Error::other("it was removed during the recording"));
    }
    Ok(())
}

fn finish_file(
    converter: FileConverter,
    start: u64,
    totals: &Totals,
    closing: &Closing,
) -> io::Result<()> {
    let mut writer = converter.into_writer()?;
    for (reason, count) in closing.losses.reasons() {
        writer.note(&Note::Lost { reason, count })?;
    }
    write_left_out(&mut writer, start, totals, closing)?;
    write_stack_ends(&mut writer, totals)?;
    writer.note(&Note::Exit(closing.exit))?;
    let file = writer.finish()?.finish()?.into_inner();
    still_there(&file)?;
    file.sync_data().or_else(|error| match error.kind() {
        // Pipes and the like have nothing to synchronise.
        io::ErrorKind::InvalidInput => Ok(()),
        _ => Err(error),
    })
}

/// What was left out by choice, of a recording that began at the tick `start`.
fn write_left_out(
    writer: &mut TraceWriter<Sink>,
    start: u64,
    totals: &Totals,
    closing: &Closing,
) -> io::Result<()> {
    let LeftOut {
        allocations, bytes, ..
    } = totals.left_out;
    let by_functions = (CHOICE_OF_FUNCTIONS, allocations, Some(bytes));
    let choices = closing.losses.left_out();
    let choices = choices.map(|(reason, count)| (reason, count, None));
    for (reason, count, bytes) in choices.chain((allocations > 0).then_some(by_functions)) {
        writer.note(&Note::LeftOut {
            reason,
            count,
            bytes,
        })?;
    }
    let since_start = |tick: u64| tick.saturating_sub(start) * TICK_MS;
    for (from, to) in &closing.pauses {
        let (from, to) = (since_start(*from), since_start(*to));
        writer.note(&Note::Paused { from, to })?;
    }
    Ok(())
}

fn write_stack_ends(writer: &mut TraceWriter<Sink>, totals: &Totals) -> io::Result<()> {
    for (end, count) in &totals.stack_ends {
        writer.note(&Note::StackEnd {
            reason: end.name(),
            count: *count,
        })?;
    }
    for ((end, module), count) in &totals.cut_stacks {
        writer.note(&Note::StackCut {
            reason: end.name(),
            count: *count,
            module,
        })?;
    }
    Ok(())
}
