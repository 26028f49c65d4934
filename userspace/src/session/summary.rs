//! What is said at the end of a recording.

mod left_out;

use std::{fmt::Write, path::Path};

use htrace_ebpf_common::{counters::Counter, wire::StackEnd};
use htrace_trace_format::TargetExit;

use super::progress::size;
use super::{
    converter::Totals,
    false_leaks::{Amount, Evidence, FalseLeaks},
};
use crate::loader::Programs;

/// What the programs have counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    lost: Vec<(&'static str, u64)>,
    left_out: Vec<(&'static str, u64)>,
    handled: Vec<(&'static str, u64)>,
    pauses: Pauses,
    /// Counts of lost calls by kind.
    evidence: Evidence,
}

/// How often and how long threads of the target waited for room in the ring buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pauses {
    count: u64,
    nanoseconds: u64,
    too_long: u64,
}

/// What is known only at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Closing {
    /// What is missing from the recording.
    pub(super) losses: Losses,
    /// How the target ended.
    pub(super) exit: TargetExit,
    /// When the recording paused: begin and end in ticks of 10 ms.
    pub(super) pauses: Vec<(u64, u64)>,
}

impl Losses {
    /// Reads the counters.
    pub(super) fn read(programs: &Programs, knows_all_blocks: bool) -> Self {
        let read = |counters: &[(Counter, &'static str)]| {
            let counted = counters
                .iter()
                .map(|(counter, name)| (*name, programs.counter(*counter)));
            counted.filter(|(_, count)| *count != 0).collect()
        };
        Self {
            lost: read(&Counter::LOST),
            left_out: read(&Counter::LEFT_OUT),
            handled: read(&Counter::HANDLED),
            pauses: Pauses {
                count: programs.counter(Counter::Pauses),
                nanoseconds: programs.counter(Counter::PausedNs),
                too_long: programs.counter(Counter::PauseTooLong),
            },
            evidence: evidence(programs, knows_all_blocks),
        }
    }

    /// What of the leaks may be false.
    pub(super) fn false_leaks(&self, totals: &Totals) -> FalseLeaks {
        let evidence = Evidence {
            reused: totals.counts.unseen_frees,
            threads: totals.threads,
            ..self.evidence
        };
        evidence.bounds(&totals.live_sizes)
    }

    /// What was lost, by reason.
    pub(super) fn reasons(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.lost.iter().copied()
    }

    /// Allocations that were left out by choice in the programs, by the choice.
    pub(super) fn left_out(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.left_out.iter().copied()
    }

    /// Number of events and stacks lost.
    pub(super) fn total(&self) -> u64 {
        self.lost.iter().map(|(_, count)| count).sum()
    }
}

/// Counts of lost calls by kind, without what only the recorder knows.
fn evidence(programs: &Programs, knows_all_blocks: bool) -> Evidence {
    let sum = |counters: &[Counter]| counters.iter().map(|c| programs.counter(*c)).sum();
    Evidence {
        frees: sum(&[Counter::FreeRingFull]),
        reallocs: sum(&[Counter::ReallocRingFull]),
        allocations: sum(&[
            Counter::AllocationRingFull,
            Counter::ReallocRingFull,
            Counter::ThreadsFull,
            Counter::ReturnWithoutEntry,
            Counter::PointerUnreadable,
        ]),
        knows_all_blocks,
        ..Evidence::default()
    }
}

/// The closing lines: heaptrack's figures, losses if there are any, and what to do next.
pub(super) fn text(totals: &Totals, closing: &Closing, path: &Path) -> String {
    let losses = &closing.losses;
    let mut text = String::from("heaptrack stats:\n");
    let counts = &totals.counts;
    let figures = [
        ("allocations:          ", counts.allocations),
        ("leaked allocations:   ", totals.live_blocks),
        ("temporary allocations:", counts.temporary),
    ];
    for (name, count) in figures {
        line(&mut text, format_args!("\t{name}\t{count}"));
    }
    left_out::tell(&mut text, totals, closing);
    for (reason, count) in losses.reasons() {
        line(&mut text, format_args!("lost {reason}: {count}"));
    }
    if losses.total() > 0 || totals.malformed > 0 {
        line(
            &mut text,
            format_args!("The recording is incomplete: {LOSS_ADVICE}"),
        );
    }
    false_leaks(&mut text, &losses.false_leaks(totals));
    pauses(&mut text, losses.pauses);
    cut_stacks(&mut text, totals);
    guessed_stacks(&mut text, totals);
    for (name, count) in &losses.handled {
        tracing::info!("{name}: {count}");
    }
    tracing::info!("frees of unknown blocks: {}", counts.unknown_frees);
    if counts.unseen_frees > 0 {
        line(
            &mut text,
            format_args!("frees not seen (address reused): {}", counts.unseen_frees),
        );
    }
    line(
        &mut text,
        format_args!("\nRecorded into {path:?}. To analyse it:\n"),
    );
    line(
        &mut text,
        format_args!("  htrace-bpf report {}", quoted(path)),
    );
    text
}

/// Lost frees make leaks of blocks that are none.
fn false_leaks(text: &mut String, bounds: &FalseLeaks) {
    let FalseLeaks { at_least, at_most } = bounds;
    if at_most.blocks == 0 {
        return;
    }
    let shown = |amount: &Amount| format!("{} ({} blocks)", size(amount.bytes), amount.blocks);
    line(
        text,
        format_args!(
            "between {} and {} of the leaks may be false: their frees may be among the lost",
            shown(at_least),
            shown(at_most)
        ),
    );
}

/// How long the target was held up.
fn pauses(text: &mut String, pauses: Pauses) {
    if pauses.count == 0 {
        return;
    }
    let seconds = pauses.nanoseconds as f64 / 1e9;
    line(
        text,
        format_args!(
            "pauses until there was room: {}, {seconds:.3} s in all threads together",
            pauses.count
        ),
    );
    if pauses.too_long > 0 {
        line(
            text,
            format_args!("\t{} reached --max-pause", pauses.too_long),
        );
    }
}

/// How many allocations have a stack that was cut, and where most.
fn cut_stacks(text: &mut String, totals: &Totals) {
    const SHOWN: usize = 3;
    let cut: u64 = totals.cut_stacks.values().sum();
    if cut == 0 {
        return;
    }
    let mut places: Vec<_> = totals.cut_stacks.iter().collect();
    places.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let all: u64 = totals.stack_ends.values().sum();
    line(
        text,
        format_args!("stacks cut short: {cut} of {all} allocations"),
    );
    for ((end, module), count) in places.into_iter().take(SHOWN) {
        let module = if module.is_empty() {
            "unknown code"
        } else {
            module
        };
        line(text, format_args!("\t{count} in {module}: {}", end.name()));
    }
}

/// How many allocations have a stack that is whole only if frame pointers were kept.
fn guessed_stacks(text: &mut String, totals: &Totals) {
    let guessed = totals.stack_ends.get(&StackEnd::Guessed).copied();
    let Some(guessed) = guessed.filter(|count| *count > 0) else {
        return;
    };
    let all: u64 = totals.stack_ends.values().sum();
    line(
        text,
        format_args!("stacks that rest on frame pointers: {guessed} of {all} allocations"),
    );
}

const LOSS_ADVICE: &str = "figures are too low, leaks may be too high. A larger --ring-size helps";

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing into a string does not fail.
    let _never = text.write_fmt(arguments);
    text.push('\n');
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+%@:,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::chosen_functions::LeftOut;

    fn closing(losses: Losses) -> Closing {
        Closing {
            losses,
            exit: TargetExit::Detached,
            pauses: Vec::new(),
        }
    }

    fn said(lost: Vec<(&'static str, u64)>) -> String {
        let losses = Losses {
            lost,
            ..Losses::default()
        };
        text(&Totals::default(), &closing(losses), Path::new("run 1.zst"))
    }

    #[test]
    fn choices_and_pauses_are_told() {
        let losses = Losses {
            left_out: vec![("min-size", 4), ("paused", 5)],
            ..Losses::default()
        };
        let closing = Closing {
            pauses: vec![(100, 150), (300, 400)],
            ..closing(losses)
        };
        let text = text(&Totals::default(), &closing, Path::new("run.zst"));
        assert!(text.contains("\ncalls left out by --min-size: 4\n"));
        assert!(text.contains("left out while paused or waiting: 5\ntimes paused: 2 (1.50 s in"));
        assert!(!text.contains("incomplete"), "{text}");
    }

    #[test]
    fn figures_come_as_heaptrack_gives_them() {
        let text = said(Vec::new());
        assert!(
            text.starts_with("heaptrack stats:\n\tallocations:          \t0\n"),
            "{text}"
        );
        assert!(
            text.ends_with("  htrace-bpf report 'run 1.zst'\n"),
            "{text}"
        );
        assert!(!text.contains("lost"), "{text}");
    }

    #[test]
    fn pauses_and_bounds_of_false_leaks_are_told() {
        let losses = Losses {
            pauses: Pauses {
                count: 3,
                nanoseconds: 1_500_000_000,
                too_long: 1,
            },
            evidence: Evidence {
                frees: 2,
                ..Evidence::default()
            },
            ..Losses::default()
        };
        let totals = Totals {
            live_sizes: [(1000, 1), (500, 7)].into(),
            ..Totals::default()
        };
        let text = text(&totals, &closing(losses), Path::new("run.zst"));
        let bounds = "between 0.0B (0 blocks) and 1.5K (2 blocks) of the leaks may be false";
        assert!(text.contains(bounds), "{text}");
        assert!(text.contains("room: 3, 1.500 s in all"), "{text}");
        assert!(text.contains("\t1 reached --max-pause\n"), "{text}");
    }

    #[test]
    fn what_is_left_out_is_told_and_that_nothing_was_found() {
        let mut totals = Totals {
            left_out: LeftOut {
                allocations: 9,
                bytes: 1500,
                in_doubt: 2,
            },
            ..Totals::default()
        };
        let nothing_lost = closing(Losses::default());
        let said = |totals: &Totals| text(totals, &nothing_lost, Path::new("run.zst"));
        let nothing = said(&totals);
        assert!(
            nothing.contains("\nallocations left out by --functions: 9\n\t1.5K in them\n\t2 of"),
            "{nothing}"
        );
        assert!(nothing.contains("names are as reports"), "{nothing}");
        totals.counts.allocations = 1;
        totals.left_out.in_doubt = 0;
        let found = said(&totals);
        assert!(found.contains("\t1.5K in them\n\nRecorded"), "{found}");
    }

    #[test]
    fn losses_are_named() {
        let text = said(vec![("frees-ring-full", 7)]);
        assert!(text.contains("\nlost frees-ring-full: 7\n"), "{text}");
        assert!(text.contains("incomplete"), "{text}");
    }
}
