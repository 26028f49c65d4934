//! `htrace-bpf report FILE`: what a trace adds up to.
//!
//! Thin by intent: this file turns the command line into a [`Request`] and hands it to
//! `htrace-analysis`. The options are heaptrack_print's, with the same letters and defaults.

mod arguments;
pub mod files;

use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Parser as _;
use htrace_analysis::drop_in::{self, Version};
use htrace_analysis::files::FileSystem;
use htrace_analysis::folder::write_folder;
use htrace_analysis::request;

pub use arguments::{ReportOptions, parse_cost};
use files::SystemFiles;

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
    let (compat, words) = split_compat(args.arguments)?;
    if let Some(version) = compat {
        return run_as_heaptrack_print(version, &words);
    }
    let words = arguments::with_values(words);
    let name = OsString::from("htrace-bpf report");
    let options = match ReportOptions::try_parse_from(std::iter::once(name).chain(words)) {
        Ok(options) => options,
        Err(error) => {
            error.print().context("cannot print the usage")?;
            return Ok(ExitCode::from(if error.use_stderr() { 2 } else { 0 }));
        }
    };
    let files = SystemFiles {
        sysroot: options.sysroot.clone(),
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let result = report(options, &files, &mut out).and_then(|status| {
        out.flush().context("cannot write the report")?;
        Ok(status)
    });
    match result {
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        result => result.map(ExitCode::from),
    }
}

fn report(
    options: ReportOptions,
    files: &SystemFiles,
    out: &mut impl io::Write,
) -> anyhow::Result<u8> {
    if let Some(folder) = options.folder() {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        return Ok(write_folder(&traces_in(folder)?, files, threads, out)?);
    }
    let request = options.into_request()?;
    Ok(request::run(&request, files, out, &mut io::stderr())?)
}

/// The files of a folder, by name.
fn traces_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let context = || format!("cannot list {}", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(context)? {
        let path = entry.with_context(context)?.path();
        if path.is_file() {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        bail!("no files in {}", folder.display());
    }
    paths.sort();
    Ok(paths)
}

/// Whether the reader of our output has gone, as `head` does when it has enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Behaves as heaptrack_print does, byte for byte, on its own command line (without the program's
/// name). This is also what a link named `heaptrack_print` runs.
///
/// # Errors
/// When standard output fails.
pub fn run_as_heaptrack_print(version: Version, words: &[OsString]) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut err = io::stderr();
    let status = drop_in::run(words, version, &FileSystem, &mut out, &mut err)
        .and_then(|status| out.flush().map(|()| status))
        .context("cannot write the report")?;
    Ok(ExitCode::from(status))
}

/// The version that `program` stands for when it is heaptrack_print's name: 1.4, the one that
/// distributions ship.
#[must_use]
pub fn compat_of_program(program: &OsStr) -> Option<Version> {
    let name = Path::new(program).file_name()?;
    (name == "heaptrack_print").then_some(Version::V1_4)
}

/// Takes `--compat=VERSION` or `--compat VERSION` out of the words.
fn split_compat(words: Vec<OsString>) -> anyhow::Result<(Option<Version>, Vec<OsString>)> {
    let mut compat = None;
    let mut others = Vec::with_capacity(words.len());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let value = match word.to_str() {
            Some("--") => {
                others.push(word);
                others.extend(words.by_ref());
                break;
            }
            Some("--compat") => words.next(),
            Some(text) => text.strip_prefix("--compat=").map(OsString::from),
            None => None,
        };
        match value {
            Some(value) => compat = Some(parse_version(&value)?),
            None => others.push(word),
        }
    }
    Ok((compat, others))
}

fn parse_version(name: &OsStr) -> anyhow::Result<Version> {
    match name.to_str().and_then(Version::from_name) {
        Some(version) => Ok(version),
        None => bail!("--compat takes 1.4, 1.5 or 1.6, not {}", name.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compat_is_found_anywhere_in_front_of_a_double_dash() {
        let split = |line: &str| {
            split_compat(line.split(' ').map(OsString::from).collect()).map(|(compat, words)| {
                (
                    compat,
                    words.join(OsStr::new(" ")).to_string_lossy().into_owned(),
                )
            })
        };
        assert_eq!(
            split("-l --compat=1.5 f").unwrap(),
            (Some(Version::V1_5), "-l f".into())
        );
        assert_eq!(
            split("--compat 1.6 f").unwrap(),
            (Some(Version::V1_6), "f".into())
        );
        assert_eq!(
            split("-- --compat=1.4").unwrap(),
            (None, "-- --compat=1.4".into())
        );
        assert!(split("--compat=2 f").is_err());
    }

    #[test]
    fn only_the_name_of_the_program_counts() {
        assert_eq!(
            compat_of_program(OsStr::new("/usr/bin/heaptrack_print")),
            Some(Version::V1_4)
        );
        assert_eq!(
            compat_of_program(OsStr::new("/heaptrack_print/htrace-bpf")),
            None
        );
    }
}
