//! What is asked for, as ratios of what was measured.

use std::fmt::Write as _;

use super::contenders::Contender;
use super::samples::{Figure, Samples};
use super::works::Work;

/// What a tracer adds to the untraced work.
pub(super) fn added(samples: &Samples, contender: Contender) -> Option<f64> {
    let value = |of| samples.median(of, Figure::Value);
    (contender != Contender::Untraced).then_some(())?;
    Some(value(contender)? - value(Contender::Untraced)?)
}

/// All that was measured, by work.
struct Measured<'a>(&'a [(Work, Samples)]);

impl Measured<'_> {
    fn of(&self, work: Work) -> Option<&Samples> {
        let found = self.0.iter().find(|(one, _)| *one == work);
        found.map(|(_, samples)| samples)
    }

    fn of_htrace(&self, work: Work, figure: Figure) -> Option<f64> {
        self.of(work)?.median(Contender::Htrace, figure)
    }

    /// Time that htrace-bpf adds to a work, by what another tracer does.
    fn added(&self, work: Work, other: Contender) -> Option<f64> {
        let samples = self.of(work)?;
        Some(added(samples, Contender::Htrace)? / added(samples, other)?)
    }

    fn file_size(&self, work: Work) -> Option<f64> {
        let samples = self.of(work)?;
        let size = |of| {
            let size = samples.median(of, Figure::FileBytes)?;
            (size > 0.0).then_some(size)
        };
        Some(size(Contender::Htrace)? / size(Contender::Heaptrack)?)
    }

    /// The most that htrace-bpf has lost in any run.
    fn lost(&self) -> f64 {
        let of = |(_, samples): &(Work, Samples)| samples.spread(Contender::Htrace, Figure::Lost);
        let most = self.0.iter().filter_map(of).map(|(_, most)| most);
        most.fold(0.0, f64::max)
    }
}

/// A line: what, how much it is, how much it may be, and how many digits are worth telling.
type Goal = (String, Option<f64>, f64, usize);

/// A table of what was measured.
pub(super) fn goals(all: &[(Work, Samples)]) -> String {
    let mut text = String::from("### Goals\n\n| | measured | at most | |\n|---|--:|--:|---|\n");
    let all = Measured(all);
    let lines = times(&all).into_iter().chain(sizes(&all)).chain(rest(&all));
    for (name, measured, most, digits) in lines {
        if let Some(measured) = measured {
            let verdict = if measured <= most { "met" } else { "not met" };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {name} | {measured:.digits$} | {most} | {verdict} |"
            );
        }
    }
    text
}

const PEERS: [Contender; 3] = [
    Contender::Bpftrace,
    Contender::BccMemleak,
    Contender::LibbpfMemleak,
];

fn times(all: &Measured<'_>) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (work, most) in [(Work::Loop, 0.33), (Work::Deep, 0.5)] {
        for peer in PEERS {
            let name = format!("{}: time added, against {peer}", work.title());
            goals.push((name, all.added(work, peer), most, 2));
        }
    }
    let name = "Tight loop: time added, against an empty probe on malloc";
    let empty = all.added(Work::Loop, Contender::EmptyProbe);
    goals.push((name.to_owned(), empty, 3.5, 2));
    goals.push(("The same, stretched".to_owned(), empty, 2.5, 2));
    let against_heaptrack = [
        (Work::DeepTwo, "2 threads"),
        (Work::Deep, "1 thread, stretched"),
    ];
    for (work, name) in against_heaptrack {
        let name = format!("33 frames, {name}: time added, against heaptrack");
        goals.push((name, all.added(work, Contender::Heaptrack), 1.0, 2));
    }
    goals
}

fn sizes(all: &Measured<'_>) -> Vec<Goal> {
    let works = Work::ALL
        .into_iter()
        .filter(|work| !matches!(work, Work::Start));
    let goal = |work: Work| {
        let name = format!("{}: file size, against heaptrack's", work.title());
        (name, all.file_size(work), 1.0, 2)
    };
    works.map(goal).collect()
}

fn rest(all: &Measured<'_>) -> Vec<Goal> {
    let recorder = all.of_htrace(Work::Recorder, Figure::Value);
    let attach = all.of_htrace(Work::Attach, Figure::Value);
    let pause = all.of_htrace(Work::Attach, Figure::Pause);
    vec![
        ("Recorder's CPU an event, µs".to_owned(), recorder, 0.4, 2),
        (
            "Events lost, in any run".to_owned(),
            Some(all.lost()),
            0.0,
            0,
        ),
        ("Attaching, ms".to_owned(), attach, 300.0, 0),
        ("Pause of the target, ms".to_owned(), pause, 30.0, 1),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::samples::Sample;
    use super::*;

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
            samples.add(contender, Sample::of(value));
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
