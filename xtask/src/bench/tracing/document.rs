//! Writes the section '## Tracing' of `docs/benchmarks.md`, and its charts, from what was kept.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::chart::{Bar, draw};
use super::contenders::Contender;
use super::goals::{added, goals};
use super::samples::{Figure, Samples};
use super::works::Work;
use super::{Place, kept, machine};

const FILE: &str = "benchmarks.md";
const SECTION: &str = "## Tracing";
/// What stands above all sections.
const HEAD: &str = "# Benchmarks\n\n\
    Written by `cargo xtask bench`; absolute figures are those of one machine, ratios hold further.\n";

/// Writes the section anew; the others stay as they are.
pub(super) fn write(docs: &Path, place: &Place) -> Result<()> {
    let all: Vec<(Work, Samples)> = Work::ALL
        .into_iter()
        .map(|work| (work, Samples::read(&kept(place, work))))
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
         what a tracer adds to the untraced time; the next column compares that with what htrace-bpf adds. The \
         stacks of the other eBPF tools follow frame pointers, which these programs do not have: they are wrong, \
         and cheaper for being short. 'Target' and 'tracer' are peaks of resident memory, the tracer's where it is \
         one process.\n"
    );
    for (work, samples) in all {
        let title = work.title();
        let rounds = match samples.rounds() {
            1 => "1 round".to_owned(),
            rounds => format!("{rounds} rounds"),
        };
        let body = match work {
            Work::Attach => attach(samples),
            _ => table(*work, samples),
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "\n### {title}\n\n{rounds}.\n\n{body}");
    }
    let _ = write!(text, "\n{}", goals(all));
    text
}

/// The columns behind the value: name, figure, what to divide it by, digits.
const COLUMNS: [(&str, Figure, f64, usize); 4] = [
    ("file, KB", Figure::FileBytes, 1000.0, 1),
    ("target, MB", Figure::TargetKib, 1024.0, 0),
    ("tracer, MB", Figure::TracerKib, 1024.0, 0),
    ("tracer's CPU, s", Figure::TracerCpu, 1.0, 2),
];

fn table(work: Work, samples: &Samples) -> String {
    let (unit, _) = work.unit().shown();
    let mut text = String::new();
    if work.pairs().is_some() {
        let _ = write!(text, "![{}]({})\n\n", work.title(), chart_name(work));
    }
    let told: Vec<_> = COLUMNS
        .into_iter()
        .filter(|(_, figure, ..)| is_known(samples, *figure))
        .collect();
    let is_compared = samples.contenders().any(|one| one == Contender::Untraced);
    let mut heads = vec!["".to_owned(), unit.to_owned()];
    if is_compared {
        heads.extend(["added", "of htrace-bpf's", "lost"].map(str::to_owned));
    }
    heads.extend(told.iter().map(|(name, ..)| (*name).to_owned()));
    let _ = writeln!(
        text,
        "{}\n|---{}|",
        row(&heads),
        "|--:".repeat(heads.len() - 1)
    );
    for contender in samples.contenders() {
        let of = |figure| samples.median(contender, figure).unwrap_or(0.0);
        let mut cells = vec![contender.name().to_owned(), value(work, samples, contender)];
        if is_compared {
            cells.extend(comparison(work, samples, contender));
        }
        let rest = told.iter();
        cells.extend(rest.map(|&(_, figure, by, digits)| unless_none(of(figure) / by, digits)));
        let _ = writeln!(text, "{}", row(&cells));
    }
    text
}

fn row(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

fn is_known(samples: &Samples, figure: Figure) -> bool {
    samples
        .contenders()
        .any(|one| samples.median(one, figure).unwrap_or(0.0) > 0.0)
}

/// Median, and spread where there is more than one round.
fn value(work: Work, samples: &Samples, contender: Contender) -> String {
    let (_, digits) = work.unit().shown();
    let median = samples.median(contender, Figure::Value).unwrap_or(0.0);
    let (least, most) = samples.spread(contender, Figure::Value).unwrap_or_default();
    if least < most {
        format!("{median:.digits$} ({least:.digits$}–{most:.digits$})")
    } else {
        format!("{median:.digits$}")
    }
}

/// What is added, how that compares, and what was lost.
fn comparison(work: Work, samples: &Samples, contender: Contender) -> [String; 3] {
    let (_, digits) = work.unit().shown();
    let own = added(samples, contender);
    let ratio = own.zip(added(samples, Contender::Htrace));
    let lost = samples.median(contender, Figure::Lost).unwrap_or(0.0);
    [
        own.map_or_else(String::new, |own| format!("{own:.digits$}")),
        ratio.map_or_else(String::new, |(own, ours)| format!("{:.2}", own / ours)),
        format!("{lost}"),
    ]
}

fn unless_none(value: f64, digits: usize) -> String {
    if value > 0.0 {
        format!("{value:.digits$}")
    } else {
        String::new()
    }
}

fn attach(samples: &Samples) -> String {
    let of = |figure| {
        let median = samples.median(Contender::Htrace, figure).unwrap_or(0.0);
        let (least, most) = samples
            .spread(Contender::Htrace, figure)
            .unwrap_or_default();
        format!("{median:.1} ms ({least:.1}–{most:.1})")
    };
    format!(
        "From the start of htrace-bpf until all probes are live {}, for detaching {}; the longest time that the \
         process, which reads the clock all the while, did not run, from before attaching until after detaching, \
         is {}.\n",
        of(Figure::Value),
        of(Figure::Detach),
        of(Figure::Pause),
    )
}

fn chart(work: Work, samples: &Samples) -> String {
    let bar = |contender: Contender| {
        let value = samples.median(contender, Figure::Value)?;
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
}
