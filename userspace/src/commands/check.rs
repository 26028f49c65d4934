//! `htrace-bpf check FILE…`: whether traces are whole, and what is odd about them. `check --pid PID`:
//! where a process would be probed, and where its stacks would end. Without either: what this process and this kernel offer to a
//! recording.

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use htrace_analysis::check::write_check;
use htrace_analysis::request::{self, STATUS_DAMAGED, STATUS_OK};

use crate::{
    commands::report::files::SystemFiles,
    loader::inventory::{Facts, Finding},
    session::{allocators::places, uncovered},
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
    /// Tell where the allocators of this process would be probed, and why there, and which of its
    /// modules have no unwind data.
    #[arg(long, value_name = "PID", conflicts_with_all = ["files", "system"])]
    pid: Option<u32>,
}

/// Checks traces, or the system. The exit status is 3 when a trace is damaged, and 1 when nothing
/// can be recorded here.
///
/// # Errors
/// When a trace cannot be opened.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(pid) = args.pid {
        return tell_places(pid);
    }
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

fn tell_places(pid: u32) -> anyhow::Result<ExitCode> {
    let places = places(pid);
    anyhow::ensure!(!places.is_empty(), "no allocator is seen in process {pid}");
    let mut out = BufWriter::new(io::stdout().lock());
    for line in places.into_iter().chain(uncovered::modules(pid)) {
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
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
