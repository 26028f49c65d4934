//! Rounds that were measured, kept in a file: a whole benchmark may be made of several runs of the
//! task, each of a few rounds at a quiet time.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::contenders::{Contender, Run};
use super::table::Round;

/// The rounds in `file`; none where it does not exist.
///
/// # Errors
/// When the file cannot be read or holds anything else.
pub(super) fn load(file: &Path) -> Result<Vec<Round>> {
    if !file.exists() {
        return Ok(Vec::new());
    }
    let name = || format!("reading {}", file.display());
    let text = std::fs::read_to_string(file).with_context(name)?;
    parse(&text).with_context(name)
}

/// Writes `rounds` to `file`.
///
/// # Errors
/// Those of writing.
pub(super) fn save(rounds: &[Round], file: &Path) -> Result<()> {
    std::fs::write(file, render(rounds)).with_context(|| format!("writing {}", file.display()))
}

/// A line for each round; of each contender the seconds and the KiB.
fn render(rounds: &[Round]) -> String {
    let words = |round: &Round| {
        let runs = round
            .iter()
            .map(|run| format!("{} {}", run.seconds, run.peak));
        runs.collect::<Vec<_>>().join(" ") + "\n"
    };
    rounds.iter().map(words).collect()
}

fn parse(text: &str) -> Result<Vec<Round>> {
    let round = |line: &str| -> Option<Round> {
        let numbers = line.split(' ').map(|word| word.parse().ok());
        let numbers = numbers.collect::<Option<Vec<f64>>>()?;
        let (pairs, rest) = numbers.as_chunks();
        let runs = pairs.iter().map(|&[seconds, peak]| Run { seconds, peak });
        (rest.is_empty() && pairs.len() == Contender::ALL.len()).then(|| runs.collect())
    };
    let rounds = text.lines().map(round).collect::<Option<_>>();
    rounds.context("it does not hold rounds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_come_back_as_they_were() {
        let run = |seconds, peak| Run { seconds, peak };
        let first = vec![run(1.25, 60_000.0), run(0.1, 14_000.0), run(0.07, 6_000.0)];
        let second = vec![run(1.5, 60_004.0), run(0.2, 14_004.0), run(0.08, 6_004.0)];
        let rounds = [first, second];
        assert_eq!(parse(&render(&rounds)).unwrap(), rounds);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["1 2 3 4\n", "1 2 3 4 5 6 7\n", "1 2 3 4 5 x\n", "\n"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(load(Path::new("/nonexistent")).unwrap().is_empty());
    }
}
