//! Damaged files: whatever a target gives us to read, the recorder lives on.

use std::path::PathBuf;
use std::sync::OnceLock;

use htrace_bpf::modules::{Module, ModuleId};
use htrace_bpf::symbolize::{Symbolizer, embedded_suppressions};
use proptest::prelude::*;

use crate::fixture::compile;

/// A program with debug information, compiled once.
fn program() -> &'static [u8] {
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let program = compile(directory.path(), "symbolize.cpp", "p", &["-O2", "-g"]);
        std::fs::read(program).unwrap()
    })
}

/// Asks about every 16th byte of its code.
fn ask_everything(bytes: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("damaged");
    std::fs::write(&path, bytes).unwrap();
    let module = Module::of_path(ModuleId(0), &path).unwrap();
    let mut symbolizer = Symbolizer::new(None);
    for address in (0x1000..0x1600)
        .step_by(16)
        .chain([0, u64::MAX, u64::MAX - 1])
    {
        let _ = symbolizer.symbolize(&module, address);
    }
    let _ = embedded_suppressions(&module, None);
}

#[test]
fn a_whole_program_is_named_by_the_same_questions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("whole");
    std::fs::write(&path, program()).unwrap();
    let module = Module::of_path(ModuleId(0), &path).unwrap();
    let mut symbolizer = Symbolizer::new(None);
    let named = (0x1000..0x1600)
        .step_by(16)
        .flat_map(|address| symbolizer.symbolize(&module, address))
        .filter(|frame| frame.line.is_some())
        .count();
    assert!(named > 10, "{named}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_program_that_is_cut_short_is_survived(cut in 0.0f64..1.0) {
        let bytes = program();
        ask_everything(&bytes[..(bytes.len() as f64 * cut) as usize]);
    }

    #[test]
    fn flipped_bits_are_survived(
        flips in proptest::collection::vec((0.0f64..1.0, 0u8..8), 1..200),
        in_headers in proptest::collection::vec((0usize..0x400, 0u8..8), 0..3),
    ) {
        let mut bytes = program().to_vec();
        for (at, bit) in flips {
            let at = (at * bytes.len() as f64) as usize;
            bytes[at] ^= 1 << bit;
        }
        for (at, bit) in in_headers {
            bytes[at] ^= 1 << bit;
        }
        ask_everything(&bytes);
    }
}
