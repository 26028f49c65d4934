//! An independent, naive reader of heaptrack files (format version 3): it
//! unpacks the file, replays `a`, `+` and `-`, and can name stacks.
//!
//! It shares no code with the project's own reader, on purpose, and is strict:
//! whatever a well-formed file may not contain panics with the line number.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::inclusive::Cost;

/// One instruction pointer with its innermost function.
#[derive(Debug, Clone, Default)]
pub struct Ip {
    /// The address in the target.
    pub address: u64,
    /// Path of the module, or empty.
    pub module: String,
    /// Function, or empty.
    pub function: String,
    /// Source file, or empty.
    pub file: String,
    /// Line in the source file, or 0.
    pub line: i64,
    /// Functions that this one was inlined into, from inner to outer.
    pub inlined_into: Vec<String>,
}

/// One allocation info: a size and a trace, with what happened to it.
#[derive(Debug, Clone)]
struct Info {
    size: i64,
    trace: usize,
    allocations: i64,
    live: i64,
}

/// A file, replayed to its end. All sizes are bytes.
#[derive(Debug, Default)]
pub struct Trace {
    /// heaptrack's version as the file states it, `0x10400` for 1.4.0.
    pub version: i64,
    /// The command line of the target.
    pub command: String,
    /// The file says that it was recorded by attaching.
    pub attached: bool,
    /// The compressed stream ends in the middle of a frame.
    pub truncated: bool,
    /// Allocations.
    pub calls: i64,
    /// Deallocations.
    pub frees: i64,
    /// Highest total of live bytes.
    pub peak: i64,
    /// Live bytes at the end.
    pub leaked: i64,
    /// Sizes in the order of events; those of frees are negative, less one.
    pub events: Vec<i64>,
    /// Time stamps, in milliseconds.
    pub stamps: Vec<i64>,
    /// Resident set sizes, in pages.
    pub rss: Vec<i64>,
    /// Comment lines without their `#`.
    pub comments: Vec<String>,
    /// A file of another recorder, which may use info 0.
    foreign: bool,
    strings: Vec<String>,
    ips: Vec<Ip>,
    traces: Vec<(usize, usize)>,
    infos: Vec<Info>,
    used_infos: usize,
}

impl Trace {
    /// Unpacks and replays a `.zst` file, line by line: it may be too large for memory.
    ///
    /// # Panics
    /// When the file cannot be opened or is not well-formed.
    pub fn read(path: &Path) -> Self {
        Self::default().read_into(path)
    }

    /// As [`Trace::read`], for a file of heaptrack's recorder.
    ///
    /// # Panics
    /// As [`Trace::read`].
    pub fn read_foreign(path: &Path) -> Self {
        let foreign = Self {
            foreign: true,
            ..Self::default()
        };
        foreign.read_into(path)
    }

    fn read_into(self, path: &Path) -> Self {
        let packed = File::open(path).unwrap_or_else(|e| panic!("cannot read {path:?}: {e}"));
        let decoder = zstd::stream::read::Decoder::new(packed).expect("a zstd decoder");
        self.replay_into(BufReader::with_capacity(1 << 20, decoder))
    }

    /// Replays text. Where it cannot be read on, it was cut, and the last line, which
    /// may be incomplete, is left out if it has no line end.
    fn replay_into(mut self, mut text: impl BufRead) -> Self {
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = text.read_until(b'\n', &mut line);
            self.truncated |= read.is_err();
            match line.split_last() {
                Some((b'\n', line)) => self.record(number, line),
                Some(_) => assert!(self.truncated, "the last line has no end"),
                None => {}
            }
            if !matches!(read, Ok(1..)) {
                break;
            }
        }
        self
    }

    fn record(&mut self, number: usize, line: &[u8]) {
        let Some((&kind, rest)) = line.split_first() else {
            return;
        };
        let text = || String::from_utf8_lossy(rest.strip_prefix(b" ").unwrap_or(rest)).into_owned();
        if number == 1 {
            assert_eq!(kind, b'v', "line 1 is not the version");
        }
        match kind {
            b'#' => self.comments.push(text().trim().to_owned()),
            b'X' => self.command = text(),
            b'S' => {}
            b'A' => self.attached = true,
            b's' => self.strings.push(sized_string(number, rest)),
            _ => self.numbers(number, kind, &hex_fields(number, rest)),
        }
    }

    fn numbers(&mut self, number: usize, kind: u8, fields: &[i64]) {
        match (kind, fields) {
            (b'v', &[version, 3]) => self.version = version,
            (b'I', &[_page_size, _pages]) => {}
            (b'c', &[stamp]) => {
                assert!(
                    self.stamps.last() <= Some(&stamp),
                    "line {number}: time runs backwards"
                );
                self.stamps.push(stamp);
            }
            (b'R', &[pages]) => self.rss.push(pages),
            (b'i', _) => self.ip(number, fields),
            (b't', &[ip, parent]) => {
                index(number, ip, self.ips.len());
                index(number, parent, self.traces.len());
                self.traces.push((ip as usize, parent as usize));
            }
            (b'a', &[size, trace]) => {
                index(number, trace, self.traces.len());
                self.infos.push(Info {
                    size,
                    trace: trace as usize,
                    allocations: 0,
                    live: 0,
                });
            }
            (b'+', &[info]) => self.allocate(number, info as usize),
            (b'-', &[info]) => self.free(number, info as usize),
            _ => panic!(
                "line {number}: unknown record {} {fields:x?}",
                char::from(kind)
            ),
        }
    }

    fn ip(&mut self, number: usize, fields: &[i64]) {
        let string = |field: Option<&i64>| {
            let wanted = field.copied().unwrap_or(0);
            index(number, wanted, self.strings.len());
            if wanted > 0 {
                self.strings[wanted as usize - 1].clone()
            } else {
                String::new()
            }
        };
        let inlined = fields.get(5..).unwrap_or(&[]);
        assert!(
            inlined.len().is_multiple_of(3),
            "line {number}: incomplete inlined frame"
        );
        let ip = Ip {
            address: fields.first().copied().unwrap_or(0).cast_unsigned(),
            module: string(fields.get(1)),
            function: string(fields.get(2)),
            file: string(fields.get(3)),
            line: fields.get(4).copied().unwrap_or(0),
            inlined_into: inlined
                .chunks(3)
                .map(|frame| string(frame.first()))
                .collect(),
        };
        self.ips.push(ip);
    }

    fn allocate(&mut self, number: usize, info: usize) {
        assert!(
            info < self.infos.len(),
            "line {number}: unknown info {info}"
        );
        // heaptrack_gui 1.4 crashes on a file that uses infos for the first time in another order.
        assert!(
            info <= self.used_infos || self.foreign,
            "line {number}: info {info} is used before info {}",
            self.used_infos
        );
        // heaptrack_print 1.4 takes a free of info 0 for temporary at the wrong time.
        assert!(
            info > 0 || self.used_infos == 0 || self.foreign,
            "line {number}: info 0 is used twice"
        );
        self.used_infos = self.used_infos.max(info + 1);
        let info = &mut self.infos[info];
        info.allocations += 1;
        info.live += 1;
        self.events.push(info.size);
        self.calls += 1;
        self.leaked += info.size;
        self.peak = self.peak.max(self.leaked);
    }

    fn free(&mut self, number: usize, info: usize) {
        assert!(
            info < self.infos.len(),
            "line {number}: unknown info {info}"
        );
        let info = &mut self.infos[info];
        info.live -= 1;
        self.events.push(-1 - info.size);
        assert!(info.live >= 0, "line {number}: more frees than allocations");
        self.frees += 1;
        self.leaked -= info.size;
    }

    /// Allocations that were made below a function of exactly that name, itself
    /// or inlined, anywhere in the stack.
    pub fn calls_under(&self, function: &str) -> i64 {
        self.sum_under(function, |info| info.allocations)
    }

    /// Bytes live at the end that were allocated below that function.
    pub fn leaked_under(&self, function: &str) -> i64 {
        self.sum_under(function, |info| info.live * info.size)
    }

    fn sum_under(&self, function: &str, number: impl Fn(&Info) -> i64) -> i64 {
        let is_under = |info: &&Info| {
            self.stack(info.trace)
                .iter()
                .any(|ip| ip.function == function || ip.inlined_into.iter().any(|f| f == function))
        };
        self.infos.iter().filter(is_under).map(number).sum()
    }

    /// Every stack with the number of its allocations, most first; leaf first
    /// within a stack.
    pub fn stacks(&self) -> Vec<(i64, Vec<&Ip>)> {
        let mut calls: BTreeMap<usize, i64> = BTreeMap::new();
        for info in &self.infos {
            *calls.entry(info.trace).or_default() += info.allocations;
        }
        let mut stacks: Vec<_> = calls
            .into_iter()
            .map(|(trace, calls)| (calls, self.stack(trace)))
            .collect();
        stacks.sort_by_key(|(calls, _)| -calls);
        stacks
    }

    /// What each place allocated, with its stack, leaf first.
    pub fn costs(&self) -> Vec<(Cost, Vec<&Ip>)> {
        let mut costs: BTreeMap<usize, Cost> = BTreeMap::new();
        for info in self.infos.iter().filter(|info| info.allocations > 0) {
            let cost = costs.entry(info.trace).or_default();
            cost.calls += info.allocations;
            cost.bytes += info.allocations * info.size;
        }
        let with_stack = |(trace, cost)| (cost, self.stack(trace));
        costs.into_iter().map(with_stack).collect()
    }

    /// Sizes and the number of their allocations.
    pub fn sizes(&self) -> BTreeMap<i64, i64> {
        let mut sizes = BTreeMap::new();
        for info in self.infos.iter().filter(|info| info.allocations > 0) {
            *sizes.entry(info.size).or_default() += info.allocations;
        }
        sizes
    }

    fn stack(&self, mut trace: usize) -> Vec<&Ip> {
        let mut stack = Vec::new();
        while trace > 0 {
            let (ip, parent) = self.traces[trace - 1];
            if ip > 0 {
                stack.push(&self.ips[ip - 1]);
            }
            trace = parent;
        }
        stack
    }
}

fn hex_fields(number: usize, rest: &[u8]) -> Vec<i64> {
    let text = std::str::from_utf8(rest).unwrap_or_else(|e| panic!("line {number}: {e}"));
    text.split_ascii_whitespace()
        .map(|field| {
            let is_hex = field
                .bytes()
                .all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'));
            assert!(is_hex, "line {number}: `{field}` is not lower-case hex");
            // Addresses may use all 64 bits.
            u64::from_str_radix(field, 16)
                .unwrap_or_else(|e| panic!("line {number}: `{field}`: {e}"))
                .cast_signed()
        })
        .collect()
}

/// ` LENGTH BYTES`, the length in hex and exact.
fn sized_string(number: usize, rest: &[u8]) -> String {
    let rest = rest
        .strip_prefix(b" ")
        .unwrap_or_else(|| panic!("line {number}: no space"));
    let space = rest
        .iter()
        .position(|&byte| byte == b' ')
        .unwrap_or(rest.len());
    let length = hex_fields(number, &rest[..space])[0] as usize;
    let bytes = rest.get(space + 1..).unwrap_or(&[]);
    assert_eq!(
        bytes.len(),
        length,
        "line {number}: wrong length of a string"
    );
    String::from_utf8_lossy(bytes).into_owned()
}

/// Checks a 1-based index; 0 stands for none.
fn index(number: usize, index: i64, length: usize) {
    let is_known = usize::try_from(index).is_ok_and(|index| index <= length);
    assert!(
        is_known,
        "line {number}: index {index:x} is beyond {length:x}"
    );
}

#[cfg(test)]
mod tests {
    use super::Trace;

    fn replay(text: impl std::io::BufRead) -> Trace {
        Trace::default().replay_into(text)
    }

    const FILE: &str = "v 10400 3\nX ./demo\nI 1000 10\ns 4 main\ns 5 inner\n\
        i 10 0 1\ni 20 0 2 2 7 1 1 9\nt 1 0\nt 2 1\na a 2\na 5 1\n\
        + 0\n+ 1\n- 0\n+ 1\nc a\n- 1\n# strings: 2\n";

    #[test]
    fn replays_by_hand_checked_numbers() {
        let trace = replay(FILE.as_bytes());
        assert_eq!((trace.calls, trace.frees), (3, 2));
        assert_eq!((trace.peak, trace.leaked), (15, 5));
        assert_eq!(
            (trace.calls_under("main"), trace.calls_under("inner")),
            (3, 1)
        );
        assert_eq!(trace.leaked_under("main"), 5);
        assert_eq!(
            trace.sizes().into_iter().collect::<Vec<_>>(),
            [(5, 2), (10, 1)]
        );
        assert_eq!(trace.stacks()[1].1[0].line, 7);
    }

    #[test]
    #[should_panic(expected = "line 4: more frees than allocations")]
    fn refuses_a_second_free() {
        replay(&b"v 10400 3\na 0 0\na 1 0\n- 1\n"[..]);
    }

    #[test]
    #[should_panic(expected = "line 2: wrong length of a string")]
    fn refuses_a_wrong_string_length() {
        replay(&b"v 10400 3\ns 5 main\n"[..]);
    }

    #[test]
    fn leaves_out_a_cut_line() {
        /// Fails where its text ends.
        struct Cut;
        impl std::io::Read for Cut {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::UnexpectedEof.into())
            }
        }
        let text = std::io::Read::chain(&b"v 10400 3\na 1 0\n+ 0\n+"[..], Cut);
        let trace = replay(std::io::BufReader::new(text));
        assert_eq!((trace.calls, trace.truncated), (1, true));
    }
}
