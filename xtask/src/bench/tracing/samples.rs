//! What the rounds have given, and where it is kept.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::contenders::Contender;

/// A figure of a run. They are kept in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Figure {
    /// What the work is about, in its unit.
    Value,
    /// Peak of resident memory of the work, in KiB.
    TargetKib,
    /// The same of the tracer.
    TracerKib,
    /// CPU seconds of the tracer.
    TracerCpu,
    /// Bytes of the recording.
    FileBytes,
    /// Events that the tracer says it has lost.
    Lost,
    /// Milliseconds for detaching.
    Detach,
    /// Longest pause of the work, in milliseconds.
    Pause,
}

impl Figure {
    const COUNT: usize = Self::Pause as usize + 1;
}

/// What one run has given. What does not apply is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sample([f64; Figure::COUNT]);

impl Sample {
    pub(super) fn of(value: f64) -> Self {
        Self::default().with(Figure::Value, value)
    }

    pub(super) fn with(mut self, figure: Figure, value: f64) -> Self {
        if let Some(place) = self.0.get_mut(figure as usize) {
            *place = value;
        }
        self
    }

    pub(super) fn get(&self, figure: Figure) -> f64 {
        self.0.get(figure as usize).copied().unwrap_or_default()
    }
}

/// Samples of one work by contender, one a round.
#[derive(Debug, Default)]
pub(super) struct Samples(BTreeMap<Contender, Vec<Sample>>);

impl Samples {
    pub(super) fn add(&mut self, contender: Contender, sample: Sample) {
        self.0.entry(contender).or_default().push(sample);
    }

    pub(super) fn forget(&mut self, contender: Contender) {
        self.0.remove(&contender);
    }

    pub(super) fn contenders(&self) -> impl Iterator<Item = Contender> {
        self.0.keys().copied()
    }

    /// How many runs there were of the contender with the most.
    pub(super) fn rounds(&self) -> usize {
        self.0.values().map(Vec::len).max().unwrap_or(0)
    }

    /// Median of a figure.
    pub(super) fn median(&self, of: Contender, figure: Figure) -> Option<f64> {
        let samples = self.0.get(&of)?.iter();
        median(&samples.map(|sample| sample.get(figure)).collect::<Vec<_>>())
    }

    /// Least and most of a figure.
    pub(super) fn spread(&self, of: Contender, figure: Figure) -> Option<(f64, f64)> {
        let values = self.0.get(&of)?.iter().map(|sample| sample.get(figure));
        let least = values.clone().min_by(f64::total_cmp)?;
        Some((least, values.max_by(f64::total_cmp)?))
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let mut text = String::new();
        for (contender, samples) in &self.0 {
            for sample in samples {
                let figures = sample.0.map(|figure| figure.to_string());
                text.push_str(&format!("{}\t{}\n", contender.name(), figures.join("\t")));
            }
        }
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// What was kept; nothing if there is no such file.
    pub(super) fn read(path: &Path) -> Self {
        let mut samples = Self::default();
        for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
            let mut words = line.split('\t');
            let named = words.next();
            let contender = Contender::ALL
                .into_iter()
                .find(|one| named == Some(one.name()));
            let figures: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
            if let (Some(contender), Ok(figures)) = (contender, figures.try_into()) {
                samples.add(contender, Sample(figures));
            }
        }
        samples
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_back() {
        let mut samples = Samples::default();
        for value in [3.5, 1.0, 2.0] {
            let sample = Sample::of(value).with(Figure::Lost, 7.0);
            samples.add(Contender::Htrace, sample.with(Figure::Pause, 0.25));
        }
        let path = std::env::temp_dir().join(format!("xtask-samples-{}", std::process::id()));
        samples.write(&path).unwrap();
        let read = Samples::read(&path);
        std::fs::remove_file(&path).unwrap();
        let median = |figure| read.median(Contender::Htrace, figure);
        assert_eq!(median(Figure::Value), Some(2.0));
        assert_eq!(median(Figure::Lost), Some(7.0));
        assert_eq!(median(Figure::Pause), Some(0.25));
        let spread = read.spread(Contender::Htrace, Figure::Value);
        assert_eq!((spread, read.rounds()), (Some((1.0, 3.5)), 3));
        assert_eq!(read.median(Contender::Dhat, Figure::Value), None);
    }
}
