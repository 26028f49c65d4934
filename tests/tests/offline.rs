//! The commands that only read files, run as people run them.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use htrace_tests::process::{Ended, run};
use htrace_tests::tracer::binary;
use htrace_tests::{Feature, Launch, Scratch, require, target};

fn report(arguments: &[&str], file: &Path) -> Ended {
    let mut command = Command::new(binary());
    run(command.arg("report").args(arguments).arg(file), b"")
}

fn text(ended: &Ended) -> String {
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

/// A trace of one `size`, allocated `calls` times and freed once less.
fn small_trace(size: u64, calls: usize) -> String {
    // Not info 0: its frees count as temporary behind other frees, too.
    let events = "+ 1\n".repeat(calls) + &"- 1\n".repeat(calls - 1);
    let tables = "v 10400 3\nX ./demo\ns 4 work\ni 10 0 1\nt 1 0\na 0 1\n";
    format!("{tables}a {size:x} 1\n{events}")
}

#[test]
fn a_folder_of_traces_is_one_table() {
    let scratch = Scratch::new();
    let traces = [
        ("a.txt", small_trace(100, 5)),
        ("b.txt", small_trace(7, 2)),
        ("c.txt", small_trace(7, 2) + "+ 9"),
    ];
    for (name, trace) in &traces {
        std::fs::write(scratch.join(name), trace).expect("write a trace");
    }
    std::fs::write(scratch.join("d.zst"), "no trace").expect("write a file");
    let ended = report(&[], scratch.path());
    let text = text(&ended);
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let of = |name: &str| {
        let row = rows
            .iter()
            .find(|row| row.iter().any(|word| word.contains(name)));
        row.unwrap_or_else(|| panic!("no {name}:\n{text}"))
    };
    assert_eq!(
        of("a.txt")[1..6],
        ["5", "1", "500B", "100B", "whole"],
        "{text}"
    );
    assert_eq!(
        of("b.txt")[1..6],
        ["2", "1", "14B", "7B", "whole"],
        "{text}"
    );
    assert_eq!(of("c.txt")[5], "damaged", "{text}");
    assert_eq!(of("d.zst")[0], "refused", "{text}");
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    let last = rows.last().map(|row| row[0]);
    assert_eq!(last, Some("9"), "calls of all:\n{text}");
}

#[test]
fn a_raw_trace_gets_its_names_from_modules_under_the_sysroot() {
    let scratch = Scratch::new();
    let program = target("ends");
    let inside = "/elsewhere/program";
    let copy = scratch.join("elsewhere/program");
    std::fs::create_dir_all(scratch.join("elsewhere")).expect("make a directory");
    std::fs::copy(&program, copy).expect("copy a program");
    // Behind the call, as return addresses are.
    let address = 0x40_0000 + address_of("main", &program) + 1;
    let length = inside.len();
    let raw = format!(
        "v 10400 3\nx {length:x} {inside}\nX ./demo\nI 1000 400000\nm 1 -\n\
         m 1 x 400000 0 100000\nt {address:x} 0\n+ 40 1 5500a0\nc a\n"
    );
    let file = scratch.join("raw.txt");
    std::fs::write(&file, raw).expect("write a trace");
    let sysroot = format!("--sysroot={}", scratch.path().display());
    for (arguments, named) in [(&[sysroot.as_str()][..], true), (&[][..], false)] {
        let ended = report(arguments, &file);
        let text = text(&ended);
        assert!(
            text.contains(inside),
            "{arguments:?}:\n{text}{}",
            ended.stderr
        );
        let is_named = text.lines().any(|line| line.trim() == "main");
        assert_eq!(is_named, named, "{arguments:?}:\n{text}{}", ended.stderr);
    }
}

/// The address of a function in its file, by binutils.
fn address_of(function: &str, file: &Path) -> u64 {
    let symbols = run(Command::new("nm").arg(file), b"");
    let symbols = text(&symbols);
    let line = symbols
        .lines()
        .find(|line| line.split_whitespace().nth(2) == Some(function));
    let address = line.and_then(|line| line.split(' ').next());
    let address = address.and_then(|word| u64::from_str_radix(word, 16).ok());
    address.unwrap_or_else(|| panic!("no {function} among:\n{symbols}"))
}

#[test]
fn the_histogram_of_a_recording_holds_every_allocation_by_size() {
    if !require(Feature::Root) {
        return;
    }
    let recorded = Launch::new().run(target("ends"), &["20", "return"]);
    let histogram = recorded.scratch().join("sizes");
    let option = format!("--print-histogram={}", histogram.display());
    let ended = report(&[&option], &recorded.file);
    assert!(ended.status.success(), "{}", ended.stderr);
    let histogram = std::fs::read_to_string(histogram).expect("read the histogram");
    let rows = histogram.lines().map(|line| {
        let mut words = line.split('\t').map(|word| word.parse::<i64>());
        match (words.next(), words.next(), words.next()) {
            (Some(Ok(size)), Some(Ok(count)), None) => (size, count),
            _ => panic!("{line:?}"),
        }
    });
    let rows: Vec<(i64, i64)> = rows.collect();
    // The events of the file, by the harness's own reader; those of frees are negative.
    let mut expected = BTreeMap::new();
    for size in recorded.trace().events {
        if size >= 0 {
            *expected.entry(size).or_insert(0) += 1;
        }
    }
    assert_eq!(rows, Vec::from_iter(expected));
    assert!(rows.contains(&(49, 2)), "{rows:?}");
}
