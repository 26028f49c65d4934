//! Every task of the workspace: setting up the BPF toolchain, building, recording a program, testing,
//! benchmarks, distribution.
//!
//! This file knows the command line alone; each task is a module of its own. None of the project's
//! crates is a dependency, so that the tasks compile in seconds and work when a crate does not.
//! All words go to standard error: standard output belongs to the program that `run` records and to
//! what a task is asked to print.

mod arrows;
mod bench;
mod bench_report;
mod bless;
mod build;
mod command;
mod dist;
mod environment;
mod machine;
mod progress;
mod run;
mod setup;
mod soak;
mod test;
mod unwind_check;
mod vm;
mod workspace;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use workspace::Workspace;

/// Tasks of the htrace-bpf workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install what building needs: a compiler for BPF and bpf-linker.
    Setup {
        /// Also what the tests and the benchmark need: heaptrack, g++, bpftrace, sqlite3 …
        #[arg(long)]
        tests: bool,
    },
    /// Compile the BPF programs to target/bpf/htrace-probes.o.
    BuildEbpf,
    /// Build htrace-bpf with the BPF programs inside.
    Build {
        /// Optimised, to target/release/htrace-bpf.
        #[arg(long)]
        release: bool,
    },
    /// Set up, build, record PROGRAM and print the report (on standard error: standard output is
    /// the program's).
    Run {
        /// The program and its arguments, after `--`.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
    },
    /// Set up, build, check format and lints, and run every test.
    Test,
    /// `test` where a skipped test is a failure.
    Ci,
    /// Check that dependencies point the way that ARCHITECTURE.md draws them.
    CheckArrows,
    /// Measure what tracing costs: htrace-bpf beside heaptrack and bpftrace.
    Bench(bench::Options),
    /// Measure how fast a trace is reported on: htrace-bpf beside heaptrack_print.
    BenchReport(bench_report::Options),
    /// Write the golden files of the tests anew; look at the difference before committing it.
    Bless,
    /// Pack a stripped release binary to target/dist.
    Dist,
    /// Run PROGRAM and compare all its stacks with those of libgcc's unwinder (as root).
    UnwindCheck {
        /// The program and its arguments, after `--`.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
    },
    /// Run the long tests at full length: stress, kills, a random exerciser, flat memory (as root).
    Soak(soak::Options),
    /// Boot another Linux kernel under qemu and run the end-to-end tests, or a command, in it.
    Vm(vm::Options),
}

fn main() -> ExitCode {
    match perform(Arguments::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: Task) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::locate()?;
    match task {
        Task::Setup { tests } => setup::setup(&workspace, tests)?,
        Task::BuildEbpf => build::build_ebpf(&workspace)?,
        Task::Build { release } => build::build(&workspace, release)?,
        Task::Run { program } => return run::run(&workspace, &program),
        Task::Test => return test::test(&workspace, test::Skips::Allowed),
        Task::Ci => return test::test(&workspace, test::Skips::AreFailures),
        Task::CheckArrows => arrows::check(&workspace)?,
        Task::Bench(options) => bench::bench(&workspace, &options)?,
        Task::BenchReport(options) => bench_report::bench_report(&workspace, &options)?,
        Task::Bless => bless::bless(&workspace)?,
        Task::Dist => dist::dist(&workspace)?,
        Task::UnwindCheck { program } => unwind_check::unwind_check(&workspace, &program)?,
        Task::Soak(options) => soak::soak(&workspace, &options)?,
        Task::Vm(options) => return vm::vm(&workspace, &options),
    }
    Ok(ExitCode::SUCCESS)
}
