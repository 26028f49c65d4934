//! The task `bench unwind`: what the stacks cost.
//!
//! A loop of malloc and free runs below 4, 12, 33 and 100 frames. The kernel itself counts the time
//! that it spends in the program at malloc's entry (`kernel.bpf_stats_enabled`), which does nothing
//! that depends on the depth but walking the stack; a line through the four points gives
//! nanoseconds a frame, and what remains at no frame. Then the sizes of tables, and the time that
//! making them takes.

mod line;
mod tables;

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result, bail};

use super::kernel_stats::{self, KernelStats, Run};
use super::{place::Place, print_table, take_result};
use crate::command::{command, shown};
use crate::progress::{note, step};
use crate::workspace::Workspace;
use crate::{build, setup};
use line::Line;

/// Frames of the measured stacks, as in the question whether 33 cost much more than 4.
const DEPTHS: [u32; 4] = [4, 12, 33, 100];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Pairs of malloc and free at each depth.
    #[arg(long, default_value_t = 100_000)]
    pairs: u32,
    /// How often each depth is measured; the fastest counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// The task `bench unwind`. Prints tables to standard output.
pub(crate) fn unwind(workspace: &Workspace, options: &Options) -> Result<()> {
    setup::setup(workspace, true)?;
    build::build(workspace, true)?;
    let place = Place::make(workspace, "bench")?;
    place.compile(
        workspace,
        "c++",
        "deep_frames.cpp",
        &["-fomit-frame-pointer"],
    )?;
    let depths = step("stacks of several depths", || measure_all(&place, options))?;
    let mut text = render(&depths)?;
    text.push('\n');
    text.push_str(&step("unwind tables", || tables::measure(workspace))?);
    print_table(&text)
}

/// What one depth costs, in nanoseconds: the fastest of all rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Measured {
    frames: u32,
    /// A run of the program at malloc's entry.
    program: f64,
    /// A whole traced pair of malloc and free.
    pair: f64,
}

fn measure_all(place: &Place, options: &Options) -> Result<Vec<Measured>> {
    let _stats = KernelStats::enable()?;
    let fastest = |frames| fastest(place, options, frames);
    DEPTHS.into_iter().map(fastest).collect()
}

fn fastest(place: &Place, options: &Options, frames: u32) -> Result<Measured> {
    let mut best = measure(place, options.pairs, frames)?;
    for _ in 1..options.rounds {
        let next = measure(place, options.pairs, frames)?;
        best.program = best.program.min(next.program);
        best.pair = best.pair.min(next.pair);
    }
    note(format_args!(
        "{frames} frames: {:.0} ns, a pair {:.0} ns",
        best.program, best.pair
    ));
    Ok(best)
}

/// Traces the loop, and asks the kernel when it is done.
fn measure(place: &Place, pairs: u32, frames: u32) -> Result<Measured> {
    let result = place.result();
    let mut tracer = command(&place.htrace);
    tracer
        .args(["--quiet", "-o"])
        .arg(place.file("deep.zst"))
        .arg("--")
        .arg(place.file("deep_frames"))
        .args([frames.to_string(), pairs.to_string()])
        .arg(&result)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = tracer
        .spawn()
        .with_context(|| format!("starting `{}`", shown(&tracer)))?;
    let runs = wait_until_ready(&mut child).and_then(|()| kernel_stats::runs(child.id()));
    drop(child.stdin.take());
    if !child.wait()?.success() {
        bail!("`{}` failed", shown(&tracer));
    }
    Ok(Measured {
        frames,
        program: entry_program(&runs?, pairs)?.nanoseconds_each(),
        pair: take_result(Path::new(&result))?,
    })
}

fn wait_until_ready(child: &mut Child) -> Result<()> {
    let mut line = String::new();
    let output = child.stdout.take().context("no output")?;
    BufReader::new(output).read_line(&mut line)?;
    if line != "ready\n" {
        bail!("the traced loop did not end");
    }
    Ok(())
}

/// The program at the entry of functions that allocate: of those that have run so often, the one for
/// which the verifier had most to do.
fn entry_program(runs: &[Run], pairs: u32) -> Result<Run> {
    let often = runs.iter().filter(|run| run.count >= u64::from(pairs));
    let program = often.max_by_key(|run| run.verified_instructions);
    program
        .copied()
        .context("no program has run; is kernel.bpf_stats_enabled refused?")
}

fn render(depths: &[Measured]) -> Result<String> {
    let points: Vec<(f64, f64)> = depths
        .iter()
        .map(|measured| (f64::from(measured.frames), measured.program))
        .collect();
    let line = Line::through(&points).context("there are no two depths")?;
    let mut text = String::from("| frames | entry program, ns | traced pair, ns |\n");
    text.push_str("|-------:|------------------:|----------------:|\n");
    for measured in depths {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {:>6} | {:>17.0} | {:>15.0} |",
            measured.frames, measured.program, measured.pair
        );
    }
    let pair_of = |frames| {
        let found = depths.iter().find(|measured| measured.frames == frames);
        found.map_or(f64::NAN, |measured| measured.pair)
    };
    let _ = writeln!(
        text,
        "\n{:.1} ns a frame, {:.0} ns at no frame; a pair below 33 frames costs {:.2} times one below 4",
        line.slope,
        line.at_zero,
        pair_of(33) / pair_of(4),
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_program_is_the_largest_of_those_that_ran_for_each_pair() {
        let run = |count, verified_instructions| Run {
            nanoseconds: 10 * count,
            count,
            verified_instructions,
        };
        let runs = [run(3, 900), run(1000, 20), run(1001, 500), run(0, 1000)];
        let found = entry_program(&runs, 1000).unwrap();
        assert_eq!(found.verified_instructions, 500);
        assert!((found.nanoseconds_each() - 10.0).abs() < 1e-9);
        assert!(entry_program(&runs, 2000).is_err());
    }

    #[test]
    fn the_text_holds_slope_and_ratio() {
        let measured = |frames: u32| Measured {
            frames,
            program: 400.0 + 25.0 * f64::from(frames),
            pair: 1000.0 + 10.0 * f64::from(frames),
        };
        let text = render(&DEPTHS.map(measured)).unwrap();
        assert!(
            text.contains("25.0 ns a frame, 400 ns at no frame"),
            "{text}"
        );
        assert!(text.contains("costs 1.28 times"), "{text}");
    }
}
