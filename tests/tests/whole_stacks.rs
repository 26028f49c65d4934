//! Stacks of real programs, built without frame pointers: nearly all reach the start of the
//! program or thread, and each function costs what it costs by heaptrack's own recorder.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail and report"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use htrace_tests::features::{find_program, python};
use htrace_tests::heaptrack;
use htrace_tests::inclusive::{View, differences};
use htrace_tests::trace_file::{Ip, Trace};
use htrace_tests::{Feature, Launch, Scratch, require, target};

/// What heaptrack's recorder keeps of a stack: 64 frames, of which two are its own.
const FRAMES_OF_HEAPTRACK: usize = 62;

/// The environment of both recordings. heaptrack is a shell script, and shells add `PWD`.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("PATH", "/usr/bin:/bin"),
    ("HOME", "/root"),
    ("LANG", "C"),
    ("PWD", env!("CARGO_MANIFEST_DIR")),
    ("PYTHONHASHSEED", "0"),
    ("PYTHONMALLOC", "malloc"),
];

/// Records a program; at least 99.9 % of its allocations must have stacks that reach the start.
fn record(program: &Path, args: &[&str]) -> Trace {
    let mut launch = Launch::new().under(&["env", "-i"]);
    for (name, value) in ENVIRONMENT {
        launch = launch.under_too(&format!("{name}={value}"));
    }
    let recorded = launch.run(program, args);
    recorded.assert_nothing_lost();
    let trace = recorded.trace();
    assert!(trace.calls > 1000, "{} calls", trace.calls);
    let mut short = 0;
    let mut example = None;
    for (calls, stack) in trace.stacks() {
        if !reaches_start(&stack) {
            short += calls;
            example.get_or_insert(stack);
        }
    }
    println!(
        "{}: {short} of {} are short",
        program.display(),
        trace.calls
    );
    assert!(
        short * 1000 <= trace.calls,
        "{short} of {} are short, such as {example:?}",
        trace.calls
    );
    trace
}

/// Whether the outermost frame is where a program or a thread begins.
fn reaches_start(stack: &[&Ip]) -> bool {
    const STARTS: [&str; 5] = ["_start", "_dl_start_user", "clone", "clone3", "__clone3"];
    let Some(outermost) = stack.last() else {
        return false;
    };
    STARTS.contains(&outermost.function.as_str())
        || outermost.function.is_empty() && is_behind_entry(outermost)
}

/// Whether an address is right behind its file's entry point: stripped programs have no name for
/// it. The load bias is a multiple of the page size, so the last bits can be compared.
fn is_behind_entry(ip: &Ip) -> bool {
    const PAGE: u64 = 4096;
    const ENTRY_CODE: u64 = 128;
    let Ok(header) = std::fs::read(&ip.module) else {
        return false;
    };
    let entry = header[24..32].try_into().map(u64::from_le_bytes);
    let entry = entry.expect("8 bytes of an ELF header");
    let distance = ip.address.wrapping_sub(entry) % PAGE;
    (1..ENTRY_CODE).contains(&distance)
}

/// Records a program by both recorders. Each function that makes a thousandth of the calls or bytes
/// must cost the same.
fn compare(program: &Path, args: &[&str], without: &[&str]) {
    if !require(Feature::Root) || !require(Feature::Heaptrack) {
        return;
    }
    let ours = record(program, args);
    let theirs = heaptrack::record_named(program, args, &ENVIRONMENT);
    let view = View {
        frames: FRAMES_OF_HEAPTRACK,
        without,
    };
    let differing = differences(&ours, &theirs, view);
    assert!(differing.is_empty(), "ours, theirs: {differing:#?}");
}

fn installed(name: &str) -> PathBuf {
    find_program(name).unwrap_or_else(|| panic!("{name} is not installed"))
}

#[test]
fn bash() {
    let script = "for i in {1..2000}; do x=${i}y; a[i]=$x; done";
    // It has a `getenv` and `unsetenv` of its own, by which heaptrack fails to hide its variables.
    let without = ["initialize_shell_variables", "set_default_lang"];
    compare(&installed("bash"), &["-c", script], &without);
}

#[test]
fn python3() {
    if !require(Feature::Python) {
        return;
    }
    // Without `site`, which may import `enum`: that orders members by their addresses and allocates by
    // the order, so that two runs by the same recorder differ in some bytes.
    let script = "import _json, array; \
        rows = [{str(i): [i] * 3} for i in range(6000)]; \
        text = ','.join(_json.encode_basestring(key) for row in rows for key in row); \
        values = array.array('q', (row[key][0] for row in rows for key in row)).tolist(); \
        print(len(repr(rows)), len(text), len(values))";
    let Some(python) = python() else { return };
    compare(&python, &["-S", "-c", script], &[]);
}

#[test]
fn sqlite3() {
    if !require(Feature::Sqlite) {
        return;
    }
    let script = "create table t(a, b); \
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) \
        insert into t select i, hex(i * 7919) from n; \
        create index x on t(b); \
        select sum(length(b)), length(group_concat(b)) from t group by a % 7 order by b;";
    compare(&installed("sqlite3"), &[":memory:", script], &[]);
}

#[test]
fn git() {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/targets");
    let diff = [
        "--no-pager",
        "diff",
        "--no-index",
        "--shortstat",
        sources,
        tests,
    ];
    compare(&installed("git"), &diff, &[]);
}

#[test]
fn ls_recursively() {
    compare(&installed("ls"), &["-R", "/usr"], &[]);
}

#[test]
fn a_compiler_proper() {
    let scratch = Scratch::new();
    let (source, preprocessed) = (scratch.join("s.cpp"), scratch.join("s.ii"));
    let text = "#include <map>\n#include <string>\n\
        int main() { std::map<std::string, int> m; return m[\"x\"]; }\n";
    std::fs::write(&source, text).expect("write a source file");
    let output = |command: &mut Command| command.output().expect("run g++").stdout;
    let program = output(Command::new("g++").arg("-print-prog-name=cc1plus"));
    let program = PathBuf::from(String::from_utf8_lossy(&program).trim());
    output(
        Command::new("g++")
            .arg("-E")
            .arg(&source)
            .arg("-o")
            .arg(&preprocessed),
    );
    let file = preprocessed.to_string_lossy().into_owned();
    let args = ["-fpreprocessed", "-quiet", "-O1", "-o", "/dev/null", &file];
    // Its costs are not compared: where its pools grow goes by addresses, so that a block or two
    // of 200,000 are another function's in each run.
    if require(Feature::Root) {
        record(&program, &args);
    }
}

#[test]
fn a_rust_program() {
    compare(&target("shapes"), &[], &[]);
}

#[test]
fn a_cpp_program() {
    compare(&target("catalogue"), &[], &[]);
}
