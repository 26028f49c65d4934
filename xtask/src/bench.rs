//! The task `bench`: what a malloc and a free cost when traced, beside other tracers.
//!
//! One loop, one machine, one run: absolute numbers vary with the machine, so the table's last column,
//! the ratio to the untraced loop, is what counts. All contenders run once a round, in turn, so that
//! a slow minute of the machine hits all; the median over the rounds is shown.

mod contenders;
mod kernel_stats;
mod place;
mod table;
mod tracing;
mod unwind;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::progress::{note, step};
use crate::workspace::Workspace;
use crate::{build, setup};
use contenders::Contender;
use place::Place;
use table::Row;

/// A process that merely uses the same libc must not cost more than this, as a ratio to untraced.
const BYSTANDER_LIMIT: f64 = 1.1;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Instead of the whole: a part by itself.
    #[command(subcommand)]
    part: Option<Part>,
    /// Pairs of malloc and free that one traced run makes; untraced ones make 500 times as many.
    #[arg(long, default_value_t = 200_000)]
    pairs: u32,
    /// How often each contender runs.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Measure what stacks cost: by depth, and the tables by which they are unwound.
    Unwind(unwind::Options),
    /// Compare what recording costs with all tracers that Debian has, and write docs/benchmarks.md.
    Tracing(tracing::Options),
}

/// The task `bench`. Prints the table to standard output.
///
/// # Errors
/// Also when the bystander pays more than [`BYSTANDER_LIMIT`].
pub(crate) fn bench(workspace: &Workspace, options: &Options) -> Result<()> {
    match &options.part {
        Some(Part::Unwind(options)) => return unwind::unwind(workspace, options),
        Some(Part::Tracing(options)) => return tracing::tracing(workspace, options),
        None => {}
    }
    setup::setup(workspace, true)?;
    build::build(workspace, true)?;
    let place = Place::make(workspace, "bench")?;
    place.compile(workspace, "cc", "malloc_loop.c", &[])?;
    let results = step(format_args!("{} rounds", options.rounds), || {
        rounds(&place, options)
    })?;
    let rows = table::rows(&results)?;
    print_table(&table::render(&rows))?;
    judge(&rows)
}

/// Nanoseconds a pair of every contender, one per round.
type Results = BTreeMap<Contender, Vec<f64>>;

fn rounds(place: &Place, options: &Options) -> Result<Results> {
    let mut results = Results::new();
    for round in 1..=options.rounds {
        for contender in Contender::ALL {
            let each = contender.measure(place, options.pairs)?;
            note(format_args!("round {round}: {contender}: {each:.1} ns"));
            results.entry(contender).or_default().push(each);
        }
    }
    Ok(results)
}

/// What the loop wrote. The file is removed, so that no run can be taken for the next.
fn take_result(file: &Path) -> Result<f64> {
    let text = std::fs::read_to_string(file).context("the loop left no result")?;
    std::fs::remove_file(file).with_context(|| format!("removing {}", file.display()))?;
    text.trim()
        .parse()
        .with_context(|| format!("result of the loop: {text:?}"))
}

#[expect(clippy::print_stdout, reason = "the table is what was asked for")]
fn print_table(table: &str) -> Result<()> {
    print!("{table}");
    Ok(())
}

fn judge(rows: &[Row]) -> Result<()> {
    let bystander = rows
        .iter()
        .find(|row| row.contender == Contender::Bystander);
    let ratio = bystander.context("the bystander was not measured")?.ratio;
    if ratio > BYSTANDER_LIMIT {
        bail!("a bystander pays {ratio:.2} times untraced, more than {BYSTANDER_LIMIT}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(contender: Contender, ratio: f64) -> Row {
        Row {
            contender,
            each: 25.0 * ratio,
            ratio,
        }
    }

    #[test]
    fn a_bystander_that_pays_is_an_error() {
        assert!(judge(&[row(Contender::Bystander, 1.09)]).is_ok());
        assert!(judge(&[row(Contender::Bystander, 1.2)]).is_err());
        assert!(judge(&[row(Contender::Untraced, 1.0)]).is_err());
    }
}
