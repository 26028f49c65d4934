//! Writes the section '## Tracing' of `docs/benchmarks.md`, and its charts, from what was kept.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::chart::{Bar, draw};
use super::contenders::Contender;
use super::samples::{Sample, Samples};
use super::works::{Unit, Work};
use super::{Place, machine};

const FILE: &str = "benchmarks.md";
const SECTION: &str = "## Tracing";
/// What stands above all sections.
const HEAD: &str = "# Benchmarks\n\n\
    Written by `cargo xtask bench`; absolute figures are those of one machine, ratios hold further.\n";

/// Writes the section anew; the others stay as they are.
pub(super) fn write(docs: &Path, place: &Place) -> Result<()> {
    let all: Vec<(Work, Samples)> = Work::ALL
        .into_iter()
        .map(|work| (work, Samples::read(&place.samples(work))))
        .filter(|(_, samples)| samples.contenders().next().is_some())
        .collect();
    for (work, samples) in all.iter().filter(|(work, _)| work.pairs().is_some()) {
        let file = docs.join(chart_name(*work));
        std::fs::write(&file, chart(*work, samples)).context("writing a chart")?;
    }
    let file = docs.join(FILE);
    let before = std::fs::read_to_string(&file).unwrap_or_else(|_| HEAD.to_owned());
    let text = with_section(&before, &section(&machine()?, &all));
    std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
}

fn chart_name(work: Work) -> String {
    format!("bench-tracing-{}.svg", work.name())
}

/// The text with the section in place of the one of before, or at its end.
fn with_section(text: &str, section: &str) -> String {
    let Some(start) = text.find(SECTION) else {
        return format!("{}\n{section}", text.trim_end().to_owned() + "\n");
    };
    let (before, old) = text.split_at(start);
    let after = old[SECTION.len()..]
        .find("\n## ")
        .map(|end| &old[SECTION.len() + end..]);
    format!("{before}{section}{}", after.unwrap_or_default())
}

fn section(machine: &str, all: &[(Work, Samples)]) -> String {
    let mut text = format!(
        "{SECTION}\n\nOn {machine}\n\nMedians over the rounds, in brackets the least and the most. 'Added' is \
         what a tracer adds to the untraced time; its last column compares that with what htrace-bpf adds. The \
         stacks of the other eBPF tools follow frame pointers, which these programs do not have: they are wrong, \
         and cheaper for being short.\n"
    );
    for (work, samples) in all {
        // Writing to a string cannot fail.
        let _ = match work.unit() {
            Unit::Milliseconds => write!(text, "\n{}", attach(samples)),
            _ => write!(text, "\n{}", table(*work, samples)),
        };
    }
    let _ = write!(text, "\n{}", goals(all));
    text
}

fn table(work: Work, samples: &Samples) -> String {
    let (unit, digits) = match work.unit() {
        Unit::Nanoseconds => ("ns a pair", 0),
        _ => ("s", 2),
    };
    let mut text = format!("### {}\n\n", work.title());
    if work.pairs().is_some() {
        let _ = write!(text, "![{}]({})\n\n", work.title(), chart_name(work));
    }
    let _ = writeln!(
        text,
        "| | {unit} | added | of htrace-bpf's | lost | file, KB | target, MB | tracer, MB | tracer's CPU, s |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|"
    );
    for contender in samples.contenders() {
        let of = |figure: fn(&Sample) -> f64| samples.median(contender, figure).unwrap_or(0.0);
        let (least, most) = samples.spread(contender).unwrap_or_default();
        let own = added(samples, contender);
        let ratio = own.zip(added(samples, Contender::Htrace));
        let _ = writeln!(
            text,
            "| {contender} | {:.digits$} ({least:.digits$}–{most:.digits$}) | {} | {} | {} | {} | {} | {} | {} |",
            of(|sample| sample.value),
            own.map_or_else(String::new, |own| format!("{own:.digits$}")),
            ratio.map_or_else(String::new, |(own, ours)| format!("{:.2}", own / ours)),
            of(|sample| sample.lost),
            unless_none(of(|sample| sample.file_bytes) / 1000.0, 1),
            unless_none(of(|sample| sample.target_kib) / 1024.0, 0),
            unless_none(of(|sample| sample.tracer_kib) / 1024.0, 0),
            unless_none(of(|sample| sample.tracer_cpu), 2),
        );
    }
    text
}

fn unless_none(value: f64, digits: usize) -> String {
    if value > 0.0 {
        format!("{value:.digits$}")
    } else {
        String::new()
    }
}

fn attach(samples: &Samples) -> String {
    let of = |figure: fn(&Sample) -> f64| samples.median(Contender::Htrace, figure).unwrap_or(0.0);
    format!(
        "### {}\n\nUntil all probes are live {:.0} ms, for detaching {:.0} ms; the longest time that a program which \
         reads the clock all the while did not run, from before attaching until after detaching, is {:.1} ms.\n",
        Work::Attach.title(),
        of(|sample| sample.value),
        of(|sample| sample.detach),
        of(|sample| sample.pause),
    )
}

/// What a tracer adds to the untraced work.
fn added(samples: &Samples, contender: Contender) -> Option<f64> {
    let value = |of| samples.median(of, |sample| sample.value);
    (contender != Contender::Untraced).then_some(())?;
    Some(value(contender)? - value(Contender::Untraced)?)
}

fn chart(work: Work, samples: &Samples) -> String {
    let bar = |contender: Contender| {
        let value = samples.median(contender, |sample| sample.value)?;
        Some(Bar {
            name: contender.name().to_owned(),
            value,
            label: format!("{value:.0} ns"),
            is_ours: contender.is_htrace(),
        })
    };
    let mut bars: Vec<Bar> = samples.contenders().filter_map(bar).collect();
    bars.sort_by(|one, other| one.value.total_cmp(&other.value));
    draw(&format!("{}: ns a pair", work.title()), &bars)
}

/// What is asked for, as ratios of what was measured.
fn goals(all: &[(Work, Samples)]) -> String {
    let mut text = String::from("### Goals\n\n| | measured | at most | |\n|---|--:|--:|---|\n");
    let mut row = |name: String, measured: Option<f64>, most: f64, digits: usize| {
        if let Some(measured) = measured {
            let verdict = if measured <= most { "met" } else { "not met" };
            let _ = writeln!(
                text,
                "| {name} | {measured:.digits$} | {most} | {verdict} |"
            );
        }
    };
    let of = |work: Work| {
        all.iter()
            .find(|(one, _)| *one == work)
            .map(|(_, samples)| samples)
    };
    const PEERS: [Contender; 3] = [
        Contender::Bpftrace,
        Contender::BccMemleak,
        Contender::LibbpfMemleak,
    ];
    for (work, most) in [(Work::Loop, 0.33), (Work::Deep, 0.5)] {
        for peer in PEERS {
            let ratio = of(work).and_then(|samples| {
                Some(added(samples, Contender::Htrace)? / added(samples, peer)?)
            });
            row(
                format!("{}: time added, against {peer}", work.title()),
                ratio,
                most,
                2,
            );
        }
    }
    let empty = of(Work::Loop).and_then(|samples| {
        Some(added(samples, Contender::Htrace)? / added(samples, Contender::EmptyProbe)?)
    });
    row(
        "Tight loop: time added, against an empty probe on malloc".to_owned(),
        empty,
        3.5,
        2,
    );
    row("The same, stretched".to_owned(), empty, 2.5, 2);
    for (work, name) in [
        (Work::DeepTwo, "2 threads"),
        (Work::Deep, "1 thread, stretched"),
    ] {
        let ratio = of(work).and_then(|samples| {
            Some(added(samples, Contender::Htrace)? / added(samples, Contender::Heaptrack)?)
        });
        row(
            format!("33 frames, {name}: time added, against heaptrack"),
            ratio,
            1.0,
            2,
        );
    }
    let recorder = of(Work::Loop).and_then(|samples| {
        // An allocation and a free are two events; loading the programs is part of the time.
        const EVENTS: f64 = 800_000.0;
        Some(samples.median(Contender::Htrace, |sample| sample.tracer_cpu)? * 1e6 / EVENTS)
    });
    row(
        "Tight loop: recorder's CPU an event, start-up included, µs".to_owned(),
        recorder,
        0.4,
        2,
    );
    for work in [
        Work::Loop,
        Work::Deep,
        Work::DeepTwo,
        Work::Python,
        Work::Sqlite,
        Work::Cc1plus,
    ] {
        let ratio = of(work).and_then(|samples| {
            let size = |of| samples.median(of, |sample| sample.file_bytes);
            Some(size(Contender::Htrace)? / size(Contender::Heaptrack)?)
        });
        row(
            format!("{}: file size, against heaptrack's", work.title()),
            ratio,
            1.0,
            2,
        );
    }
    let lost: f64 = all
        .iter()
        .filter_map(|(_, samples)| samples.median(Contender::Htrace, |sample| sample.lost))
        .sum();
    row("Events lost, everywhere".to_owned(), Some(lost), 0.0, 0);
    let attach = of(Work::Attach);
    let of_attach = |figure: fn(&Sample) -> f64| attach?.median(Contender::Htrace, figure);
    row(
        "Attaching, ms".to_owned(),
        of_attach(|sample| sample.value),
        300.0,
        0,
    );
    row(
        "Pause of the target, ms".to_owned(),
        of_attach(|sample| sample.pause),
        30.0,
        1,
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_the_others_stay() {
        let first = with_section(HEAD, "## Tracing\n\nold\n");
        let with_other = format!("{first}\n## Report\n\nfigures\n");
        let second = with_section(&with_other, "## Tracing\n\nnew\n");
        assert_eq!(
            second,
            format!("{HEAD}\n## Tracing\n\nnew\n\n## Report\n\nfigures\n")
        );
    }

    #[test]
    fn goals_that_were_measured_are_judged() {
        let mut samples = Samples::default();
        let values = [
            (Contender::Untraced, 10.0),
            (Contender::Htrace, 1010.0),
            (Contender::EmptyProbe, 310.0),
            (Contender::Bpftrace, 2010.0),
        ];
        for (contender, value) in values {
            samples.add(
                contender,
                Sample {
                    value,
                    ..Sample::default()
                },
            );
        }
        let text = goals(&[(Work::Loop, samples)]);
        assert!(
            text.contains("against bpftrace, with stacks | 0.50 | 0.33 | not met"),
            "{text}"
        );
        assert!(
            text.contains("empty probe on malloc | 3.33 | 3.5 | met"),
            "{text}"
        );
        assert!(!text.contains("memleak"), "{text}");
    }
}
