//! Sizes of unwind tables, by file and by process, and how long making them takes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use crate::command::{capture, cargo, command};
use crate::workspace::Workspace;

/// What a file's table is like.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Table {
    rows: u64,
    bytes: u64,
    milliseconds: f64,
}

/// Measures the tables of some programs with all their libraries, and of the largest library in
/// common use.
pub(super) fn measure(workspace: &Workspace) -> Result<String> {
    let mut processes = BTreeMap::new();
    for (name, program) in programs() {
        let Ok(libraries) = capture(command("ldd").arg(&program)) else {
            continue;
        };
        let mut files = vec![program];
        files.extend(libraries.lines().filter_map(path_in));
        processes.insert(name, files);
    }
    processes.extend(llvm().map(|file| ("libLLVM alone", vec![file])));
    let mut all: Vec<&String> = processes.values().flatten().collect();
    all.sort();
    all.dedup();
    let example = [
        "run",
        "--release",
        "--quiet",
        "--package",
        "htrace-unwind-tables",
    ];
    let printed = capture(
        cargo()
            .current_dir(&workspace.root)
            .args(example)
            .args(["--example", "table_stats", "--"])
            .args(all),
    )?;
    let tables: BTreeMap<&str, Table> = printed.lines().filter_map(parse).collect();
    render(&processes, &tables)
}

/// Programs by name. One that is not installed has an empty path, which `ldd` refuses.
fn programs() -> [(&'static str, String); 4] {
    let told = |program: &str, arguments: &[&str]| {
        let output = capture(command(program).args(arguments)).unwrap_or_default();
        output.trim().to_owned()
    };
    [
        ("bash", "/bin/bash".to_owned()),
        ("cc1plus", told("g++", &["-print-prog-name=cc1plus"])),
        ("node", told("node", &["-p", "process.execPath"])),
        ("python3", "/usr/bin/python3".to_owned()),
    ]
}

/// The library of the newest LLVM.
fn llvm() -> Option<String> {
    let entries = std::fs::read_dir("/usr/lib/x86_64-linux-gnu").ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.path().to_str().map(str::to_owned));
    names.filter(|path| path.contains("/libLLVM")).max()
}

/// The file in a line of `ldd`.
fn path_in(line: &str) -> Option<String> {
    let path = line.split_whitespace().find(|word| word.starts_with('/'))?;
    Some(path.to_owned())
}

/// A line of `table_stats`.
fn parse(line: &str) -> Option<(&str, Table)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [
        _fdes,
        _rejected,
        rows,
        _unsupported,
        _gaps,
        bytes,
        milliseconds,
        ..,
        file,
    ] = words[..]
    else {
        return None;
    };
    let table = Table {
        rows: rows.parse().ok()?,
        bytes: bytes.parse().ok()?,
        milliseconds: milliseconds.parse().ok()?,
    };
    Some((file, table))
}

fn render(
    processes: &BTreeMap<&str, Vec<String>>,
    tables: &BTreeMap<&str, Table>,
) -> Result<String> {
    let mut text = String::from("| tables of    | files |    rows | MB of memory | ms to make |\n");
    text.push_str("|--------------|------:|--------:|-------------:|-----------:|\n");
    for (name, files) in processes {
        let mut sum = Table {
            rows: 0,
            bytes: 0,
            milliseconds: 0.0,
        };
        for file in files {
            let table = tables.get(file.as_str());
            let table = table.with_context(|| format!("no table of {file}"))?;
            sum.rows += table.rows;
            sum.bytes += table.bytes;
            sum.milliseconds += table.milliseconds;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {name:<12} | {:>5} | {:>7} | {:>12.2} | {:>10.0} |",
            files.len(),
            sum.rows,
            sum.bytes as f64 / 1e6,
            sum.milliseconds
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let line = "   3713        0    28275      7   5043    250000      7.1      2816      3.0  /lib/libc.so.6";
        let table = Table {
            rows: 28275,
            bytes: 250_000,
            milliseconds: 7.1,
        };
        assert_eq!(parse(line), Some(("/lib/libc.so.6", table)));
        assert_eq!(
            parse(
                "   FDEs rejected     rows  unsup   gaps     bytes       ms  filtered       ms  file"
            ),
            None
        );
        let ldd = "\tlibc.so.6 => /lib/libc.so.6 (0x00007f)";
        assert_eq!(path_in(ldd).as_deref(), Some("/lib/libc.so.6"));
        assert_eq!(path_in("\tlinux-vdso.so.1 (0x00007ffd)"), None);
    }

    #[test]
    fn a_process_is_the_sum_of_its_files() {
        let table = Table {
            rows: 1000,
            bytes: 500_000,
            milliseconds: 2.0,
        };
        let processes = BTreeMap::from([("p", vec!["/a".to_owned(), "/b".to_owned()])]);
        let tables = BTreeMap::from([("/a", table), ("/b", table)]);
        let text = render(&processes, &tables).unwrap();
        assert!(
            text.contains("|     2 |    2000 |         1.00 |          4 |"),
            "{text}"
        );
        assert!(render(&processes, &BTreeMap::new()).is_err());
    }
}
