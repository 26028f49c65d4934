//! `htrace-bpf report`: from a file to the report and its side files.
//!
//! [`Request`] says what is wanted, [`run`] does it in named steps. Where the words go (standard
//! output, standard error) and how files are opened is the caller's.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use htrace_trace_format::compression::{decoder, pipelined};

use crate::builder::Rules;
use crate::cost::CostKind;
use crate::files::Files;
use crate::filter::{self, Reach};
use crate::folded::{FoldedOptions, write_folded};
use crate::histogram::Histogram;
use crate::load::{Loaded, load};
use crate::observer::Observer;
use crate::profile::Profile;
use crate::report::{ReportOptions, write_report};
use crate::suppression::{self, Suppressed};
use crate::warnings;

/// Everything was read and made sense.
pub const STATUS_OK: u8 = 0;
/// The report could not be made.
pub const STATUS_FAILED: u8 = 1;
/// The report is about what could be read of a damaged file.
pub const STATUS_DAMAGED: u8 = 3;

/// What a report is to consist of.
#[derive(Clone, Debug)]
pub struct Request {
    /// The trace; `-` for standard input.
    pub file: PathBuf,
    /// The text report.
    pub report: ReportOptions,
    /// Where to write the histogram of sizes.
    pub histogram: Option<PathBuf>,
    /// Where to write folded stacks.
    pub flamegraph: Option<PathBuf>,
    /// The cost of folded stacks.
    pub flamegraph_cost: CostKind,
    /// Keep backtraces through functions with this text in their names.
    pub filter_function: Option<String>,
    /// Keep backtraces through modules with this text in their paths.
    pub filter_module: Option<String>,
    /// Leak suppressions.
    pub suppressions: Suppressions,
    /// Refuse damaged files.
    pub strict: bool,
}

/// Which leak suppressions count.
#[derive(Clone, Debug)]
pub struct Suppressions {
    /// A file of them.
    pub file: Option<PathBuf>,
    /// Those that the target has embedded.
    pub embedded: bool,
    /// Those for system libraries.
    pub builtin: bool,
}

impl Default for Suppressions {
    fn default() -> Self {
        Self {
            file: None,
            embedded: true,
            builtin: true,
        }
    }
}

impl Request {
    /// The default report on `file`.
    #[must_use]
    pub fn new(file: PathBuf) -> Self {
        Self {
            file,
            report: ReportOptions::default(),
            histogram: None,
            flamegraph: None,
            flamegraph_cost: CostKind::Allocations,
            filter_function: None,
            filter_module: None,
            suppressions: Suppressions::default(),
            strict: false,
        }
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// An input could not be opened.
    #[error("cannot open {path}")]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An output could not be created or written.
    #[error("cannot write {path}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The report itself could not be written.
    #[error("cannot write the report")]
    Report(#[from] io::Error),
    /// The file is damaged and was to be refused if so, or nothing of it could be read.
    #[error("{path}: {reason}")]
    Refused {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// Makes the report: text to `out`, warnings to `err`. Returns the exit status.
///
/// # Errors
/// See [`RequestError`].
pub fn run(
    request: &Request,
    files: &dyn Files,
    out: &mut impl Write,
    err: &mut impl Write,
) -> Result<u8, RequestError> {
    let user_patterns = read_suppressions(&request.suppressions, files, err)?;
    writeln!(
        out,
        "reading file \"{}\" - please wait, this might take some time...",
        request.file.display()
    )?;
    out.flush()?;
    let mut histogram = request.histogram.as_ref().map(|_| Histogram::default());
    let loaded = read(&request.file, files, &mut histogram)?;
    let whole = warnings::judge(&request.file, &loaded, request.strict, err)?;
    let mut profile = loaded.profile;
    write_command(&profile, out)?;
    let used = prepare(&mut profile, request, user_patterns);
    let order = write_report(&profile, &used, &request.report, out, &mut |_| {})?;
    write_side_files(request, &profile, &order, histogram.as_ref(), files)?;
    Ok(if whole { STATUS_OK } else { STATUS_DAMAGED })
}

/// The patterns of the suppression file, if there is one.
fn read_suppressions(
    suppressions: &Suppressions,
    files: &dyn Files,
    err: &mut impl Write,
) -> Result<Vec<Vec<u8>>, RequestError> {
    let Some(path) = &suppressions.file else {
        return Ok(Vec::new());
    };
    let failed = |source| RequestError::Open {
        path: path.clone(),
        source,
    };
    let mut text = Vec::new();
    files
        .open(path)
        .map_err(failed)?
        .read_to_end(&mut text)
        .map_err(failed)?;
    let mut invalid = Vec::new();
    let patterns = suppression::parse_file(&text, |line| invalid.push(line.to_vec()));
    for line in invalid {
        writeln!(
            err,
            "warning: {}: not a suppression: {}",
            path.display(),
            line.escape_ascii()
        )?;
    }
    Ok(patterns)
}

/// Reads `path`, whatever it is packed in, decompressing on a thread of its own.
///
/// # Errors
/// [`RequestError::Open`].
pub fn read(
    path: &Path,
    files: &dyn Files,
    observer: &mut impl Observer,
) -> Result<Loaded, RequestError> {
    let failed = |source| RequestError::Open {
        path: path.to_owned(),
        source,
    };
    let source = decoder(files.open(path).map_err(failed)?).map_err(failed)?;
    let source = pipelined(source).map_err(failed)?;
    Ok(load(source, Rules::LENIENT, observer))
}

fn write_command(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    if let Some(command) = &profile.command {
        out.write_all(b"Debuggee command was: ")?;
        out.write_all(command)?;
        out.write_all(b"\n")?;
    }
    out.write_all(b"finished reading file, now analyzing data:\n\n")
}

/// Applies suppressions, then filters.
fn prepare(
    profile: &mut Profile,
    request: &Request,
    user_patterns: Vec<Vec<u8>>,
) -> Vec<Suppressed> {
    let used = apply_suppressions(profile, &request.suppressions, user_patterns);
    if let Some(text) = &request.filter_function {
        filter::keep_function(profile, text.as_bytes(), Reach::ThroughStop);
    }
    if let Some(text) = &request.filter_module {
        filter::keep_module(profile, text.as_bytes());
    }
    used
}

fn apply_suppressions(
    profile: &mut Profile,
    suppressions: &Suppressions,
    user: Vec<Vec<u8>>,
) -> Vec<Suppressed> {
    let mut patterns: Vec<Vec<u8>> = Vec::new();
    if suppressions.builtin {
        patterns.extend(suppression::BUILTIN.map(|pattern| pattern.as_bytes().to_vec()));
    }
    patterns.extend(user);
    if suppressions.embedded {
        patterns.extend(profile.embedded_suppressions.iter().cloned());
    }
    suppression::apply(profile, &patterns)
}

fn write_side_files(
    request: &Request,
    profile: &Profile,
    order: &[u32],
    histogram: Option<&Histogram>,
    files: &dyn Files,
) -> Result<(), RequestError> {
    if let (Some(path), Some(histogram)) = (&request.histogram, histogram) {
        write_file(path, files, |out| histogram.write(&profile.infos, out))?;
    }
    if let Some(path) = &request.flamegraph {
        let options = FoldedOptions {
            style: request.report.style,
            kind: request.flamegraph_cost,
            shorten_templates: request.report.shorten_templates,
        };
        write_file(path, files, |out| {
            write_folded(profile, order, &options, out)
        })?;
    }
    Ok(())
}

fn write_file(
    path: &Path,
    files: &dyn Files,
    write: impl FnOnce(&mut BufWriter<Box<dyn Write>>) -> io::Result<()>,
) -> Result<(), RequestError> {
    let failed = |source| RequestError::Write {
        path: path.to_owned(),
        source,
    };
    let mut out = BufWriter::new(files.create(path).map_err(failed)?);
    write(&mut out).and_then(|()| out.flush()).map_err(failed)
}
