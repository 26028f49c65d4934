//! `htrace-bpf check FILE…`: whether traces are whole, and what is odd about them. Without a file:
//! what this process and this kernel offer to a recording.

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use htrace_analysis::check::write_check;
use htrace_analysis::request::{self, STATUS_DAMAGED, STATUS_OK};

use crate::{
    commands::report::files::SystemFiles,
    loader::inventory::{Facts, Finding},
};

/// What to check.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Traces; - reads standard input. Without any, tells what this system has for recording.
    files: Vec<PathBuf>,
    /// Tell which capabilities, kernel features and limits there are, and what each missing one
    /// costs.
    #[arg(long, conflicts_with = "files")]
    system: bool,
}

/// Checks traces, or the system. The exit status is 3 when a trace is damaged, and 1 when nothing
/// can be recorded here.
///
/// # Errors
/// When a trace cannot be opened.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.system || args.files.is_empty() {
        return check_system();
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let mut status = STATUS_OK;
    for file in &args.files {
        let loaded = request::read(file, &SystemFiles::default(), &mut ())?;
        write_check(&file.display().to_string(), &loaded, &mut out)?;
        out.flush()?;
        if !loaded.is_whole() {
            status = STATUS_DAMAGED;
        }
    }
    Ok(ExitCode::from(status))
}

fn check_system() -> anyhow::Result<ExitCode> {
    let facts = Facts::gather();
    let mut out = BufWriter::new(io::stdout().lock());
    for (group, findings) in facts.groups() {
        writeln!(out, "{group}")?;
        for Finding {
            what,
            is_there,
            cost,
        } in findings
        {
            match is_there {
                true => writeln!(out, "  yes  {what}")?,
                false => writeln!(out, "  no   {what}: {cost}")?,
            }
        }
    }
    out.flush()?;
    Ok(if facts.can_record() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
