//! Fuzzers of what a target can give us to read: records of the ring buffer, unwind information, ELF
//! files that are symbolized, `/proc/PID/maps`, `/tmp/perf-PID.map`. Real inputs are mutated at random; nothing may
//! panic or take memory out of proportion.
//!
//! A few hundred inputs each in every test run; with `HTRACE_FUZZ_SECONDS` set, as many as fit into
//! that time (docs/fuzzing.md). A failure names the seed of its input, which `HTRACE_FUZZ_SEED`
//! replays.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests report failures by panicking"
)]

#[path = "../symbolize/fixture.rs"]
#[expect(dead_code, reason = "this test needs a part of it")]
mod fixture;
mod mutation;

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::OnceLock,
    time::{Duration, Instant},
};

use htrace_bpf::{
    modules::{Module, ModuleId, maps},
    symbolize::{Symbolizer, embedded_suppressions, perf_map::PerfMap},
};
use htrace_ebpf_common::wire::{Event, Record};
use htrace_unwind_tables::{UnwindTable, build};

use crate::{fixture::compile, mutation::mutated};

/// Inputs of a short run.
const FEW: u64 = 300;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Feeds mutations of the inputs to `consume` until the time is up.
fn fuzz(inputs: &[Vec<u8>], consume: impl Fn(&[u8])) {
    let try_seed = |seed: u64| {
        let input = &inputs[(seed % inputs.len() as u64) as usize];
        let bytes = mutated(input, seed);
        let survived = catch_unwind(AssertUnwindSafe(|| consume(&bytes)));
        assert!(survived.is_ok(), "HTRACE_FUZZ_SEED={seed} fails");
    };
    if let Some(seed) = variable("HTRACE_FUZZ_SEED") {
        return try_seed(seed);
    }
    let Some(seconds) = variable("HTRACE_FUZZ_SECONDS") else {
        return (0..FEW).for_each(try_seed);
    };
    let (start, time) = (Instant::now(), Duration::from_secs(seconds));
    // Another part of the seeds in each run.
    let mut seed = u64::from(std::process::id()) << 32;
    while start.elapsed() < time {
        try_seed(seed);
        seed += 1;
    }
    println!("{} inputs in {seconds} s", seed & 0xffff_ffff);
}

/// One record of each kind, as bytes.
fn records() -> Vec<Vec<u8>> {
    let record = |kind: u8, detail: u8, words: u64| {
        let mut bytes = vec![kind, detail, 7, 0, 42, 0, 0, 0];
        (1..=words).for_each(|word| bytes.extend((word * 0x1001).to_ne_bytes()));
        bytes
    };
    (0..12)
        .flat_map(|kind| [0, 1, 2, 3, 4, 20].map(|words| record(kind, 0, words)))
        .collect()
}

#[test]
fn wire_decoding() {
    fuzz(&records(), |bytes| {
        if let Ok(Record {
            event: Event::Stack { frames, .. },
            ..
        }) = Record::decode(bytes)
        {
            assert_eq!(frames.iter().count(), frames.len());
        }
    });
}

/// A program and a library with unwind and debug information, compiled once.
fn images() -> &'static [Vec<u8>] {
    static IMAGES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let flags: [&[&str]; 2] = [&["-O2", "-g"], &["-O1", "-g", "-Wl,--build-id"]];
        let compiled = ["p", "q"].into_iter().zip(flags).map(|(name, flags)| {
            let program = compile(directory.path(), "symbolize.cpp", name, flags);
            fs::read(program).unwrap()
        });
        compiled.collect()
    })
}

#[test]
fn unwind_tables() {
    fuzz(images(), |bytes| {
        let Ok(table) = build(bytes) else { return };
        // An image cannot have more rules than bytes.
        assert!(table.rows().len() <= bytes.len());
        for address in (0..0x4000).step_by(64).chain([u64::MAX]) {
            table.lookup(address);
        }
        let stored = table.to_bytes();
        assert!(UnwindTable::from_bytes(&stored, table.build_id()).is_ok());
    });
}

#[test]
fn stored_unwind_tables() {
    let table = build(&images()[1]).unwrap();
    fuzz(&[table.to_bytes()], |bytes| {
        if let Ok(read) = UnwindTable::from_bytes(bytes, table.build_id()) {
            (0..0x4000).step_by(64).for_each(|address| {
                read.lookup(address);
            });
        }
    });
}

#[test]
fn symbolizing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged");
    fuzz(images(), |bytes| {
        fs::write(&path, bytes).unwrap();
        let Ok(module) = Module::of_path(ModuleId(0), &path) else {
            return;
        };
        let mut symbolizer = Symbolizer::new(None);
        for address in (0x1000..0x1600).step_by(64).chain([0, u64::MAX]) {
            symbolizer.symbolize(&module, address);
        }
        let _ = embedded_suppressions(&module, None);
    });
}

#[test]
fn maps_of_processes() {
    let own = fs::read("/proc/self/maps").unwrap();
    fuzz(&[own], |bytes| {
        let lines = bytes.split(|byte| *byte == b'\n').count();
        assert!(maps::parse(bytes).count() <= lines);
    });
}

#[test]
fn maps_of_generated_code() {
    let lines = (0x1000..0x3000_u64).step_by(64).map(|start| {
        // Some overlap the one before.
        let (start, size) = (start - start % 192 / 3, 32 + start % 96);
        format!("{start:x} {size:x} JS:*function{start} file.js:1:2\n")
    });
    fuzz(&[lines.collect::<String>().into_bytes()], |bytes| {
        let mut map = PerfMap::default();
        map.add_lines(bytes);
        for address in (0x1000..0x3000).step_by(64).chain([0, u64::MAX]) {
            let length = map.name(address).map_or(0, str::len);
            // A byte that is no text becomes three.
            assert!(length <= 3 * bytes.len());
        }
    });
}
