//! Random traces through the installed heaptrack_print 1.4.0 and through ours: all that they write
//! must be equal.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::path::Path;

use support::drop_in::{first_difference, ours, theirs};
use support::generator::{self, Shape};
use support::{Random, heaptrack_print};

/// Compares `count` random cases made by `case`; returns how many were compared.
fn compare(
    first_seed: u64,
    count: u64,
    case: impl Fn(&mut Random, &Path) -> Vec<String>,
) -> Option<u64> {
    let program = heaptrack_print()?;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("supp.txt"),
        "leak:fn1\n# c\nbad\nleak:^work*Q$\n",
    )
    .unwrap();
    let mut compared = 0;
    for seed in first_seed..first_seed + count {
        let mut random = Random(seed);
        let words = case(&mut random, folder.path());
        let wanted = theirs(program, &words, folder.path());
        let got = ours(&words, folder.path());
        if wanted != got {
            let kept = std::env::temp_dir().join(format!("htrace-difference-{seed}"));
            let _ = std::fs::create_dir(&kept);
            for name in ["input.heap", "base.heap", "supp.txt"] {
                let _ = std::fs::copy(folder.path().join(name), kept.join(name));
            }
            panic!(
                "seed {seed}, {words:?}, inputs kept in {}\n{}",
                kept.display(),
                first_difference(&wanted, &got)
            );
        }
        compared += 1;
    }
    Some(compared)
}

fn random_trace(random: &mut Random, folder: &Path, malformed: bool) -> Vec<String> {
    let version = *random.pick(&[3, 3, 3, 3, 2, 1, 0]);
    let shape = Shape {
        malformed,
        version,
        known_traces: false,
    };
    std::fs::write(folder.join("input.heap"), generator::trace(random, shape)).unwrap();
    let mut words = generator::options(random);
    words.push("input.heap".into());
    words
}

#[test]
fn well_formed_traces() {
    let compared = compare(1, 400, |random, folder| random_trace(random, folder, false));
    assert!(compared.is_none_or(|compared| compared == 400));
}

#[test]
fn malformed_traces() {
    let compared = compare(10_000, 400, |random, folder| {
        random_trace(random, folder, true)
    });
    assert!(compared.is_none_or(|compared| compared == 400));
}

#[test]
fn differences() {
    let compared = compare(20_000, 200, |random, folder| {
        for name in ["input.heap", "base.heap"] {
            let shape = Shape {
                malformed: false,
                version: 3,
                known_traces: true,
            };
            let mut trace = generator::trace(random, shape);
            if name == "base.heap" {
                // Two command lines would be printed in random order.
                trace = trace
                    .replace("X ./prog --arg\n", "")
                    .replace("S b", "S leak:b");
            }
            std::fs::write(folder.join(name), trace).unwrap();
        }
        let mut words = generator::options(random);
        words.extend(["--diff", "base.heap", "input.heap"].map(String::from));
        words
    });
    assert!(compared.is_none_or(|compared| compared == 200));
}

#[test]
fn command_lines() {
    let lines = [
        "",
        "-l input.heap",
        "input.heap -l",
        "-l1 input.heap",
        "-l -- input.heap",
        "input.heap other",
        "-f input.heap input.heap",
        "--print input.heap",
        "--print-l input.heap",
        "--nonsense",
        "-z input.heap",
        "-n=5 input.heap",
        "-n-1 input.heap",
        "-n +3 input.heap",
        "--peak-limit= input.heap",
        "--peak-limit 1e3 input.heap",
        "--disable-builtin-suppressions=1 input.heap",
        "--file",
        "--massif-threshold 1x input.heap",
        "--massif-threshold 1e1 input.heap",
        "--flamegraph-cost-type nothing input.heap",
        "-m YES -t off input.heap",
        "-m maybe input.heap",
        "missing.heap",
        "--suppressions missing input.heap",
        "-M /nonexistent/massif input.heap",
        "-H /nonexistent/hist -F /nonexistent/flame input.heap",
        "-v",
        "-h -v -n",
    ];
    let Some(program) = heaptrack_print() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let shape = Shape {
        malformed: false,
        version: 3,
        known_traces: false,
    };
    std::fs::write(
        folder.path().join("input.heap"),
        generator::trace(&mut Random(5), shape),
    )
    .unwrap();
    let mut failures = Vec::new();
    for line in lines {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let wanted = theirs(program, &words, folder.path());
        let got = ours(&words, folder.path());
        // The list of options behind the message is our own.
        let first = |text: &str| text.lines().next().unwrap_or("").to_owned();
        let same_text = line.contains("-h") || wanted.out == got.out;
        if wanted.status != got.status || first(&wanted.err) != first(&got.err) || !same_text {
            failures.push(format!(
                "{line}: wanted {} {}, got {} {}",
                wanted.status,
                first(&wanted.err),
                got.status,
                first(&got.err)
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
