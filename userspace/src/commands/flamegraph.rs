//! `htrace-bpf flamegraph FILE -o heap.svg`: draws a flame graph.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use htrace_analysis::flamegraph::{FlamegraphOptions, write_svg};
use htrace_analysis::request::{self, STATUS_DAMAGED, STATUS_OK};
use htrace_analysis::{CostKind, warnings};

use crate::commands::report::files::SystemFiles;
use crate::commands::report::parse_cost;

/// What to draw.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The trace.
    file: PathBuf,
    /// Where to write the picture.
    #[arg(short, long, value_name = "SVG")]
    output: PathBuf,
    /// What the width of a frame stands for: allocations, temporary, leaked or peak.
    #[arg(long, value_name = "COST", default_value = "peak", value_parser = parse_cost)]
    cost: CostKind,
    /// Colour frames by how much more or less they cost than in this trace.
    #[arg(long, value_name = "BASE")]
    diff: Option<PathBuf>,
    /// Put the allocating functions at the bottom.
    #[arg(long)]
    reverse: bool,
    /// Keep template arguments in names.
    #[arg(long)]
    full_names: bool,
    /// Refuse damaged traces.
    #[arg(long)]
    strict: bool,
}

/// Draws a flame graph.
///
/// # Errors
/// When a trace cannot be read, the picture not be written, or there is nothing to draw.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut whole = true;
    let mut read = |path: &PathBuf| -> anyhow::Result<_> {
        let loaded = request::read(path, &SystemFiles::default(), &mut ())?;
        whole &= warnings::judge(path, &loaded, args.strict, &mut io::stderr())?;
        Ok(loaded.profile)
    };
    let profile = read(&args.file)?;
    let base = args.diff.as_ref().map(&mut read).transpose()?;
    let options = FlamegraphOptions {
        kind: args.cost,
        shorten_templates: !args.full_names,
        reverse: args.reverse,
    };
    let mut svg = Vec::new();
    write_svg(&profile, base.as_ref(), options, &mut svg)?;
    // Only now, so that a failure leaves no empty picture.
    let mut file = BufWriter::new(
        File::create(&args.output)
            .with_context(|| format!("cannot create {}", args.output.display()))?,
    );
    file.write_all(&svg)
        .and_then(|()| file.flush())
        .with_context(|| format!("cannot write {}", args.output.display()))?;
    Ok(ExitCode::from(if whole {
        STATUS_OK
    } else {
        STATUS_DAMAGED
    }))
}
