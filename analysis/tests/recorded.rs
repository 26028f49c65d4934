//! Traces of real programs, recorded with heaptrack on the spot, through heaptrack_print and ours:
//! all that they write must be equal.
//!
//! C, C++, Rust and Python; threads; leaks; temporary allocations; nothing at all; a lot.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use support::Random;
use support::drop_in::{first_difference, ours, theirs};
use support::generator::options;
use support::heaptrack_print;

const C: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *leak(size_t n) { return malloc(n); }
static void *spin(void *n) { for (long i = 0; i < (long)n; i++) free(malloc(i)); return 0; }
static void *grow(size_t n) { void *p = 0; for (size_t i = 1; i < n; i++) p = realloc(p, i * 16); return p; }
static void deep(int n) { if (n) { deep(n - 1); free(leak(n)); } }
static void many(int n) { void **p = calloc(n, sizeof *p); for (int i = 0; i < n; i++) p[i] = malloc(i % 97);
    for (int i = 0; i < n; i += 2) free(p[i]); free(p); }
int main(int c, char **v) {
    long n = c > 2 ? atol(v[2]) : 0;
    switch (c > 1 ? v[1][0] : 0) {
    case 'l': for (long i = 0; i < n; i++) leak(i); break;
    case 's': spin((void *)n); break;
    case 'g': grow(n); break;
    case 'd': deep(n); break;
    case 'm': many(n); break;
    case 'w': for (int i = 0; i < 4; i++) { many(n); usleep(15000); } break;
    case 't': { pthread_t t[4]; for (int i = 0; i < 4; i++) pthread_create(t + i, 0, spin, (void *)n);
        for (int i = 0; i < 4; i++) pthread_join(t[i], 0); } break;
    }
    return 0;
}
"#;

const CXX: &str = r#"
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>
template <class T> struct Tree { std::map<T, std::string> all; void add(T t) { all[t] = std::string(40, 'x'); } };
template <class T> void fill(std::vector<T> &v, long n) { for (long i = 0; i < n; i++) v.push_back(T(i)); }
int main(int c, char **v) {
    long n = c > 2 ? atol(v[2]) : 0;
    switch (c > 1 ? v[1][0] : 0) {
    case 'v': { std::vector<double> a; fill(a, n); } break;
    case 'm': { Tree<int> t; for (long i = 0; i < n; i++) t.add(i); } break;
    case 'l': for (long i = 0; i < n; i++) new std::string(100, 'y'); break;
    case 's': for (long i = 0; i < n; i++) auto p = std::make_shared<std::string>(i % 50, 'z'); break;
    case 't': { std::vector<std::thread> t; for (int i = 0; i < 3; i++) t.emplace_back([n] { std::vector<int> a; fill(a, n); });
        for (auto &x : t) x.join(); } break;
    }
}
"#;

const RUST: &str = r#"
use std::collections::HashMap;
fn main() {
    let words: Vec<String> = std::env::args().collect();
    let n: u64 = words[2].parse().unwrap();
    match words[1].as_str() {
        "map" => { let m: HashMap<u64, String> = (0..n).map(|i| (i, i.to_string())).collect(); println!("{}", m.len()); }
        "leak" => for i in 0..n { std::mem::forget(vec![0u8; i as usize]); },
        _ => { let t: Vec<_> = (0..3).map(|_| std::thread::spawn(move || (0..n).map(|i| format!("{i}")).collect::<Vec<_>>().len())).collect();
            for t in t { println!("{}", t.join().unwrap()); } }
    }
}
"#;

/// A program that runs and exits well.
fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn compile(folder: &Path) {
    for (name, text) in [("c.c", C), ("cxx.cpp", CXX), ("rust.rs", RUST)] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let at = |name: &str| folder.join(name);
    run(Command::new("gcc")
        .args(["-g", "-O1", "-fno-builtin", "-pthread", "-o"])
        .arg(at("c"))
        .arg(at("c.c")));
    run(Command::new("g++")
        .args(["-g", "-O2", "-pthread", "-o"])
        .arg(at("cxx"))
        .arg(at("cxx.cpp")));
    run(Command::new("g++")
        .args(["-s", "-O2", "-pthread", "-o"])
        .arg(at("bare"))
        .arg(at("cxx.cpp")));
    run(Command::new("rustc")
        .args(["-g", "-o"])
        .arg(at("rust"))
        .arg(at("rust.rs")));
}

/// What is recorded: program and arguments.
fn programs() -> Vec<Vec<&'static str>> {
    let mut programs: Vec<Vec<&str>> = Vec::new();
    for line in [
        "./c",
        "./c l 100",
        "./c s 500",
        "./c g 300",
        "./c d 200",
        "./c d 30",
        "./c m 20000",
        "./c w 500",
        "./c t 2000",
        "./c m 3",
        "./cxx",
        "./cxx v 5000",
        "./cxx m 700",
        "./cxx l 300",
        "./cxx s 900",
        "./cxx t 3000",
        "./bare v 5000",
        "./bare m 700",
        "./bare l 300",
        "./bare t 100",
        "./rust map 500",
        "./rust leak 60",
        "./rust threads 200",
        "ls /usr",
        "ls -l /usr/bin",
        "/bin/true",
        "cat /etc/passwd",
        "sort /etc/group",
        "gcc --version",
    ] {
        programs.push(line.split(' ').collect());
    }
    programs.push(vec![
        "/usr/bin/python3",
        "-S",
        "-c",
        "print(len([str(i) for i in range(20000)]))",
    ]);
    programs.push(vec![
        "/usr/bin/python3",
        "-S",
        "-c",
        "import json; print(json.dumps({str(i): [i] * 9 for i in range(500)})[:9])",
    ]);
    programs.push(vec!["/usr/bin/python3", "-S", "-c", "pass"]);
    programs
}

fn record(folder: &Path, program: &[&str], name: &str) {
    run(Command::new("heaptrack")
        .arg("-o")
        .arg(name)
        .args(program)
        .env("PYTHONMALLOC", "malloc")
        .current_dir(folder));
}

#[test]
fn recordings_of_heaptrack() {
    let Some(print) = heaptrack_print() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    compile(folder.path());
    std::fs::write(folder.path().join("supp.txt"), "leak:leak\nleak:^fill*$\n").unwrap();
    let programs = programs();
    assert!(programs.len() >= 30);
    let mut compared = 0;
    for (number, program) in programs.iter().enumerate() {
        record(folder.path(), program, "trace");
        let mut random = Random(number as u64);
        for _ in 0..3 {
            let mut words = options(&mut random);
            words.push("trace.zst".into());
            let wanted = theirs(print, &words, folder.path());
            let got = ours(&words, folder.path());
            assert_eq!(wanted.status, 0, "{program:?} {words:?}: {}", wanted.err);
            if wanted != got {
                panic!("{program:?} {words:?}\n{}", first_difference(&wanted, &got));
            }
            compared += 1;
        }
    }
    assert_eq!(compared, programs.len() * 3);
}
