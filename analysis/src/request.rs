//! `htrace-bpf report`: from a file to the report and its side files.
//!
//! [`Request`] says what is wanted, [`run`] does it in named steps. Where the words go (standard
//! output, standard error) and how files are opened is the caller's.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::ages::Ages;
use crate::builder::Rules;
use crate::cost::CostKind;
use crate::diff;
use crate::files::Files;
use crate::filter::{self, Reach};
use crate::folded::{FoldedOptions, write_folded};
use crate::histogram::Histogram;
use crate::json::write_json;
use crate::load::{Loaded, load};
use crate::massif::{MassifOptions, MassifWriter};
use crate::observer::Observer;
use crate::profile::Profile;
use crate::report::{ReportOptions, Style, write_report};
use crate::source;
use crate::suppression::{self, Suppressed};
use crate::tree::{Direction, TreeOptions, write_callers_and_callees, write_tree};
use crate::warnings;
use crate::window::Window;

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
    /// Subtract this trace.
    pub base: Option<PathBuf>,
    /// The text report.
    pub report: ReportOptions,
    /// Where to write the histogram of sizes.
    pub histogram: Option<PathBuf>,
    /// Where to write folded stacks.
    pub flamegraph: Option<PathBuf>,
    /// The cost of folded stacks.
    pub flamegraph_cost: CostKind,
    /// Where to write Massif snapshots.
    pub massif: Option<PathBuf>,
    /// What they look like.
    pub massif_options: MassifOptions,
    /// Keep backtraces through functions with this text in their names.
    pub filter_function: Option<String>,
    /// Keep backtraces through modules with this text in their paths.
    pub filter_module: Option<String>,
    /// Leak suppressions.
    pub suppressions: Suppressions,
    /// Refuse damaged files.
    pub strict: bool,
    /// How the report is written.
    pub format: Format,
    /// Only what happens within this window counts.
    pub window: Option<Window>,
    /// Print how old leaked memory is.
    pub leak_ages: bool,
    /// Views of inclusive costs behind the report.
    pub views: Vec<View>,
    /// What these look like.
    pub tree: TreeOptions,
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
            base: None,
            report: ReportOptions::default(),
            histogram: None,
            flamegraph: None,
            flamegraph_cost: CostKind::Allocations,
            massif: None,
            massif_options: MassifOptions::new(Style::Mended),
            filter_function: None,
            filter_module: None,
            suppressions: Suppressions::default(),
            strict: false,
            format: Format::default(),
            window: None,
            leak_ages: false,
            views: Vec::new(),
            tree: TreeOptions {
                kind: CostKind::Peak,
                shorten_templates: true,
                min_percent: 1.0,
                limit: 20,
            },
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

/// How the report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// heaptrack_print's words and layout.
    #[default]
    Text,
    /// See [`crate::json`].
    Json,
}

/// A view of inclusive costs behind the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// A tree.
    Tree(Direction),
    /// The table of callers and callees.
    CallersAndCallees,
}

/// What is measured while a trace is read.
type Observers = (
    Option<Histogram>,
    (
        Option<MassifWriter<BufWriter<Box<dyn Write>>>>,
        Option<Ages>,
    ),
);

/// What reading the file of a request came to.
struct Input {
    profile: Profile,
    histogram: Option<Histogram>,
    ages: Option<Ages>,
    whole: bool,
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
    let is_text = request.format == Format::Text;
    if is_text {
        announce(request, out)?;
    }
    let mut input = read_file(request, files, err)?;
    let mut commands = vec![input.profile.command.clone()];
    if let Some(base) = &request.base {
        let base = subtract_base(&mut input, base, request, files, err)?;
        commands.push(base);
    }
    if is_text {
        write_commands(&commands, out)?;
    }
    let used = prepare(&mut input.profile, request, user_patterns);
    let order = match request.format {
        Format::Text => write_text(request, &input, &used, out)?,
        Format::Json => {
            write_json(&input.profile, &used, &request.report, input.whole, out)?;
            (0..input.profile.entries.len() as u32).collect()
        }
    };
    write_side_files(request, &input, &order, files)?;
    Ok(if input.whole {
        STATUS_OK
    } else {
        STATUS_DAMAGED
    })
}

/// Writes the report and what was asked for behind it; returns the order of the entries.
fn write_text(
    request: &Request,
    input: &Input,
    used: &[Suppressed],
    out: &mut impl Write,
) -> io::Result<Vec<u32>> {
    let profile = &input.profile;
    if let Some(window) = request.window {
        write_window(window, profile, out)?;
    }
    let order = write_report(profile, used, &request.report, out, &mut |_| {})?;
    profile.notes.write_stack_ends(out)?;
    if let Some(ages) = &input.ages {
        writeln!(out)?;
        ages.write(&profile.infos, out)?;
    }
    for view in &request.views {
        writeln!(out)?;
        match view {
            View::Tree(direction) => write_tree(profile, *direction, &request.tree, out)?,
            View::CallersAndCallees => write_callers_and_callees(profile, &request.tree, out)?,
        }
    }
    Ok(order)
}

fn write_window(window: Window, profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let seconds = |time: i64| time as f64 / 1000.0;
    let from = seconds(window.from);
    let to = seconds(window.from + profile.runtime);
    let older = profile.freed_older;
    writeln!(
        out,
        "only what was allocated from {from:.2}s to {to:.2}s; {older} frees of older blocks\n"
    )
}

fn announce(request: &Request, out: &mut impl Write) -> io::Result<()> {
    let wait = "please wait, this might take some time...";
    writeln!(out, "reading file \"{}\" - {wait}", request.file.display())?;
    if let Some(base) = &request.base {
        writeln!(out, "reading diff file \"{}\" - {wait}", base.display())?;
    }
    out.flush()
}

/// Reads the file; writes Massif snapshots, counts sizes and remembers ages on the way.
fn read_file(
    request: &Request,
    files: &dyn Files,
    err: &mut impl Write,
) -> Result<Input, RequestError> {
    let massif = match &request.massif {
        Some(path) => Some(MassifWriter::new(
            create(path, files)?,
            request.massif_options,
        )),
        None => None,
    };
    let histogram = request.histogram.as_ref().map(|_| Histogram::default());
    let ages = request.leak_ages.then(Ages::default);
    let mut observers: Observers = (histogram, (massif, ages));
    let rules = Rules {
        window: request.window,
        ..Rules::LENIENT
    };
    let loaded = read_with(&request.file, files, rules, &mut observers)?;
    let whole = warnings::judge(&request.file, &loaded, request.strict, err)?;
    let (histogram, (massif, ages)) = observers;
    if let (Some(massif), Some(path)) = (massif, &request.massif) {
        let command = loaded.profile.command.as_deref();
        massif
            .finish(command)
            .map_err(|source| RequestError::Write {
                path: path.clone(),
                source,
            })?;
    }
    Ok(Input {
        profile: loaded.profile,
        histogram,
        ages,
        whole,
    })
}

/// Reads the base and subtracts it; returns its command line.
fn subtract_base(
    input: &mut Input,
    base: &Path,
    request: &Request,
    files: &dyn Files,
    err: &mut impl Write,
) -> Result<Option<Vec<u8>>, RequestError> {
    let loaded = read(base, files, &mut ())?;
    input.whole &= warnings::judge(base, &loaded, request.strict, err)?;
    diff::subtract(&mut input.profile, &loaded.profile, Style::Mended).map_err(|error| {
        RequestError::Refused {
            path: base.to_owned(),
            reason: error.to_string(),
        }
    })?;
    Ok(loaded.profile.command)
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

/// Reads `path`, whatever it is packed in; a raw trace is interpreted on the way.
///
/// # Errors
/// [`RequestError::Open`].
pub fn read(
    path: &Path,
    files: &dyn Files,
    observer: &mut impl Observer,
) -> Result<Loaded, RequestError> {
    read_with(path, files, Rules::LENIENT, observer)
}

fn read_with(
    path: &Path,
    files: &dyn Files,
    rules: Rules,
    observer: &mut impl Observer,
) -> Result<Loaded, RequestError> {
    let failed = |source| RequestError::Open {
        path: path.to_owned(),
        source,
    };
    let source = source::open(path, files).map_err(failed)?;
    Ok(load(source, rules, observer))
}

fn write_commands(commands: &[Option<Vec<u8>>], out: &mut impl Write) -> io::Result<()> {
    for command in commands.iter().flatten() {
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
    input: &Input,
    order: &[u32],
    files: &dyn Files,
) -> Result<(), RequestError> {
    let profile = &input.profile;
    if let (Some(path), Some(histogram)) = (&request.histogram, &input.histogram) {
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

fn create(path: &Path, files: &dyn Files) -> Result<BufWriter<Box<dyn Write>>, RequestError> {
    let failed = |source| RequestError::Write {
        path: path.to_owned(),
        source,
    };
    Ok(BufWriter::new(files.create(path).map_err(failed)?))
}

fn write_file(
    path: &Path,
    files: &dyn Files,
    write: impl FnOnce(&mut BufWriter<Box<dyn Write>>) -> io::Result<()>,
) -> Result<(), RequestError> {
    let mut out = create(path, files)?;
    write(&mut out)
        .and_then(|()| out.flush())
        .map_err(|source| RequestError::Write {
            path: path.to_owned(),
            source,
        })
}
