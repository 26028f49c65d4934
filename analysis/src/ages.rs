//! How old leaked memory is.
//!
//! A file says what was allocated when, but blocks of one size and backtrace cannot be told apart.
//! Where none of them was ever freed, the age is certain; else the latest are taken to be freed
//! first, and the age is given as assumed.

use std::io::{self, Write};

use htrace_trace_format::AllocationInfoIndex;

use crate::accounting::Info;
use crate::number_format::{Unit, size};
use crate::observer::{Observer, Snapshot};

/// Upper ends of age classes in milliseconds, and their names.
const CLASSES: [(i64, &str); 6] = [
    (100, "up to 0.1 s"),
    (1_000, "up to 1 s"),
    (10_000, "up to 10 s"),
    (60_000, "up to 1 min"),
    (600_000, "up to 10 min"),
    (i64::MAX, "older"),
];

/// Blocks allocated at one time.
#[derive(Clone, Copy, Debug)]
struct Run {
    time: i64,
    count: u64,
}

/// The live blocks of one info.
#[derive(Clone, Debug, Default)]
struct Blocks {
    runs: Vec<Run>,
    was_freed: bool,
}

/// Remembers when live blocks were allocated.
#[derive(Clone, Debug, Default)]
pub struct Ages {
    blocks: Vec<Blocks>,
    runtime: i64,
}

/// Leaked bytes of one age class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgeClass {
    /// Bytes whose age is certain.
    pub certain: u64,
    /// Bytes whose age rests on the assumption that the latest block is freed first.
    pub assumed: u64,
}

impl Ages {
    /// Leaked bytes by age class, youngest first.
    #[must_use]
    pub fn classes(&self, infos: &[Info]) -> [(&'static str, AgeClass); CLASSES.len()] {
        let mut classes = CLASSES.map(|(_, name)| (name, AgeClass::default()));
        for (blocks, info) in self.blocks.iter().zip(infos) {
            for run in &blocks.runs {
                let age = self.runtime.saturating_sub(run.time);
                let class = CLASSES.iter().position(|&(end, _)| age <= end);
                let Some((_, class)) = class.and_then(|at| classes.get_mut(at)) else {
                    continue;
                };
                let bytes = info.size.saturating_mul(run.count);
                let sum = if blocks.was_freed {
                    &mut class.assumed
                } else {
                    &mut class.certain
                };
                *sum = sum.saturating_add(bytes);
            }
        }
        classes
    }

    /// Writes the classes that hold anything.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, infos: &[Info], out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "LEAKS BY AGE AT THE END")?;
        writeln!(out, "{:<14} {:>12} {:>12}", "age", "certain", "assumed")?;
        let shown = |bytes: u64| size(i64::try_from(bytes).unwrap_or(i64::MAX), Unit::Short);
        for (name, class) in self.classes(infos) {
            if class != AgeClass::default() {
                writeln!(
                    out,
                    "{name:<14} {:>12} {:>12}",
                    shown(class.certain),
                    shown(class.assumed)
                )?;
            }
        }
        writeln!(out)
    }
}

impl Observer for Ages {
    fn allocated(&mut self, index: AllocationInfoIndex, so_far: Snapshot<'_>) {
        let position = index.position();
        if position >= self.blocks.len() {
            self.blocks.resize_with(position + 1, Blocks::default);
        }
        let runs = &mut self.blocks[position].runs;
        match runs.last_mut() {
            Some(run) if run.time == so_far.now => run.count += 1,
            _ => runs.push(Run {
                time: so_far.now,
                count: 1,
            }),
        }
    }

    fn freed(&mut self, index: AllocationInfoIndex, _so_far: Snapshot<'_>) {
        let Some(blocks) = self.blocks.get_mut(index.position()) else {
            return;
        };
        blocks.was_freed = true;
        if let Some(run) = blocks.runs.last_mut() {
            run.count -= 1;
            if run.count == 0 {
                blocks.runs.pop();
            }
        }
    }

    fn ended(&mut self, so_far: Snapshot<'_>) {
        self.runtime = so_far.now;
    }
}
