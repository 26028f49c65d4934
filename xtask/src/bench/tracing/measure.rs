//! One run of a work under a tracer.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::contenders::Contender;
use super::samples::{Figure, Sample};
use super::works::{PairWork, Work, set_environment};
use super::{Place, attach, run, serve, tracers};
use crate::bench::kernel_stats::{KernelStats, Run};
use crate::command::command;

/// Measures once.
pub(super) fn measure(place: &Place, contender: Contender, work: Work) -> Result<Sample> {
    // No run may be taken for the next.
    let _absent = std::fs::remove_file(place.result());
    match work {
        Work::Attach => attach::attach(place),
        Work::Redis => serve::serve(place, contender),
        Work::Recorder => recorder(place),
        Work::Programs => programs(place, contender),
        _ => match work.pairs() {
            Some(shape) => Ok(pairs(place, contender, shape, contender.pairs())?.0),
            None => around(
                place,
                contender,
                &work.program(place)?.context("no program")?,
            ),
        },
    }
}

/// Runs a program under the tracer; its whole time counts.
fn around(place: &Place, contender: Contender, words: &[String]) -> Result<Sample> {
    let mut tracing = tracing(place, contender, words)?;
    let taken = run::to_end(set_environment(&mut tracing), &place.file("said"))?;
    Ok(with_rest(
        place,
        contender,
        Sample::of(taken.seconds),
        &taken,
    ))
}

/// Runs the loop of pairs under the tracer; the loop's own time counts.
fn pairs(
    place: &Place,
    contender: Contender,
    shape: PairWork,
    count: u32,
) -> Result<(Sample, run::Taken)> {
    let words = shape.words(place, count);
    let taken = match contender {
        Contender::BccMemleak | Contender::LibbpfMemleak => beside(place, contender, &words)?,
        _ => run::to_end(&mut tracing(place, contender, &words)?, &place.file("said"))?,
    };
    let (value, target_kib) = take_result(place)?;
    let sample = Sample::of(value).with(Figure::TargetKib, target_kib);
    Ok((with_rest(place, contender, sample, &taken), taken))
}

/// Lets the tracer attach to the loop, which waits for it.
fn beside(place: &Place, contender: Contender, words: &[String]) -> Result<run::Taken> {
    let mut work = run::until_ready(command(&words[0]).args(&words[1..]).arg("attached"))?;
    let pid = work.id().to_string();
    let mut tracer = match contender {
        Contender::BccMemleak => tracers::bcc_memleak(place, &pid),
        _ => tracers::libbpf_memleak(place, &pid),
    };
    let said = std::fs::File::create(place.file("said"))?;
    let mut tracer = tracer
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()?;
    let ended = run::wait(&mut work);
    let mut taken = run::Taken::default();
    run::look(tracer.id(), &mut taken);
    run::interrupt(&mut tracer)?;
    ended?;
    Ok(taken)
}

/// Microseconds of the recorder's CPU an event: a long run less a short one, so that no start-up
/// counts.
fn recorder(place: &Place) -> Result<Sample> {
    const SHORT: u32 = 400_000;
    const LONG: u32 = 2_400_000;
    const EVENTS: f64 = 2.0 * (LONG - SHORT) as f64;
    let cpu = |count| {
        let (sample, _) = pairs(place, Contender::Htrace, PairWork::LOOP, count)?;
        anyhow::Ok(sample.get(Figure::TracerCpu))
    };
    let short = cpu(SHORT)?;
    Ok(Sample::of((cpu(LONG)? - short) * 1e6 / EVENTS))
}

/// Nanoseconds in BPF programs for a pair, as the kernel counts them.
fn programs(place: &Place, contender: Contender) -> Result<Sample> {
    let _stats = KernelStats::enable()?;
    let (_, taken) = pairs(place, contender, PairWork::LOOP, contender.pairs())?;
    let most = taken.programs.iter().map(|run| run.count).max();
    let most = most
        .filter(|&most| most > 0)
        .context("no program has run")?;
    let sum: u64 = taken.programs.iter().map(|run: &Run| run.nanoseconds).sum();
    Ok(Sample::of(sum as f64 / most as f64))
}

/// The command that runs a program under a tracer.
pub(super) fn tracing(place: &Place, contender: Contender, words: &[String]) -> Result<Command> {
    use tracers::{bpftrace, heaptrack, htrace, valgrind};
    let mut tracer = match contender {
        Contender::Untraced => {
            let mut own = command(&words[0]);
            own.args(&words[1..]);
            return Ok(own);
        }
        Contender::EmptyProbe => return bpftrace(place, words, &tracers::empty_probe()),
        Contender::Bpftrace => return bpftrace(place, words, &tracers::with_stacks()),
        Contender::Htrace => htrace(place, &["--"]),
        Contender::HtraceReturnProbes => htrace(place, &["--return-probes", "--"]),
        Contender::HtraceSampled => htrace(place, &["--sample", "512K", "--"]),
        Contender::Heaptrack => heaptrack(place, &[]),
        Contender::HeaptrackRaw => heaptrack(place, &["--raw"]),
        Contender::Massif => valgrind(place, "massif", "--massif-out-file="),
        Contender::Dhat => valgrind(place, "dhat", "--dhat-out-file="),
        Contender::BccMemleak | Contender::LibbpfMemleak => bail!("it attaches to what runs"),
    };
    tracer.args(words);
    Ok(tracer)
}

/// Adds what is known of a run besides its value. The tracer is one process with these alone.
pub(super) fn with_rest(
    place: &Place,
    contender: Contender,
    sample: Sample,
    taken: &run::Taken,
) -> Sample {
    let size = |name: &str| {
        let file = std::fs::metadata(place.file(name));
        file.map_or(0.0, |file| file.len() as f64)
    };
    let bytes = match contender {
        Contender::Heaptrack => size("heaptrack.zst"),
        _ if contender.is_htrace() => size("htrace.zst"),
        _ => 0.0,
    };
    let sample = sample
        .with(Figure::FileBytes, bytes)
        .with(Figure::Lost, tracers::lost(&taken.said));
    if !contender.has_programs() {
        return sample;
    }
    sample
        .with(Figure::TracerKib, taken.peak_kib)
        .with(Figure::TracerCpu, taken.cpu)
}

/// What the pairs wrote. The file is removed, so that no run can be taken for the next.
pub(super) fn take_result(place: &Place) -> Result<(f64, f64)> {
    let text = std::fs::read_to_string(place.result()).context("the work left no result")?;
    std::fs::remove_file(place.result())?;
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(value)), Some(Ok(peak))) => Ok((value, peak)),
        _ => bail!("result of the work: {text:?}"),
    }
}
