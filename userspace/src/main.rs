//! The command `htrace-bpf`.

use std::{
    ffi::OsString,
    io::{IsTerminal, Write},
    process::ExitCode,
};

use clap::{CommandFactory, Parser, error::ErrorKind};
use htrace_bpf::{
    cli::{Cli, Command},
    commands,
};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    if let Some(version) = commands::report::compat_of_program(&name) {
        let words: Vec<OsString> = words.collect();
        return finish(commands::report::run_as_heaptrack_print(version, &words));
    }
    let cli = Cli::parse();
    start_logging(&cli);
    match cli.command {
        Some(Command::Report(args)) => finish(commands::report::run(args)),
        Some(Command::Diff(args)) => finish(commands::diff::run(args)),
        Some(Command::Flamegraph(args)) => finish(commands::flamegraph::run(args)),
        Some(Command::Check(args)) => finish(commands::check::run(args)),
        Some(Command::Interpret(args)) => finish(commands::interpret::run(args)),
        None if cli.record.pid.is_none() && cli.record.program.is_empty() => Cli::command()
            .error(
                ErrorKind::MissingRequiredArgument,
                "nothing to record: give a PROGRAM or --pid",
            )
            .exit(),
        None => commands::record::run(cli.record),
    }
}

/// Messages go to standard error: standard output is the target's, or a report.
fn start_logging(cli: &Cli) {
    let level = match (cli.record.quiet, cli.record.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, _) => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        .log_internal_errors(false)
        .init();
}

fn finish(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        // A closed standard error must not turn an error into a panic.
        let _closed = writeln!(std::io::stderr(), "htrace-bpf: {error:#}");
        ExitCode::FAILURE
    })
}
