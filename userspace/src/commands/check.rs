//! `htrace-bpf check FILE…`: whether traces are whole, and what is odd about them.

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use htrace_analysis::check::write_check;
use htrace_analysis::request::{self, STATUS_DAMAGED, STATUS_OK};

use crate::commands::report::files::SystemFiles;

/// What to check.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Traces; - reads standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// Checks traces. The exit status is 3 when one of them is damaged.
///
/// # Errors
/// When one cannot be opened.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
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
