//! Programs that people run: recorded without a failure, behaving as ever, and
//! with sensible reports.

use std::fmt::Write as _;
use std::process::Command;

use htrace_tests::features::python;
use htrace_tests::process::run;
use htrace_tests::{Feature, Launch, Recorded, Scratch, require};

/// Nothing lost, the report says what the file says, and the ranking names
/// modules.
fn assert_sensible(recorded: &Recorded) {
    recorded.assert_nothing_lost();
    let (trace, report) = (recorded.trace(), recorded.report());
    assert_eq!(report.calls(), trace.calls, "{}", report.text);
    assert!(trace.calls > 0 && trace.peak > 0, "{}", recorded.stderr);
    let groups = report.groups("MOST CALLS TO ALLOCATION FUNCTIONS");
    assert!(!groups.is_empty(), "{}", report.text);
    assert!(
        groups[0].contains("  in /"),
        "no module is named:\n{}",
        groups[0]
    );
}

#[test]
fn ls_recursively() {
    if !require(Feature::Root) {
        return;
    }
    let args = ["-R", "/usr"];
    let recorded = Launch::new().run("ls", &args);
    recorded.assert_same_as(&run(Command::new("ls").args(args), b""));
    assert_sensible(&recorded);
}

#[test]
fn python_with_a_million_strings() {
    if !require(Feature::Root) || !require(Feature::Python) {
        return;
    }
    let Some(python) = python() else { return };
    let script = "strings = [str(i) for i in range(1000000)]; print(len(strings), strings[-1])";
    let recorded = Launch::new()
        .env("PYTHONMALLOC", "malloc")
        .run(python, &["-c", script]);
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.stderr);
    assert_eq!(recorded.stdout, b"1000000 999999\n", "{}", recorded.stderr);
    assert_sensible(&recorded);
    let trace = recorded.trace();
    assert!(trace.calls > 1_000_000, "{} calls", trace.calls);
    // A string of six digits is 49 bytes of header and terminator and 6 more.
    let strings = trace.sizes().get(&55).copied().unwrap_or(0);
    assert!(strings >= 900_000, "{strings} strings of six digits");
    assert!(trace.peak > 55_000_000, "peak {}", trace.peak);
}

#[test]
fn a_compiler() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let (source, object) = (scratch.join("fifty.cpp"), scratch.join("fifty.o"));
    std::fs::write(&source, fifty_lines()).expect("write a source file");
    let [source, object] = [source, object].map(|path| path.to_string_lossy().into_owned());
    let recorded = Launch::new().run("g++", &["-O1", "-c", &source, "-o", &object]);
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.stderr);
    assert!(
        scratch.join("fifty.o").exists(),
        "nothing was compiled:\n{}",
        recorded.stderr
    );
    assert_sensible(&recorded);
}

fn fifty_lines() -> String {
    let mut source = "#include <map>\n#include <string>\n#include <vector>\n".to_owned();
    for i in 0..47 {
        let _ = writeln!(
            source,
            "int f{i}(std::map<std::string, int> &m) {{ return m[std::to_string({i})]++; }}"
        );
    }
    source
}

#[test]
fn a_database() {
    if !require(Feature::Root) || !require(Feature::Sqlite) {
        return;
    }
    let script = b"create table t(number integer, word text);\n\
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000)\n\
        insert into t select (i * 7919) % 100003, 'word ' || (i * 31 % 1009) from n;\n\
        select count(*), sum(number) from t;\n\
        select number, word from t order by word, number limit 5 offset 50000;\n\
        create index by_word on t(word, number);\n\
        select word, count(*) from t group by word order by 2 desc, 1 limit 3;\n";
    let args = [":memory:"];
    let recorded = Launch::new().stdin(script).run("sqlite3", &args);
    let untraced = run(Command::new("sqlite3").args(args), script);
    assert!(
        untraced.stdout.starts_with(b"100000|"),
        "{}",
        untraced.stderr
    );
    recorded.assert_same_as(&untraced);
    assert_sensible(&recorded);
    assert!(
        recorded.trace().peak > 1_000_000,
        "100,000 rows in {} bytes",
        recorded.trace().peak
    );
}
