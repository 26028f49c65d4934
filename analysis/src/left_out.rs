//! What a recording of htrace-bpf leaves out because its user wanted so.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use crate::number_format::{Unit, size};

/// Distinct choices, and pauses, that are kept; a hostile file cannot fill the memory.
const MOST: usize = 256;

/// Pauses that are told one by one.
const SHOWN: usize = 3;

/// Allocations that were left out by one choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// How many, or how many calls.
    pub allocations: u64,
    /// Bytes in them, where they were counted.
    pub bytes: Option<u64>,
}

/// A time in which only frees were recorded, in milliseconds since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// Its begin.
    #[serde(rename = "from_ms")]
    pub from: u64,
    /// Its end.
    #[serde(rename = "to_ms")]
    pub to: u64,
}

/// What is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Allocations by choice: the name of an option, or `paused`.
    pub choices: BTreeMap<String, Choice>,
    /// When the recording paused, in order.
    pub pauses: Vec<Pause>,
}

/// What a choice leaves out, in words. Where it is made before the result is known, calls that
/// were going to fail count as well.
#[must_use]
pub fn words(choice: &str) -> String {
    match choice {
        "paused" => "calls left out while paused or waiting".to_owned(),
        "functions" => "allocations left out by --functions".to_owned(),
        option => format!("calls left out by --{option}"),
    }
}

impl LeftOut {
    /// Adds to what a choice leaves out.
    pub fn add(&mut self, choice: &str, allocations: u64, bytes: Option<u64>) {
        if self.choices.len() >= MOST && !self.choices.contains_key(choice) {
            return;
        }
        let known = self.choices.entry(choice.to_owned()).or_default();
        known.allocations = known.allocations.saturating_add(allocations);
        known.bytes = match (known.bytes, bytes) {
            (Some(one), Some(other)) => Some(one.saturating_add(other)),
            (one, other) => one.or(other),
        };
    }

    /// Adds a pause.
    pub fn pause(&mut self, from: u64, to: u64) {
        if self.pauses.len() < MOST {
            self.pauses.push(Pause { from, to });
        }
    }

    /// Writes what is left out, if anything.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        if *self == Self::default() {
            return Ok(());
        }
        writeln!(out, "LEFT OUT BY CHOICE")?;
        for (choice, Choice { allocations, bytes }) in &self.choices {
            write!(out, "{allocations:>12} {}", words(choice))?;
            match bytes {
                Some(bytes) => writeln!(out, ", {}", shown(*bytes))?,
                None => writeln!(out)?,
            }
        }
        self.write_pauses(out)?;
        writeln!(out)
    }

    fn write_pauses(&self, out: &mut impl Write) -> io::Result<()> {
        let Some(first) = self.pauses.first() else {
            return Ok(());
        };
        let spans = self
            .pauses
            .iter()
            .map(|pause| pause.to.saturating_sub(pause.from));
        let sum = spans.fold(0, u64::saturating_add);
        let times = self.pauses.len();
        let pauses = if times == 1 { "pause" } else { "pauses" };
        writeln!(out, "{times:>12} {pauses}, {:.2}s in all:", seconds(sum))?;
        for Pause { from, to } in self.pauses.iter().take(SHOWN) {
            writeln!(out, "{:>16.2}s to {:.2}s", seconds(*from), seconds(*to))?;
        }
        writeln!(
            out,
            "  Since {:.2}s peaks and leaks may be too low: what was allocated in a pause is unknown, \
             and a block that realloc moved then is taken for freed. Frees were recorded all the while.",
            seconds(first.from)
        )
    }
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}

fn shown(bytes: u64) -> String {
    size(i64::try_from(bytes).unwrap_or(i64::MAX), Unit::Short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(left_out: &LeftOut) -> String {
        let mut text = Vec::new();
        left_out.write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn choices_add_up_and_pauses_are_told_with_what_they_distort() {
        let mut left_out = LeftOut::default();
        assert_eq!(written(&left_out), "");
        left_out.add("functions", 2, Some(1000));
        left_out.add("functions", 1, Some(500));
        left_out.add("paused", 7, None);
        left_out.pause(1500, 2000);
        left_out.pause(3000, 3250);
        let text = written(&left_out);
        assert!(
            text.starts_with(
                "LEFT OUT BY CHOICE\n           3 allocations left out by --functions, 1.50K\n           \
                 7 calls left out while paused or waiting\n           2 pauses, 0.75s in all:\n"
            ),
            "{text}"
        );
        assert!(text.contains("\n            1.50s to 2.00s\n"), "{text}");
        assert!(text.contains("Since 1.50s peaks and leaks may be too low"));
    }

    #[test]
    fn what_a_file_can_make_us_keep_is_bounded() {
        let mut left_out = LeftOut::default();
        for number in 0..1000 {
            left_out.add(&number.to_string(), u64::MAX, Some(u64::MAX));
            left_out.pause(number, 0);
        }
        left_out.add("0", 1, Some(1));
        assert_eq!(
            (left_out.choices.len(), left_out.pauses.len()),
            (MOST, MOST)
        );
        assert!(written(&left_out).contains("256 pauses, 0.00s"));
    }
}
