//! Walks a stack of a real process by tables and compares it with libgcc's unwinder.
//!
//! `targets/live_stack.c` is compiled in several ways, runs, and prints its registers, stack,
//! mappings, and libgcc's backtrace; everything else happens here.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail and report"
)]

#[expect(dead_code, reason = "this test needs a part of it")]
mod common;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use htrace_unwind_tables::walker::{Backtrace, EndReason, Found, Frame, Registers, Start, unwind};
use htrace_unwind_tables::{RuleKind, UnwindTable, build};

const MAX_FRAMES: usize = 1024;

/// A mapped file with its table.
struct Module {
    start: u64,
    end: u64,
    file_offset: u64,
    data: Vec<u8>,
    table: UnwindTable,
}

impl Module {
    fn file_offset_of(&self, address: u64) -> Option<u64> {
        let inside = (self.start..self.end).contains(&address);
        inside.then(|| address - self.start + self.file_offset)
    }

    fn lookup(&self, address: u64) -> Option<Found> {
        let offset = self.file_offset_of(address)?;
        let segment = self.table.segments().iter().find(|segment| {
            (segment.file_offset..segment.file_offset + segment.size).contains(&offset)
        })?;
        let rule = self
            .table
            .lookup(segment.address + (offset - segment.file_offset))?;
        Some(Found {
            rule,
            coverage: self.table.coverage(),
        })
    }

    fn read(&self, address: u64) -> Option<u64> {
        let offset = self.file_offset_of(address)? as usize;
        Some(u64::from_le_bytes(*self.data.get(offset..)?.first_chunk()?))
    }
}

/// What the target printed.
struct Snapshot {
    registers: Registers,
    expected: Vec<u64>,
    stack: HashMap<u64, u64>,
    modules: Vec<Module>,
}

impl Snapshot {
    fn parse(text: &str) -> Self {
        let hex = |word: &str| u64::from_str_radix(word, 16).unwrap();
        let mut snapshot = Self {
            registers: Registers {
                ip: 0,
                sp: 0,
                bp: 0,
            },
            expected: Vec::new(),
            stack: HashMap::new(),
            modules: Vec::new(),
        };
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["registers", sp, bp] => {
                    snapshot.registers = Registers {
                        ip: 0,
                        sp: hex(sp),
                        bp: hex(bp),
                    };
                }
                ["frame", address] => snapshot.expected.push(hex(address)),
                ["word", address, value] => {
                    snapshot.stack.insert(hex(address), hex(value));
                }
                ["map", range, "r-xp", offset, _, _, path] if path.starts_with('/') => {
                    let (start, end) = range.split_once('-').unwrap();
                    let data = std::fs::read(path).unwrap();
                    let table = build(&data).unwrap();
                    let (start, end, file_offset) = (hex(start), hex(end), hex(offset));
                    snapshot.modules.push(Module {
                        start,
                        end,
                        file_offset,
                        data,
                        table,
                    });
                }
                _ => {}
            }
        }
        snapshot
    }

    fn lookup(&self, address: u64) -> Option<Found> {
        self.modules
            .iter()
            .find_map(|module| module.lookup(address))
    }

    fn read(&self, address: u64) -> Option<u64> {
        let in_stack = self.stack.get(&address).copied();
        in_stack.or_else(|| self.modules.iter().find_map(|module| module.read(address)))
    }

    /// The walk, and which kinds of rules it used.
    fn unwind(&self, max_frames: usize) -> (Backtrace, BTreeSet<RuleKind>) {
        let mut kinds = BTreeSet::new();
        let lookup = |address| {
            let found = self.lookup(address);
            kinds.extend(found.map(|found| found.rule.kind()));
            found
        };
        let start = Start::FunctionEntry(self.registers);
        let backtrace = unwind(start, max_frames, lookup, |address| self.read(address));
        (backtrace, kinds)
    }
}

fn addresses(backtrace: &Backtrace) -> Vec<u64> {
    backtrace
        .frames
        .iter()
        .map(|frame| frame.address())
        .collect()
}

fn compile(flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets/live_stack.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("live{}", flags.concat()));
    let compiler = Command::new("gcc")
        .args(["-g0", "-pthread", "-o"])
        .args([&program, &source])
        .args(flags)
        .status();
    assert!(compiler.as_ref().ok()?.success(), "gcc {flags:?}");
    Some(program)
}

fn run(program: &Path, argument: &str) -> Snapshot {
    let output = Command::new(program).arg(argument).output().unwrap();
    assert!(output.status.success(), "{}", program.display());
    Snapshot::parse(&String::from_utf8(output.stdout).unwrap())
}

/// A snapshot of each way to build and to run the target; none without a compiler.
fn snapshots() -> &'static [(String, Snapshot)] {
    static SNAPSHOTS: OnceLock<Vec<(String, Snapshot)>> = OnceLock::new();
    SNAPSHOTS.get_or_init(|| {
        let builds: [&[&str]; 4] = [
            &["-O2", "-fomit-frame-pointer"],
            &["-O2", "-fno-omit-frame-pointer"],
            &["-O0"],
            &["-Os", "-no-pie"],
        ];
        let Some(programs) = builds.iter().map(|flags| compile(flags)).collect() else {
            common::skip("gcc", true);
            return Vec::new();
        };
        let programs: Vec<PathBuf> = programs;
        let runs = programs
            .iter()
            .flat_map(|program| [(program, "main"), (program, "thread")]);
        runs.map(|(program, argument)| {
            (
                format!("{} {argument}", program.display()),
                run(program, argument),
            )
        })
        .collect()
    })
}

/// Calls `check` with each snapshot.
fn for_each_snapshot(check: impl Fn(&Snapshot)) {
    for (name, snapshot) in snapshots() {
        println!("{name}: {} frames", snapshot.expected.len());
        check(snapshot);
    }
}

#[test]
fn stacks_equal_libgcc() {
    for_each_snapshot(|snapshot| {
        let (backtrace, kinds) = snapshot.unwind(MAX_FRAMES);
        assert_eq!(addresses(&backtrace), snapshot.expected);
        assert_eq!(backtrace.end, EndReason::Complete);
        let interrupted = |frame: &&Frame| matches!(frame, Frame::Interrupted(_));
        assert_eq!(backtrace.frames.iter().filter(interrupted).count(), 1);
        let used = [
            RuleKind::Rsp,
            RuleKind::Rbp,
            RuleKind::Drap,
            RuleKind::SignalFrame,
            RuleKind::EndOfStack,
        ];
        assert_eq!(kinds, BTreeSet::from(used));
    });
}

#[test]
fn a_limit_keeps_the_innermost_frames() {
    for_each_snapshot(|snapshot| {
        let whole = snapshot.expected.len();
        for limit in [0, 1, whole - 1] {
            let (backtrace, _) = snapshot.unwind(limit);
            assert_eq!(addresses(&backtrace), snapshot.expected[..limit]);
            assert_eq!(backtrace.end, EndReason::Depth);
        }
        assert_eq!(snapshot.unwind(whole).0.end, EndReason::Complete);
    });
}

#[test]
fn filtered_tables_stop_at_interrupted_code() {
    for_each_snapshot(|snapshot| {
        let (whole, _) = snapshot.unwind(MAX_FRAMES);
        let interrupted = |frame: &Frame| matches!(frame, Frame::Interrupted(_));
        let signal = whole.frames.iter().position(interrupted).unwrap();
        let filtered = |address| {
            let module = snapshot
                .modules
                .iter()
                .find(|m| m.file_offset_of(address).is_some())?;
            let table = module.table.filter_call_sites(&module.data).unwrap();
            let filtered = Module {
                table,
                data: Vec::new(),
                ..*module
            };
            filtered.lookup(address)
        };
        let start = Start::FunctionEntry(snapshot.registers);
        let backtrace = unwind(start, MAX_FRAMES, filtered, |address| {
            snapshot.read(address)
        });
        assert_eq!(backtrace.frames, whole.frames[..=signal]);
        assert_eq!(backtrace.end, EndReason::Unsupported);
    });
}
