//! The trace that is reported on: what heaptrack's recorder would write of a larger program.
//!
//! The program does tasks, each a fixed row of allocations with small variations. Of the blocks two
//! in five are freed at once, most of the others at the end of the task, some much later, a few
//! never. Backtraces appear as the program comes to its parts, most of them early. Sizes of the
//! tables lie between those of recordings: perl had 1,800 nodes and 700 infos in 4 million events,
//! git 2,500 and 12,500 in a quarter of a million, a C++ compiler 600,000 and 107,000 in 3 million.

use std::collections::VecDeque;
use std::io::{self, Write};

use super::random::Random;

const MODULES: u32 = 30;
const FILES: u32 = 700;
const FUNCTIONS: u32 = 6_000;
const IPS: u32 = 12_000;
const NODES: u32 = 80_000;
const INFOS: u32 = 40_000;
const TASKS: u32 = 3_000;
const SIZES: [u64; 12] = [8, 16, 24, 32, 40, 48, 64, 100, 256, 1_000, 4_096, 65_536];
/// Blocks that outlive their task, of which the oldest is freed when there are more.
const LONG_LIVED: usize = 40_000;
/// heaptrack writes time and memory use every 10 ms.
const EVENTS_A_STAMP: u64 = 3_000;

/// Writes a trace of `events` events.
///
/// # Errors
/// Those of `out`.
pub(super) fn write_trace(events: u64, out: impl Write) -> io::Result<()> {
    let mut writer = Writer {
        out,
        random: Random::new(1),
        events: 0,
        stamps: 0,
        nodes: 0,
        infos: 0,
        tasks: Vec::new(),
        long_lived: VecDeque::new(),
    };
    writer.head()?;
    while writer.events < events {
        writer.task(events)?;
    }
    writer.out.flush()
}

struct Writer<W> {
    out: W,
    random: Random,
    events: u64,
    stamps: u64,
    nodes: u32,
    infos: u32,
    /// Infos that each task allocates; a task is made when it is done first.
    tasks: Vec<Vec<u32>>,
    long_lived: VecDeque<u32>,
}

impl<W: Write> Writer<W> {
    /// Everything but backtraces and infos. In a real file this too comes bit by bit; there are
    /// few of these lines.
    fn head(&mut self) -> io::Result<()> {
        let command = "./server --workers 8 --config /etc/server.conf";
        writeln!(self.out, "v 10400 3\nX {command}\nI 1000 5e0000")?;
        for module in 0..MODULES {
            self.string(&format!("/usr/lib/x86_64-linux-gnu/libpart{module}.so.1"))?;
        }
        for file in 0..FILES {
            self.string(&format!(
                "/usr/src/server/parts/{}/unit{file}.cpp",
                file % 40
            ))?;
        }
        for function in 0..FUNCTIONS {
            let depth = self.random.below(4) as usize;
            let inner = "std::vector<".repeat(depth) + "Value" + &">".repeat(depth);
            self.string(&format!(
                "server::part{}::work{function}({inner} const&)",
                function % 90
            ))?;
        }
        for ip in 0..IPS {
            let module = self.random.below(MODULES) + 1;
            let address = 0x7f00_0000_0000 + (u64::from(module) << 24) + u64::from(ip) * 48;
            let function = MODULES + FILES + self.random.below(FUNCTIONS) + 1;
            let file = MODULES + self.random.below(FILES) + 1;
            let line = self.random.below(2_000) + 1;
            writeln!(
                self.out,
                "i {address:x} {module:x} {function:x} {file:x} {line:x}"
            )?;
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "s {:x} {text}", text.len())
    }

    /// One task, and what becomes of its blocks.
    fn task(&mut self, most_events: u64) -> io::Result<()> {
        let number = self.random.skewed(TASKS) as usize;
        if number >= self.tasks.len() {
            return self.new_task();
        }
        let infos = std::mem::take(&mut self.tasks[number]);
        let mut held = Vec::with_capacity(infos.len());
        for &info in &infos {
            if self.events >= most_events {
                break;
            }
            self.event('+', info)?;
            match self.random.below(100) {
                0..40 => self.event('-', info)?,
                40..98 => held.push(info),
                _ => self.long_lived.push_back(info),
            }
        }
        self.tasks[number] = infos;
        for info in held.into_iter().rev() {
            self.event('-', info)?;
        }
        while self.long_lived.len() > LONG_LIVED {
            self.end_of_a_long_life()?;
        }
        Ok(())
    }

    fn end_of_a_long_life(&mut self) -> io::Result<()> {
        let info = self.long_lived.pop_front();
        match info {
            // One in a hundred is never freed.
            Some(info) if !self.random.chance(1) => self.event('-', info),
            _ => Ok(()),
        }
    }

    /// A part of the program that has not run before: new backtraces and infos.
    fn new_task(&mut self) -> io::Result<()> {
        for _ in 0..NODES / TASKS {
            // A deep path now and then, else a branch of what is there.
            let parent = match self.nodes {
                0 => 0,
                last if self.random.chance(60) => last,
                nodes => self.random.below(nodes) + 1,
            };
            let ip = self.random.below(IPS) + 1;
            writeln!(self.out, "t {ip:x} {parent:x}")?;
            self.nodes += 1;
        }
        let new = INFOS / TASKS;
        for _ in 0..new {
            let size = SIZES[self.random.skewed(SIZES.len() as u32) as usize];
            let node = self.nodes - self.random.below(NODES / TASKS);
            writeln!(self.out, "a {size:x} {node:x}")?;
        }
        // Tasks share much of what they call.
        let length = 10 + self.random.skewed(120);
        let task = (0..length).map(|_| match self.random.chance(30) {
            true => self.infos + self.random.below(new),
            false => self.random.skewed(self.infos + new),
        });
        let task = task.collect();
        self.infos += new;
        self.tasks.push(task);
        Ok(())
    }

    fn event(&mut self, letter: char, info: u32) -> io::Result<()> {
        writeln!(self.out, "{letter} {info:x}")?;
        self.events += 1;
        if self.events.is_multiple_of(EVENTS_A_STAMP) {
            self.stamps += 1;
            writeln!(
                self.out,
                "c {:x}\nR {:x}",
                self.stamps * 10,
                20_000 + self.stamps / 8
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(events: u64) -> String {
        let mut text = Vec::new();
        write_trace(events, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    fn count(text: &str, letter: &str) -> u64 {
        text.lines().filter(|line| line.starts_with(letter)).count() as u64
    }

    #[test]
    fn a_trace_has_its_events_and_names_only_what_is_defined() {
        let text = written(30_000);
        let events = count(&text, "+ ") + count(&text, "- ");
        assert!((30_000..31_000).contains(&events), "{events}");
        let mut infos = 0;
        let mut live = std::collections::HashMap::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            let letter = words.next().unwrap();
            let number = |word: &str| u64::from_str_radix(word, 16).unwrap();
            match letter {
                "a" => infos += 1,
                "+" | "-" => {
                    let info = number(words.next().unwrap());
                    assert!(info < infos, "{line}");
                    let blocks = live.entry(info).or_insert(0i64);
                    *blocks += if letter == "+" { 1 } else { -1 };
                    assert!(*blocks >= 0, "{line} frees what is not there");
                }
                _ => {}
            }
        }
    }

    #[test]
    fn every_run_writes_the_same() {
        assert_eq!(written(10_000), written(10_000));
    }
}
