//! Compiles what is preloaded and what is run, and reads what was preloaded has written.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// A compiled file in a directory of its own.
pub(crate) struct Compiled {
    _directory: TempDir,
    path: PathBuf,
}

impl Compiled {
    pub(crate) fn path(&self) -> String {
        self.path.to_str().unwrap().to_owned()
    }

    pub(crate) fn file(&self) -> &Path {
        &self.path
    }
}

/// The library to be preloaded.
pub(crate) fn library() -> Compiled {
    let flags = [
        "-O2",
        "-fno-omit-frame-pointer",
        "-fPIC",
        "-shared",
        "-mno-red-zone",
    ];
    compile("gcc", "oracle.c", &flags, &["-lgcc_s"])
}

/// A C++ program.
pub(crate) fn compile_cpp(source: &str, flags: &[&str]) -> Compiled {
    let flags = [&["-std=c++20"], flags].concat();
    compile("g++", source, &flags, &["-pthread"])
}

/// A program or library, by any compiler that takes `-o`.
pub(crate) fn compile(
    compiler: &str,
    source: &str,
    flags: &[&str],
    libraries: &[&str],
) -> Compiled {
    let directory = tempfile::tempdir().unwrap();
    let name = Path::new(source).file_stem().unwrap();
    let path = directory.path().join(name).with_extension("out");
    let mut command = Command::new(compiler);
    command
        .args(flags)
        .arg(crate::source(source))
        .arg("-o")
        .arg(&path)
        .args(libraries);
    assert!(command.status().unwrap().success(), "{command:?}");
    Compiled {
        _directory: directory,
        path,
    }
}

/// The stacks that the preloaded library has seen, by id.
pub(crate) fn stacks(log: &Path) -> HashMap<u64, Vec<u64>> {
    let bytes = fs::read(log).unwrap();
    let mut words = bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    let mut stacks = HashMap::new();
    while let (Some(id), Some(count)) = (words.next(), words.next()) {
        stacks.insert(id, words.by_ref().take(count as usize).collect());
    }
    stacks
}
