//! Compares whole tables with what binutils' `readelf` makes of the same files, row by row.
//!
//! `readelf --debug-dump=frames-interp` evaluates call frame information with code of its own. Its
//! text is parsed, mapped to rules, and compared within each frame description after merging equal
//! neighbours; outside of frame descriptions a table may hold gaps only.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail and report"
)]

#[path = "../common/mod.rs"]
mod common;
mod expect;
mod parse;

use std::path::Path;

use htrace_unwind_tables::{Rule, UnwindTable, build};

use crate::expect::ExpectedFde;

#[test]
fn tables_equal_readelf() {
    if !parse::readelf_exists() {
        return common::skip("readelf", true);
    }
    for (name, path) in common::real_files() {
        let expected = expect::of_file(&path);
        let table = build(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(table.statistics().rejected_fdes, 0, "{}", path.display());
        let rows = compare(&path, &table, &expected);
        println!(
            "{name}: {} FDEs, {rows} rows equal in {}",
            expected.len(),
            path.display()
        );
        // Where a program is a small file that loads a large library, both are compared.
        let least = if name == "node" { 1 } else { 1000 };
        assert!(rows >= least, "{} has hardly any rows", path.display());
    }
}

/// Compares all rows and returns how many there were.
fn compare(path: &Path, table: &UnwindTable, expected: &[ExpectedFde]) -> usize {
    let mut compared = 0;
    for fde in expected {
        let found = rows_between(table, fde.start, fde.end);
        assert_eq!(
            found,
            fde.rows,
            "{}: FDE at {:#x}, code {:#x}..{:#x}",
            path.display(),
            fde.offset,
            fde.start,
            fde.end
        );
        compared += found.len();
    }
    check_outside(path, table, expected);
    assert_eq!(
        table.statistics().fdes as usize,
        expected.len(),
        "{}",
        path.display()
    );
    compared
}

/// The rules that hold in a range: the one at its start and those that begin inside.
fn rows_between(table: &UnwindTable, start: u64, end: u64) -> Vec<(u64, Rule)> {
    let rel = |address: u64| (address - table.base()) as u32;
    let from = table
        .rows()
        .partition_point(|row| row.rel_pc() <= rel(start));
    let to = table.rows().partition_point(|row| row.rel_pc() < rel(end));
    let mut rules = vec![(start, table.lookup(start).unwrap())];
    let inside = &table.rows()[from..to];
    rules.extend(
        inside
            .iter()
            .map(|row| (table.base() + u64::from(row.rel_pc()), row.rule())),
    );
    rules
}

/// Every row that begins outside of all frame descriptions is a gap, or the entry point, which
/// nothing has called.
fn check_outside(path: &Path, table: &UnwindTable, expected: &[ExpectedFde]) {
    let entry = entry_point(path);
    for row in table.rows() {
        let address = table.base() + u64::from(row.rel_pc());
        let wanted = if address == entry {
            Rule::END_OF_STACK
        } else {
            Rule::GAP
        };
        let before = expected.partition_point(|fde| fde.start <= address);
        let inside = before > 0 && address < expected[before - 1].end;
        assert!(
            inside || row.rule() == wanted,
            "{}: {:?} at {address:#x} outside of every FDE",
            path.display(),
            row.rule()
        );
    }
}

/// `e_entry` of an ELF header.
fn entry_point(path: &Path) -> u64 {
    let header = std::fs::read(path).unwrap();
    u64::from_le_bytes(header[24..32].try_into().unwrap())
}
