//! Detecting and installing what building and testing need.
//!
//! Every step first looks whether it is done already, without touching the network, so that setup
//! may precede every build. Nothing of the user's Rust installation is changed: bpf-linker goes to
//! `target/tools`.

mod apt;
mod compiler;
mod libcs;
mod linker;
pub(crate) mod private_apt;
mod version;

use anyhow::Result;

pub(crate) use apt::{ensure as packages, is_debian};
pub(crate) use compiler::{BPF_TARGET, BpfCompiler};

use crate::progress::nothing_to_do;
use crate::workspace::Workspace;

/// Debian's packages that the tests and the benchmark use, with the reason of each.
const TEST_PACKAGES: &[&str] = &[
    "binutils",    // objcopy: separate debug files
    "bpftrace",    // the benchmark compares with it
    "g++",         // target programs, and a real program to record
    "gdb",         // a real program whose stacks are compared
    "git",         // a real program to record
    "heaptrack",   // its recorder and reader are the reference
    "libc6-dbg",   // names of libc's own functions in stacks
    "libcap2-bin", // capsh: exact capabilities
    "musl-tools",  // another C library: its gcc, headers and dynamic linker
    "nodejs",      // a real program whose stacks are compared
    "perl",        // a real program whose stacks are compared
    "python3",     // a real program to record
    "sqlite3",     // a real program to record
    "time",        // the benchmark measures memory with it
    "util-linux",  // setpriv, unshare
    "valgrind",    // ms_print renders what we export for it
    "zstd",        // the benchmark generates and reads traces with it
];

/// What compiles the BPF programs.
#[derive(Debug)]
pub(crate) struct Toolchain {
    pub(crate) compiler: BpfCompiler,
    /// The bpf-linker executable.
    pub(crate) linker: std::path::PathBuf,
}

/// The task `setup`.
pub(crate) fn setup(workspace: &Workspace, tests: bool) -> Result<()> {
    toolchain(workspace)?;
    if tests {
        test_programs(workspace)?;
    }
    Ok(())
}

/// Makes sure of the BPF compiler and linker.
pub(crate) fn toolchain(workspace: &Workspace) -> Result<Toolchain> {
    let compiler = compiler::ensure()?;
    nothing_to_do("BPF compiler", format_args!("{} is there", compiler.name));
    let linker = linker::ensure(workspace)?;
    Ok(Toolchain { compiler, linker })
}

/// Makes sure of what the tests and the benchmark need.
pub(crate) fn test_programs(workspace: &Workspace) -> Result<()> {
    apt::ensure("programs that the tests need", TEST_PACKAGES)?;
    libcs::ensure(workspace)
}
