//! The task `bench-report`: how fast a trace is reported on, beside heaptrack_print.
//!
//! Traces of 10 and of 100 million events are generated ([`trace`]) and read by heaptrack_print, by
//! `htrace-bpf report` with the same sections, and, for scale, by zstd alone. All run once a round,
//! in turn, so that a slow minute of the machine hits all.

mod contenders;
mod random;
mod rounds;
mod table;
mod trace;

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};

use crate::command::{cargo, command, run};
use crate::machine::machine;
use crate::progress::{note, nothing_to_do, step};
use crate::setup;
use crate::workspace::Workspace;
use contenders::Contender;
use table::{Round, Row};

/// A report may take this much of heaptrack_print's time.
const TIME_LIMIT: f64 = 0.1;
/// … and this much of its memory.
const MEMORY_LIMIT: f64 = 1.0;
/// Where the tables are kept.
const DOCUMENT: &str = "docs/benchmarks.md";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Millions of events in a trace; may be given several times.
    #[arg(long = "millions", default_values_t = [10, 100], value_parser = clap::value_parser!(u64).range(1..=1000))]
    millions: Vec<u64>,
    /// How often each reader runs.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only build, and generate the traces.
    #[arg(long, conflicts_with = "prepared")]
    prepare: bool,
    /// Build nothing: use what an earlier run with --prepare has left.
    #[arg(long)]
    prepared: bool,
    /// Add to the rounds of earlier runs instead of forgetting them.
    #[arg(long = "continue")]
    further: bool,
}

/// The task `bench-report`. Prints the tables to standard output and keeps them in [`DOCUMENT`].
///
/// # Errors
/// Also when a report takes more than [`TIME_LIMIT`] or [`MEMORY_LIMIT`].
pub(crate) fn bench_report(workspace: &Workspace, options: &Options) -> Result<()> {
    if !options.prepared {
        prepare(workspace)?;
    }
    let mut tables = Vec::new();
    for &millions in &options.millions {
        let file = generated(workspace, millions)?;
        if !options.prepare {
            let rounds = rounds(workspace, options, &file)?;
            let rows = table::rows(&rounds)?;
            publish(workspace, millions, rounds.len(), &rows)?;
            tables.push(rows);
        }
    }
    tables.iter().try_for_each(|rows| judge(rows))
}

fn prepare(workspace: &Workspace) -> Result<()> {
    setup::test_programs(workspace)?;
    let mut build = cargo();
    build.args(["build", "--quiet", "--release", "--package", "htrace-bpf"]);
    run(build.current_dir(&workspace.root))
}

/// The trace of that many million events; written unless it is there.
fn generated(workspace: &Workspace, millions: u64) -> Result<PathBuf> {
    let dir = workspace.target.join("bench");
    std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let file = dir.join(format!("report-1-{millions}.zst"));
    let what = format!("a trace of {millions} million events");
    if file.is_file() {
        nothing_to_do(what, file.display());
    } else {
        step(what, || generate(millions * 1_000_000, &file))?;
    }
    Ok(file)
}

/// Writes through zstd's own program, at the level that heaptrack uses.
fn generate(events: u64, file: &Path) -> Result<()> {
    let unfinished = file.with_extension("part");
    let mut zstd = command("zstd");
    zstd.args(["-q", "-3", "-f", "-o"]).arg(&unfinished);
    let mut child = zstd
        .stdin(Stdio::piped())
        .spawn()
        .context("starting zstd")?;
    let pipe = child.stdin.take().context("no pipe to zstd")?;
    let written = trace::write_trace(events, BufWriter::with_capacity(1 << 16, pipe));
    let status = child.wait().context("waiting for zstd")?;
    written.context("writing to zstd")?;
    if !status.success() {
        bail!("zstd: {status}");
    }
    std::fs::rename(&unfinished, file).with_context(|| format!("renaming to {}", file.display()))
}

/// Measures, and hands back what is known afterwards: also of earlier runs, if so asked.
fn rounds(workspace: &Workspace, options: &Options, file: &Path) -> Result<Vec<Round>> {
    let htrace = workspace.binary(true);
    let kept = file.with_extension("rounds");
    let mut rounds = match options.further {
        true => rounds::load(&kept)?,
        false => Vec::new(),
    };
    for number in (rounds.len() + 1..).take(options.rounds as usize) {
        let mut round = Round::new();
        for contender in Contender::ALL {
            let run = contender.measure(&htrace, file)?;
            note(format_args!(
                "round {number}: {contender}: {:.3} s",
                run.seconds
            ));
            round.push(run);
        }
        rounds.push(round);
        rounds::save(&rounds, &kept)?;
    }
    Ok(rounds)
}

#[expect(clippy::print_stdout, reason = "the table is what was asked for")]
fn publish(workspace: &Workspace, millions: u64, rounds: usize, rows: &[Row]) -> Result<()> {
    let machine = machine(&["heaptrack", "zstd"])?;
    let head =
        format!("Report on {millions} million events, {rounds} rounds, medians; {machine}:\n\n");
    let text = head + &table::render(rows);
    print!("{text}");
    let path = workspace.root.join(DOCUMENT);
    let document = std::fs::read_to_string(&path).unwrap_or_else(|_| "# Benchmarks\n".into());
    let name = format!("bench-report {millions}");
    let document = table::replace_part(&document, &name, &text);
    std::fs::write(&path, document).with_context(|| format!("writing {}", path.display()))
}

fn judge(rows: &[Row]) -> Result<()> {
    let ours = rows.iter().find(|row| row.contender == Contender::Htrace);
    let ours = ours.context("htrace-bpf was not measured")?;
    if ours.times > TIME_LIMIT {
        bail!(
            "a report takes {:.3} of heaptrack_print's time, more than {TIME_LIMIT}",
            ours.times
        );
    }
    if ours.peak_times > MEMORY_LIMIT {
        bail!(
            "a report takes {:.2} times heaptrack_print's memory",
            ours.peak_times
        );
    }
    Ok(())
}
