//! `htrace-bpf diff BEFORE AFTER`: which backtraces appeared, vanished, grew and shrank.

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use htrace_analysis::CostKind;
use htrace_analysis::comparison::compare;
use htrace_analysis::request::{self, STATUS_DAMAGED, STATUS_OK};
use htrace_analysis::warnings;

use crate::commands::report::files::SystemFiles;
use crate::commands::report::parse_cost;

/// What to compare.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The trace to compare with.
    before: PathBuf,
    /// The trace that is compared.
    after: PathBuf,
    /// The cost that decides what grew and what shrank: allocations, temporary, leaked or peak.
    #[arg(long, value_name = "COST", default_value = "peak", value_parser = parse_cost)]
    cost: CostKind,
    /// Rows of growth, and as many of shrinking.
    #[arg(
        short = 'n',
        long,
        alias = "peak-limit",
        value_name = "N",
        default_value = "10"
    )]
    top: usize,
    /// Refuse damaged traces.
    #[arg(long)]
    strict: bool,
}

/// Compares two traces by the names of their functions.
///
/// # Errors
/// When one cannot be read.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let files = SystemFiles::default();
    let mut err = io::stderr();
    let before = request::read(&args.before, &files, &mut ())?;
    let mut whole = warnings::judge(&args.before, &before, args.strict, &mut err)?;
    let after = request::read(&args.after, &files, &mut ())?;
    whole &= warnings::judge(&args.after, &after, args.strict, &mut err)?;
    let mut out = BufWriter::new(io::stdout().lock());
    compare(&before.profile, &after.profile).write(args.cost, args.top, &mut out)?;
    out.flush()?;
    Ok(ExitCode::from(if whole {
        STATUS_OK
    } else {
        STATUS_DAMAGED
    }))
}
