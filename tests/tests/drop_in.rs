//! `report --compat=1.4` on files that htrace-bpf recorded: everything that heaptrack_print prints
//! and writes, byte for byte.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use htrace_tests::tracer::binary;
use htrace_tests::{Feature, Launch, require, target};

/// Lines of options; each runs on each file. Files that they write start with `out.`.
const OPTIONS: [&str; 8] = [
    "",
    "-l 1 -n 3 -s 2",
    "-m0 -l 1 -T0",
    "-a0 -p0 -t0 -l 1 --disable-builtin-suppressions --print-suppressions 1",
    "-F out.flame -H out.histogram",
    "-F out.flame --flamegraph-cost-type peak -M out.massif --massif-detailed-freq 3",
    "--filter-bt-function main -l 1",
    "-d trace.zst",
];

/// Programs with their arguments: C and C++, threads, leaks, temporary blocks, real ones, and one
/// that does next to nothing.
fn programs() -> [(std::path::PathBuf, &'static [&'static str]); 6] {
    [
        (target("counts"), &["1", "200", "hooked"]),
        (target("counts"), &["4", "100", "hooked"]),
        (target("framepointers"), &["2", "100"]),
        ("ls".into(), &["-lR", "/usr/share/doc/libc6"]),
        ("g++".into(), &["--version"]),
        ("true".into(), &[]),
    ]
}

/// All that a program left behind.
#[derive(Debug, PartialEq)]
struct Output {
    status: Option<i32>,
    stdout: String,
    stderr: String,
    files: BTreeMap<String, String>,
}

fn output(program: &mut Command, options: &str, folder: &Path) -> Output {
    let ended = program
        .args(options.split_whitespace())
        .arg("trace.zst")
        .current_dir(folder)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Output {
        status: ended.status.code(),
        stdout: text(&ended.stdout),
        stderr: text(&ended.stderr),
        files: taken_files(folder),
    }
}

/// The files that options asked for; they are removed.
fn taken_files(folder: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("out.") {
            let bytes = std::fs::read(&path).unwrap();
            files.insert(name, String::from_utf8_lossy(&bytes).into_owned());
            std::fs::remove_file(path).unwrap();
        }
    }
    files
}

#[test]
fn compat_prints_and_writes_what_heaptrack_print_does_of_our_files() {
    if !require(Feature::Root) || !require(Feature::Heaptrack) {
        return;
    }
    let mut compared = 0;
    for (program, args) in programs() {
        let recorded = Launch::new().run(&program, args);
        let folder = recorded.scratch().path();
        for options in OPTIONS {
            let theirs = output(&mut Command::new("heaptrack_print"), options, folder);
            let mut ours = Command::new(binary());
            let ours = output(ours.args(["report", "--compat=1.4"]), options, folder);
            assert_eq!(theirs.status, Some(0), "{program:?} {options}: {theirs:?}");
            assert!(theirs.stdout.contains("total runtime"), "{theirs:?}");
            let asked = ["-F ", "-H ", "-M "].map(|option| options.contains(option));
            let asked = asked.into_iter().filter(|&asked| asked).count();
            assert_eq!(theirs.files.len(), asked, "{options}");
            assert!(
                ours == theirs,
                "{program:?} {args:?} {options}:\n{ours:#?}\n{theirs:#?}"
            );
            compared += 1;
        }
    }
    assert_eq!(compared, 48);
}
