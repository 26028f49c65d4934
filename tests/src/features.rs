//! What a test needs of the machine beyond a compiler, and how a skip is told.
//!
//! A skip always prints its reason; with `CI=true` it is a failure, so that a
//! machine that is meant to run everything cannot quietly run less.

use std::path::{Path, PathBuf};

/// Something that a test machine may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// User id 0: loading BPF programs, attaching to others, changing users.
    Root,
    /// heaptrack's recorder and `heaptrack_print`.
    Heaptrack,
    /// The `sqlite3` shell.
    Sqlite,
    /// A Python interpreter that is a program, not a wrapper script.
    Python,
    /// `setpriv` of util-linux, for exact capabilities.
    Setpriv,
    /// Kernel threads in sight, which they are not from inside a container.
    KernelThreads,
    /// Control groups that limit memory.
    MemoryGroups,
    /// The debugger gdb.
    Gdb,
    /// bpftrace.
    Bpftrace,
    /// User namespaces that root may create.
    UserNamespaces,
    /// C libraries of other suites of Debian, which `cargo xtask setup --tests` unpacks.
    OtherLibcs,
    /// The C library musl and a compiler for it.
    Musl,
}

/// Whether the test may go on. Prints why not, and panics instead if `CI` is
/// `true`.
pub fn require(feature: Feature) -> bool {
    let Some(reason) = missing(feature) else {
        return true;
    };
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "{feature:?} is required when CI=true: {reason}"
    );
    let _ = std::io::Write::write_fmt(
        &mut std::io::stderr(),
        format_args!("skipped, no {feature:?}: {reason}\n"),
    );
    false
}

fn missing(feature: Feature) -> Option<String> {
    match feature {
        Feature::Root => (!nix::unistd::geteuid().is_root()).then(|| "run as root".to_owned()),
        Feature::Heaptrack => {
            missing_program("heaptrack").or_else(|| missing_program("heaptrack_print"))
        }
        Feature::Sqlite => missing_program("sqlite3"),
        Feature::Python => python().is_none().then(|| "no python3 found".to_owned()),
        Feature::Setpriv => missing_program("setpriv"),
        Feature::KernelThreads => (!std::fs::read("/proc/2/comm")
            .is_ok_and(|name| name == b"kthreadd\n"))
        .then(|| "process 2 is not kthreadd".to_owned()),
        Feature::MemoryGroups => {
            let both = ["memory/memory.limit_in_bytes", "cgroup.controllers"];
            let root = Path::new("/sys/fs/cgroup");
            (!both.iter().any(|file| root.join(file).exists()))
                .then(|| "no control groups at /sys/fs/cgroup".to_owned())
        }
        Feature::Gdb => missing_program("gdb"),
        Feature::Bpftrace => missing_program("bpftrace"),
        Feature::OtherLibcs => (!suites_are_there())
            .then(|| "run `cargo xtask setup --tests` on a Debian machine".to_owned()),
        Feature::Musl => missing_program("musl-gcc"),
        Feature::UserNamespaces => (!Path::new("/proc/self/ns/user").exists())
            .then(|| "the kernel has no user namespaces".to_owned()),
    }
}

fn suites_are_there() -> bool {
    let all = ["bullseye", "trixie", "sid"];
    all.iter().all(|suite| unpacked(suite).is_dir())
}

/// The directory in which packages of another suite of Debian are unpacked.
pub fn unpacked(suite: &str) -> PathBuf {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/libc");
    let root = all.join(suite).join("root");
    root.canonicalize().unwrap_or(root)
}

fn missing_program(name: &str) -> Option<String> {
    find_program(name)
        .is_none()
        .then(|| format!("`{name}` is not in PATH"))
}

/// The first executable of that name in `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// The Python interpreter itself; `python3` in `PATH` may be a shell script
/// that starts it.
pub fn python() -> Option<PathBuf> {
    let output = std::process::Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end());
    path.is_file().then_some(path)
}
