//! Real files to test with.
//!
//! A machine need not have all of them. What is missing is skipped with a printed reason, except
//! that with `CI=true` the files named as required must be there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian and its derivatives keep libraries.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// A kind of real file, and whether continuous integration must have one.
pub(crate) struct Wanted {
    pub(crate) name: &'static str,
    pub(crate) required_in_ci: bool,
    pub(crate) paths: Vec<PathBuf>,
}

/// The files that tables are compared on.
pub(crate) fn wanted_files() -> Vec<Wanted> {
    let library = |name: &str| existing([Path::new(LIBRARIES).join(name)]);
    let wanted = |name, required_in_ci, paths| Wanted {
        name,
        required_in_ci,
        paths,
    };
    vec![
        wanted("libc", true, library("libc.so.6")),
        wanted("libstdc++", true, library("libstdc++.so.6")),
        wanted("bash", true, existing(["/usr/bin/bash".into()])),
        wanted(
            "cc1plus",
            true,
            matching("/usr/lib/gcc/x86_64-linux-gnu", "cc1plus"),
        ),
        wanted("python3", true, existing(["/usr/bin/python3".into()])),
        // It comes with the compiler of the BPF programs.
        wanted("libLLVM", true, newest(matching(LIBRARIES, "libLLVM"))),
        // Debian's own is a small program with a large library.
        wanted(
            "node",
            true,
            [
                newest(matching(LIBRARIES, "libnode")),
                itself("node", &["-p", "process.execPath"]),
            ]
            .concat(),
        ),
        wanted("libcrypto", false, library("libcrypto.so.3")),
        wanted(
            "ld.so",
            false,
            existing(["/lib64/ld-linux-x86-64.so.2".into()]),
        ),
    ]
}

/// Whether a missing tool or file is a failure.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

/// Says that something is skipped, and why; fails where it must not be missing.
pub(crate) fn skip(what: &str, required_in_ci: bool) {
    assert!(
        !(required_in_ci && in_ci()),
        "{what} is missing, and CI=true requires it"
    );
    println!("skipped: {what} is not on this machine");
}

/// Every wanted file that exists, as (name, path); prints what is skipped.
pub(crate) fn real_files() -> Vec<(&'static str, PathBuf)> {
    let mut files = Vec::new();
    for wanted in wanted_files() {
        if wanted.paths.is_empty() {
            skip(wanted.name, wanted.required_in_ci);
        }
        files.extend(wanted.paths.into_iter().map(|path| (wanted.name, path)));
    }
    files
}

fn existing<const N: usize>(paths: [PathBuf; N]) -> Vec<PathBuf> {
    let canonical: BTreeSet<_> = paths
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    canonical.into_iter().collect()
}

/// Files whose name begins with `prefix`, in `directory` or one below it.
fn matching(directory: &str, prefix: &str) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    for path in entries(Path::new(directory)) {
        let below = if path.is_dir() {
            entries(&path)
        } else {
            vec![path]
        };
        found.extend(below.into_iter().filter(|path| {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            name.starts_with(prefix) && path.is_file()
        }));
    }
    let canonical: BTreeSet<_> = found
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    canonical.into_iter().collect()
}

/// The last by name: one of several versions is enough.
fn newest(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.pop().into_iter().collect()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = directory.read_dir() else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

/// The program's own file: what is in `PATH` may be a script that starts it.
fn itself(program: &str, arguments: &[&str]) -> Vec<PathBuf> {
    let Ok(output) = Command::new(program).args(arguments).output() else {
        return Vec::new();
    };
    let path = String::from_utf8_lossy(&output.stdout);
    existing([path.trim().into()])
}
