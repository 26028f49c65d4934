//! `htrace-bpf report FILE`: what a trace adds up to.
//!
//! Thin by intent: this file turns the command line into a [`Request`] and hands it to
//! `htrace-analysis`. The options are heaptrack_print's, with the same letters and defaults.

mod arguments;

use std::ffi::OsString;
use std::io::{self, BufWriter};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use htrace_analysis::files::FileSystem;
use htrace_analysis::request;

pub use arguments::ReportOptions;

/// The arguments of `report`, taken as they are: heaptrack_print's options with optional values
/// need a look at the whole line before clap can parse them.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// FILE and options; see `htrace-bpf report --help`.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    arguments: Vec<OsString>,
}

/// Prints the report.
///
/// # Errors
/// When the file cannot be read, or an output cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let words = arguments::with_values(args.arguments);
    let name = OsString::from("htrace-bpf report");
    let options = match ReportOptions::try_parse_from(std::iter::once(name).chain(words)) {
        Ok(options) => options,
        Err(error) => {
            error.print().context("cannot print the usage")?;
            return Ok(ExitCode::from(if error.use_stderr() { 2 } else { 0 }));
        }
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let status = request::run(
        &options.into_request()?,
        &FileSystem,
        &mut out,
        &mut io::stderr().lock(),
    )?;
    Ok(ExitCode::from(status))
}
