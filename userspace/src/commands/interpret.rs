//! `htrace-bpf interpret RAW -o FILE`: names the addresses of a raw heaptrack trace.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use htrace_analysis::request::{STATUS_DAMAGED, STATUS_OK};
use htrace_trace_format::compression::{ZstdFrameWriter, decoder, pipelined};
use htrace_trace_format::raw::{Interpreted, interpret};

use crate::commands::report::files::ModuleResolver;

/// zstd's own default.
const LEVEL: i32 = 3;

/// What to interpret.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A raw trace (heaptrack --raw), compressed or not; - reads standard input.
    file: PathBuf,
    /// Where to write the interpreted trace; names ending in .zst are compressed, - writes
    /// standard output.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Look for modules and debug files under this directory.
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    sysroot: PathBuf,
}

/// Interprets a trace.
///
/// # Errors
/// When the input cannot be opened or the output not be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let source =
        open(&args.file).with_context(|| format!("cannot open {}", args.file.display()))?;
    let source = pipelined(decoder(source)?)?;
    let mut resolver = ModuleResolver::new(args.sysroot);
    let result = if args.output == Path::new("-") {
        let mut out = BufWriter::new(io::stdout().lock());
        let result = interpret(source, &mut out, &mut resolver)?;
        out.flush()?;
        result
    } else {
        let file = File::create(&args.output)
            .with_context(|| format!("cannot create {}", args.output.display()))?;
        interpret_into(source, file, &args.output, &mut resolver)?
    };
    Ok(ExitCode::from(say(&result)))
}

fn open(path: &Path) -> io::Result<Box<dyn io::Read + Send>> {
    use htrace_analysis::files::{FileSystem, Files as _};
    FileSystem.open(path)
}

fn interpret_into(
    source: impl io::BufRead,
    file: File,
    path: &Path,
    resolver: &mut ModuleResolver,
) -> anyhow::Result<Interpreted> {
    if path.extension().is_some_and(|extension| extension == "zst") {
        let mut sink = ZstdFrameWriter::new(file, LEVEL)?;
        let result = interpret(source, &mut sink, resolver)?;
        sink.finish()?;
        Ok(result)
    } else {
        let mut sink = BufWriter::new(file);
        let result = interpret(source, &mut sink, resolver)?;
        sink.flush()?;
        Ok(result)
    }
}

/// Says what was interpreted, and what was wrong; returns the exit status.
fn say(result: &Interpreted) -> u8 {
    eprintln!(
        "{} allocations, {} of them never freed",
        result.allocations, result.leaked
    );
    if let Some(place) = result.first_bad_line {
        eprintln!(
            "warning: {} lines are no records, the first at {place}",
            result.bad_lines
        );
    }
    if result.cut_short {
        eprintln!("warning: the raw trace ends early");
    }
    if result.cut_short || result.bad_lines > 0 {
        STATUS_DAMAGED
    } else {
        STATUS_OK
    }
}
