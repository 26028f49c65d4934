//! The same unwind data by other ways: without section headers, in `.debug_frame`, compressed,
//! in the vdso.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail and report"
)]

mod common;

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

use htrace_unwind_tables::{Rule, UnwindTable, build};

const SECTION_TABLE_OFFSET: std::ops::Range<usize> = 0x28..0x30;
const SECTION_COUNTS: std::ops::Range<usize> = 0x3c..0x40;

#[test]
fn a_file_without_section_headers_gives_the_same_table() {
    for (name, path) in common::real_files() {
        let mut data = std::fs::read(&path).unwrap();
        let expected = build(&data).unwrap();
        data[SECTION_TABLE_OFFSET].fill(0);
        data[SECTION_COUNTS].fill(0);
        assert_eq!(build(&data).unwrap(), expected, "{name}");
    }
}

#[test]
fn a_build_id_is_found() {
    for (name, path) in common::real_files() {
        let data = std::fs::read(&path).unwrap();
        let notes = Command::new("readelf")
            .args(["--notes", "--wide"])
            .arg(&path)
            .output();
        let Ok(notes) = notes else {
            return common::skip("readelf", true);
        };
        let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
        let expected = notes
            .lines()
            .find_map(|line| line.trim().split_once("Build ID: "));
        let hex: String = build(&data)
            .unwrap()
            .build_id()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, expected.map_or("", |(_, id)| id), "{name}");
    }
}

/// Compiles the stack test's program with these flags.
fn compile(name: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets/live_stack.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let compiler = Command::new("gcc")
        .args(["-O2", "-pthread", "-o"])
        .args([&program, &source])
        .args(flags)
        .status();
    assert!(compiler.as_ref().ok()?.success(), "gcc {flags:?}");
    Some(program)
}

fn table_with(name: &str, flags: &[&str]) -> Option<UnwindTable> {
    Some(build(&std::fs::read(compile(name, flags)?).unwrap()).unwrap())
}

/// Rules without the addresses, which differ between builds, in the program's own code.
fn kinds(table: &UnwindTable) -> Vec<Rule> {
    table.rows().iter().map(|row| row.rule()).collect()
}

#[test]
fn debug_frame_gives_the_same_rules_compressed_or_not() {
    let only_debug = [
        "-g",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ];
    let Some(plain) = table_with("debug_frame", &only_debug) else {
        return common::skip("gcc", true);
    };
    let compressed = table_with("debug_frame_z", &[&only_debug[..], &["-gz"]].concat()).unwrap();
    let without = table_with("no_frames", &["-g0", only_debug[1], only_debug[2]]).unwrap();
    let usual = table_with("eh_frame", &["-g"]).unwrap();
    assert_eq!(kinds(&plain), kinds(&usual));
    assert_eq!(kinds(&compressed), kinds(&usual));
    assert_eq!(compressed.statistics(), plain.statistics());
    assert!(without.statistics().fdes < plain.statistics().fdes);
}

#[test]
fn the_vdso_is_an_ordinary_image() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(line) = maps.lines().find(|line| line.ends_with("[vdso]")) else {
        return common::skip("a vdso", false);
    };
    let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
    let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
    let mut memory = std::fs::File::open("/proc/self/mem").unwrap();
    memory.seek(SeekFrom::Start(start)).unwrap();
    let mut image = vec![0; (end - start) as usize];
    memory.read_exact(&mut image).unwrap();
    let table = build(&image).unwrap();
    println!(
        "vdso: {:?}, {} rows",
        table.statistics(),
        table.rows().len()
    );
    assert!(table.statistics().fdes > 0);
    assert!(
        table
            .rows()
            .iter()
            .any(|row| Some(row.rule()) == Rule::rsp(8, 0))
    );
}
