//! Random traces and random command lines for comparisons with heaptrack_print.
//!
//! Traces avoid only what makes heaptrack_print crash or hang: frees of infos that do not exist,
//! and cycles in the trace tree.

use super::Random;
use std::fmt::Write as _;

const NAMES: [&str; 16] = [
    "main",
    "__libc_start_main",
    "operator new(unsigned long)",
    "operator new[](unsigned long)",
    "work<int>(std::vector<Q<x>>)",
    "operator<< <char>(std::ostream&)",
    "P::operator->()",
    "tzset_internal",
    "g_main_context_new",
    "/usr/lib/libfoo.so",
    "src/a b/c.cpp",
    "x.c",
    "fn1",
    "foo",
    "fn11",
    "leak me not",
];

/// What a generated trace is like.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Bad lines are mixed in.
    pub(crate) malformed: bool,
    /// File version 0, 1, 2 or 3.
    pub(crate) version: u64,
    /// Every trace has a node, which `--diff` needs of its base.
    pub(crate) known_traces: bool,
}

struct Writer<'a> {
    random: &'a mut Random,
    shape: Shape,
    text: String,
    strings: u64,
    ips: u64,
    nodes: u64,
    infos: u64,
    time: u64,
}

/// A random trace.
pub(crate) fn trace(random: &mut Random, shape: Shape) -> String {
    let mut writer = Writer {
        random,
        shape,
        text: String::new(),
        strings: 0,
        ips: 0,
        nodes: 0,
        infos: 0,
        time: 0,
    };
    writer.run();
    writer.text
}

impl Writer<'_> {
    fn run(&mut self) {
        match self.shape.version {
            0 => {}
            1 => self.line("v 10200".into()),
            version => self.line(format!("v 10400 {version}")),
        }
        if !self.random.once_in(6) {
            self.line("X ./prog --arg".into());
        }
        if !self.random.once_in(6) {
            self.line("I 1000 59743".into());
        }
        self.maybe_attached();
        let lines = 5 + self.random.below(200);
        for _ in 0..lines {
            self.any_line();
        }
    }

    fn maybe_attached(&mut self) {
        if self.random.once_in(8) {
            self.line("A".into());
        }
        while self.random.once_in(4) {
            let line = *self
                .random
                .pick(&["S leak:fn1", "S leak:^foo$", "S b leak:fn1", "S # c"]);
            self.line(line.into());
        }
    }

    fn line(&mut self, line: String) {
        self.text.push_str(&line);
        self.text.push('\n');
    }

    fn any_line(&mut self) {
        match self.random.below(20) {
            0 | 1 => self.string(),
            2 | 3 => self.ip(),
            4 | 5 => self.node(),
            6 | 7 => self.info(),
            8..=12 => self.allocation(),
            13..=16 => self.free(),
            17 => self.timestamp(),
            18 => {
                let pages = self.random.below(5000);
                self.line(format!("R {pages:x}"));
            }
            _ => self.oddity(),
        }
    }

    fn string(&mut self) {
        let name = *self.random.pick(&NAMES);
        self.strings += 1;
        if self.shape.version >= 3 {
            self.line(format!("s {:x} {name}", name.len()));
        } else {
            self.line(format!("s {name}"));
        }
    }

    /// An index into a table, mostly a good one.
    fn index(&mut self, known: u64) -> u64 {
        if self.shape.malformed && self.random.once_in(30) {
            return known + 1 + self.random.below(3);
        }
        self.random.below(known + 1)
    }

    fn ip(&mut self) {
        self.ips += 1;
        let mut line = format!(
            "i {:x} {:x}",
            self.random.below(1 << 47),
            self.index(self.strings)
        );
        for _ in 0..self.random.below(4) {
            let (function, file) = (self.index(self.strings), self.index(self.strings));
            write!(line, " {function:x} {file:x} {:x}", self.random.below(500)).unwrap();
        }
        if self.random.once_in(5) {
            let function = self.index(self.strings);
            write!(line, " {function:x}").unwrap();
        }
        self.line(line);
    }

    fn node(&mut self) {
        let ip = self.index(self.ips);
        let parent = self.random.below(self.nodes + 1);
        self.nodes += 1;
        self.line(format!("t {ip:x} {parent:x}"));
    }

    fn trace_index(&mut self) -> u64 {
        if self.shape.known_traces {
            return if self.nodes == 0 {
                0
            } else {
                1 + self.random.below(self.nodes)
            };
        }
        self.random.below(self.nodes + 1)
    }

    fn size(&mut self) -> u64 {
        let sizes = [
            0,
            1,
            8,
            16,
            24,
            100,
            999,
            1000,
            1001,
            4096,
            100_000,
            5_000_000_000,
        ];
        *self.random.pick(&sizes)
    }

    fn info(&mut self) {
        let (size, trace) = (self.size(), self.trace_index());
        if self.shape.version == 0 || (self.shape.known_traces && trace == 0) {
            return;
        }
        self.infos += 1;
        self.line(format!("a {size:x} {trace:x}"));
    }

    fn allocation(&mut self) {
        if self.shape.version == 0 {
            let (size, trace) = (self.size(), self.trace_index());
            if self.shape.known_traces && trace == 0 {
                return;
            }
            let pointer = self.random.below(12);
            return self.line(format!("+ {size:x} {trace:x} {pointer:x}"));
        }
        if self.shape.malformed && self.random.once_in(25) {
            let beyond = self.infos + self.random.below(3);
            return self.line(format!("+ {beyond:x}"));
        }
        if self.infos > 0 {
            let info = self.random.below(self.infos);
            self.line(format!("+ {info:x}"));
        }
    }

    fn free(&mut self) {
        if self.shape.version == 0 {
            let pointer = self.random.below(12);
            return self.line(format!("- {pointer:x}"));
        }
        if self.infos > 0 {
            let info = self.random.below(self.infos);
            self.line(format!("- {info:x}"));
        }
    }

    fn timestamp(&mut self) {
        if self.shape.malformed && self.random.once_in(6) {
            let earlier = self.time / 2;
            return self.line(format!("c {earlier:x}"));
        }
        self.time += self.random.below(40);
        self.line(format!("c {:x}", self.time));
    }

    fn oddity(&mut self) {
        if !self.shape.malformed {
            return self.line("# a comment".into());
        }
        let lines = [
            "",
            "+",
            "-",
            "- ",
            "c",
            "c Z",
            "R",
            "R 1X",
            "a",
            "a 5",
            "a 5 G",
            "z nonsense",
            "t",
            "i",
            "i Q 1 2",
            "i 5 1 2 3",
            "s",
            "s 5",
            "+ G",
            "- G",
            "I",
            "I 2000 X",
            "? ?",
            "A",
        ];
        let line = *self.random.pick(&lines);
        // A string of one byte in old files kills heaptrack_print.
        if line == "s" && self.shape.version < 3 {
            return;
        }
        match line.as_bytes().first() {
            Some(b's') => self.strings += 1,
            Some(b'i') => self.ips += 1,
            Some(b't') => self.nodes += 1,
            _ => {}
        }
        self.line(line.into());
    }
}

/// Random options of heaptrack_print.
pub(crate) fn options(random: &mut Random) -> Vec<String> {
    let mut words = Vec::new();
    let flags = ["t", "m", "p", "a", "T", "l", "-print-suppressions="];
    for flag in flags {
        if random.once_in(2) {
            words.push(format!("-{flag}{}", random.below(2)));
        }
    }
    for limit in ["n", "s"] {
        if random.once_in(2) {
            words.push(format!("-{limit}{}", random.pick(&[0, 1, 2, 3, 50])));
        }
    }
    let rare = [
        "--disable-embedded-suppressions",
        "--disable-builtin-suppressions",
        "--filter-bt-function=fn1",
        "--filter-bt-function=main",
        "--suppressions=supp.txt",
        "--massif-threshold=0",
        "--massif-threshold=12.5",
        "--massif-detailed-freq=0",
        "--massif-detailed-freq=3",
    ];
    for word in rare {
        let name = word.split('=').next().unwrap();
        if random.once_in(5) && !words.iter().any(|known| known.starts_with(name)) {
            words.push(word.into());
        }
    }
    let kinds = ["allocations", "temporary", "leaked", "peak"];
    words.push(format!("--flamegraph-cost-type={}", random.pick(&kinds)));
    words.extend(["-Fflame.out", "-Hhist.out", "-Mmassif.out"].map(String::from));
    words
}
