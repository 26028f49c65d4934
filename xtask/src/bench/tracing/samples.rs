//! What the rounds have given, and where it is kept.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::contenders::Contender;
use super::works::{Unit, Work};

/// What one run has given. What does not apply is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sample {
    /// Nanoseconds a pair, seconds, or milliseconds until all probes were live.
    pub(super) value: f64,
    /// Peak of resident memory of the work, in KiB.
    pub(super) target_kib: f64,
    /// The same of the tracer.
    pub(super) tracer_kib: f64,
    /// CPU seconds of the tracer.
    pub(super) tracer_cpu: f64,
    /// Bytes of the recording.
    pub(super) file_bytes: f64,
    /// Events that the tracer says it has lost.
    pub(super) lost: f64,
    /// Milliseconds for detaching.
    pub(super) detach: f64,
    /// Longest pause of the work, in milliseconds.
    pub(super) pause: f64,
}

impl Sample {
    fn fields(&self) -> [f64; 8] {
        [
            self.value,
            self.target_kib,
            self.tracer_kib,
            self.tracer_cpu,
            self.file_bytes,
            self.lost,
            self.detach,
            self.pause,
        ]
    }

    fn of(fields: [f64; 8]) -> Self {
        let [
            value,
            target_kib,
            tracer_kib,
            tracer_cpu,
            file_bytes,
            lost,
            detach,
            pause,
        ] = fields;
        Self {
            value,
            target_kib,
            tracer_kib,
            tracer_cpu,
            file_bytes,
            lost,
            detach,
            pause,
        }
    }

    pub(super) fn told(&self, work: Work) -> String {
        match work.unit() {
            Unit::Nanoseconds => format!("{:.0} ns a pair", self.value),
            Unit::Seconds => format!("{:.2} s", self.value),
            Unit::Milliseconds => format!(
                "{:.0} ms, detached in {:.0}, longest pause {:.1}",
                self.value, self.detach, self.pause
            ),
        }
    }
}

/// Samples of one work by contender, one a round.
#[derive(Debug, Default)]
pub(super) struct Samples(BTreeMap<Contender, Vec<Sample>>);

impl Samples {
    pub(super) fn add(&mut self, contender: Contender, sample: Sample) {
        self.0.entry(contender).or_default().push(sample);
    }

    pub(super) fn contenders(&self) -> impl Iterator<Item = Contender> {
        self.0.keys().copied()
    }

    /// Median of a figure.
    pub(super) fn median(&self, of: Contender, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        median(&self.0.get(&of)?.iter().map(figure).collect::<Vec<_>>())
    }

    /// Least and most of the values.
    pub(super) fn spread(&self, of: Contender) -> Option<(f64, f64)> {
        let values = self.0.get(&of)?.iter().map(|sample| sample.value);
        let least = values.clone().min_by(f64::total_cmp)?;
        Some((least, values.max_by(f64::total_cmp)?))
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let mut text = String::new();
        for (contender, samples) in &self.0 {
            for sample in samples {
                let fields = sample.fields().map(|field| field.to_string());
                text.push_str(&format!("{}\t{}\n", contender.name(), fields.join("\t")));
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
            let fields: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
            if let (Some(contender), Ok(fields)) = (contender, fields.try_into()) {
                samples.add(contender, Sample::of(fields));
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
            let sample = Sample {
                value,
                lost: 7.0,
                ..Sample::default()
            };
            samples.add(Contender::Htrace, sample);
        }
        let path = std::env::temp_dir().join(format!("xtask-samples-{}", std::process::id()));
        samples.write(&path).unwrap();
        let read = Samples::read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            read.median(Contender::Htrace, |sample| sample.value),
            Some(2.0)
        );
        assert_eq!(
            read.median(Contender::Htrace, |sample| sample.lost),
            Some(7.0)
        );
        assert_eq!(read.spread(Contender::Htrace), Some((1.0, 3.5)));
        assert_eq!(read.median(Contender::Dhat, |sample| sample.value), None);
    }
}
