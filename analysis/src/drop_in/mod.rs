//! heaptrack_print, byte for byte: for scripts that read its output.
//!
//! [`run`] takes heaptrack_print's own command line and prints what heaptrack_print 1.4, 1.5 or
//! 1.6 prints, in every section and file, in its order of ties, with its quirks and messages.
//! Only where heaptrack_print crashes, hangs or fills the disk does it stop with a message. The
//! help text is our own.

mod arguments;
mod container;
mod messages;
mod passes;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::builder::Rules;
use crate::diff;
use crate::files::Files;
use crate::filter::{self, Reach};
use crate::folded::{self, FoldedOptions, write_folded};
use crate::histogram::Histogram;
use crate::massif::{MassifOptions, MassifWriter};
use crate::profile::Profile;
use crate::report::{ReportOptions, Style, write_report};
use crate::suppression::{self, Suppressed};

use arguments::{Arguments, Parsed};
use messages::Messages;

/// A version of heaptrack_print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 1.4.0.
    V1_4,
    /// 1.5.0.
    V1_5,
    /// 1.6.0.
    V1_6,
}

impl Version {
    /// The version that `1.4`, `1.5` or `1.6` names.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "1.4" => Some(Self::V1_4),
            "1.5" => Some(Self::V1_5),
            "1.6" => Some(Self::V1_6),
            _ => None,
        }
    }

    /// The full number.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1_4 => "1.4.0",
            Self::V1_5 => "1.5.0",
            Self::V1_6 => "1.6.0",
        }
    }

    /// The number as files carry it: `major << 16 | minor << 8 | patch`.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::V1_4 => 0x1_04_00,
            Self::V1_5 => 0x1_05_00,
            Self::V1_6 => 0x1_06_00,
        }
    }

    pub(crate) fn rules(self, ignore_suppressions: bool) -> Rules {
        Rules {
            refuse_decreasing_time: self >= Self::V1_6,
            refuse_raw: self >= Self::V1_6,
            refuse_second_command: true,
            refuse_unknown_free: true,
            sized_suppressions: false,
            ignore_suppressions,
            window: None,
            memory_limit: Rules::MEMORY_LIMIT,
        }
    }
}

/// The program ends with this status; what there was to say has been said.
struct Stop(u8);

/// A failure to write the report, or a reason to stop.
enum Halt {
    Stop(Stop),
    Io(io::Error),
}

impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// Runs heaptrack_print `version` with `words` (without the program's name). Returns the exit
/// status.
///
/// # Errors
/// Those of `out` and `err`.
pub fn run(
    words: &[OsString],
    version: Version,
    files: &dyn Files,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<u8> {
    let arguments = match arguments::parse(words) {
        Ok(Parsed::Run(arguments)) => arguments,
        Ok(Parsed::Help) => {
            out.write_all(arguments::HELP.as_bytes())?;
            return Ok(0);
        }
        Ok(Parsed::Version) => {
            writeln!(out, "heaptrack_print {}", version.name())?;
            return Ok(0);
        }
        Err(message) => {
            writeln!(err, "ERROR: {message}\n\n{}", arguments::HELP)?;
            return Ok(1);
        }
    };
    let mut program = Program {
        arguments: &arguments,
        version,
        files,
        out,
        err,
    };
    match program.run() {
        Ok(()) => Ok(0),
        Err(Halt::Stop(Stop(status))) => Ok(status),
        Err(Halt::Io(error)) => Err(error),
    }
}

struct Program<'a, O, E> {
    arguments: &'a Arguments,
    version: Version,
    files: &'a dyn Files,
    out: &'a mut O,
    err: &'a mut E,
}

type Massif = MassifWriter<BufWriter<Box<dyn Write>>>;

impl<O: Write, E: Write> Program<'_, O, E> {
    fn run(&mut self) -> Result<(), Halt> {
        let massif = self.open_massif()?;
        let user_patterns = self.user_suppressions()?;
        self.announce()?;
        let (mut profile, histogram) = self.read(massif)?;
        self.subtract_base(&mut profile)?;
        self.out
            .write_all(b"finished reading file, now analyzing data:\n\n")?;
        let used = self.suppress(&mut profile, user_patterns);
        if let Some(text) = &self.arguments.filter_function {
            filter::keep_function(&mut profile, text, Reach::BeforeStop);
        }
        let order = self.report(&profile, &used)?;
        self.write_histogram(&profile, histogram.as_ref())?;
        self.write_flamegraph(&profile, &order)
    }

    fn open_massif(&mut self) -> Result<Option<Massif>, Halt> {
        let Some(path) = &self.arguments.massif else {
            return Ok(None);
        };
        let Ok(file) = self.files.create(path) else {
            writeln!(
                self.err,
                "Failed to open massif output file \"{}\".",
                path.display()
            )?;
            return Err(Stop(1).into());
        };
        let options = MassifOptions {
            style: Style::Heaptrack,
            threshold: self.arguments.massif_threshold,
            detailed_frequency: self.arguments.massif_detailed_frequency,
        };
        Ok(Some(MassifWriter::new(BufWriter::new(file), options)))
    }

    fn user_suppressions(&mut self) -> Result<Vec<Vec<u8>>, Halt> {
        let Some(path) = &self.arguments.suppressions else {
            return Ok(Vec::new());
        };
        let mut text = Vec::new();
        let read = self
            .files
            .open(path)
            .and_then(|mut file| file.read_to_end(&mut text));
        if read.is_err() {
            writeln!(
                self.err,
                "failed to open suppression file: {}",
                path.display()
            )?;
            return Err(Stop(1).into());
        }
        let mut messages = Messages::new(self.version, &mut *self.err);
        let patterns = suppression::parse_file(&text, |line| messages.bad_suppression(line));
        Ok(patterns)
    }

    fn announce(&mut self) -> io::Result<()> {
        let wait = "please wait, this might take some time...";
        writeln!(
            self.out,
            "reading file \"{}\" - {wait}",
            self.arguments.file.display()
        )?;
        if let Some(base) = &self.arguments.diff {
            writeln!(
                self.out,
                "reading diff file \"{}\" - {wait}",
                base.display()
            )?;
        }
        Ok(())
    }

    fn read(&mut self, massif: Option<Massif>) -> Result<(Profile, Option<Histogram>), Halt> {
        let arguments = self.arguments;
        let mut observers = passes::Observers {
            massif,
            histogram: arguments.histogram.as_ref().map(|_| Histogram::default()),
        };
        let profile = self.read_file(&arguments.file, &mut observers)?;
        if let Some(massif) = observers.massif {
            // heaptrack_print does not notice when the disk is full, and neither may we.
            let _ = massif.finish(profile.command.as_deref());
        }
        Ok((profile, observers.histogram))
    }

    /// Reads one file and prints its command line.
    fn read_file(
        &mut self,
        path: &Path,
        observers: &mut passes::Observers<Massif>,
    ) -> Result<Profile, Halt> {
        self.check_ordinary(path)?;
        let rules = self.version.rules(!self.arguments.embedded_suppressions);
        let files = self.files;
        let open = || container::open(path, files);
        let mut messages = Messages::new(self.version, &mut *self.err);
        let outcome = passes::load_twice(open, rules, observers, &mut messages);
        let profile = match outcome {
            Ok(profile) => profile,
            Err(error) => {
                messages.fatal(path, &error)?;
                return Err(Stop(1).into());
            }
        };
        if let Some(command) = &profile.command {
            self.out.write_all(b"Debuggee command was: ")?;
            self.out.write_all(command)?;
            self.out.write_all(b"\n")?;
        }
        Ok(profile)
    }

    /// heaptrack_print dies of anything but an ordinary file.
    fn check_ordinary(&mut self, path: &Path) -> Result<(), Halt> {
        if self.files.open(path).is_err() {
            writeln!(
                self.err,
                "Failed to open heaptrack log file: {}",
                path.display()
            )?;
            return Err(Stop(1).into());
        }
        if !self.files.is_ordinary(path) {
            let path = path.display();
            writeln!(
                self.err,
                "heaptrack_print crashes on what is no ordinary file: {path}"
            )?;
            return Err(Stop(1).into());
        }
        Ok(())
    }

    fn subtract_base(&mut self, profile: &mut Profile) -> Result<(), Halt> {
        let Some(base) = &self.arguments.diff else {
            return Ok(());
        };
        let mut nobody = passes::Observers {
            massif: None,
            histogram: None,
        };
        let base = self.read_file(base, &mut nobody)?;
        if let Err(error) = diff::subtract(profile, &base, Style::Heaptrack) {
            writeln!(self.err, "heaptrack_print crashes on these files: {error}")?;
            return Err(Stop(1).into());
        }
        Ok(())
    }

    fn suppress(&self, profile: &mut Profile, user: Vec<Vec<u8>>) -> Vec<Suppressed> {
        let mut patterns =
            list_of_patterns(self.version, self.arguments.builtin_suppressions, user);
        patterns.extend(profile.embedded_suppressions.iter().cloned());
        suppression::apply(profile, &patterns)
    }

    fn report(&mut self, profile: &Profile, used: &[Suppressed]) -> Result<Vec<u32>, Halt> {
        let mut messages = Messages::new(self.version, &mut *self.err);
        let options = &self.arguments.report;
        Ok(write_report(
            profile,
            used,
            options,
            self.out,
            &mut |trace| messages.cycle(trace),
        )?)
    }

    fn write_histogram(
        &mut self,
        profile: &Profile,
        histogram: Option<&Histogram>,
    ) -> io::Result<()> {
        let (Some(path), Some(histogram)) = (&self.arguments.histogram, histogram) else {
            return Ok(());
        };
        match self.files.create(path) {
            Ok(file) => {
                let mut file = BufWriter::new(file);
                histogram.write(&profile.infos, &mut file)?;
                file.flush()
            }
            Err(_) => {
                let path = path.display();
                writeln!(self.err, "Failed to open histogram output file \"{path}\".")
            }
        }
    }

    fn write_flamegraph(&mut self, profile: &Profile, order: &[u32]) -> Result<(), Halt> {
        let Some(path) = &self.arguments.flamegraph else {
            return Ok(());
        };
        let Ok(file) = self.files.create(path) else {
            let path = path.display();
            writeln!(
                self.err,
                "Failed to open flamegraph output file \"{path}\"."
            )?;
            return Ok(());
        };
        if folded::has_cycle(profile) {
            writeln!(
                self.err,
                "heaptrack_print crashes on this file: a backtrace is a cycle"
            )?;
            return Err(Stop(1).into());
        }
        let options = FoldedOptions {
            style: Style::Heaptrack,
            kind: self.arguments.flamegraph_cost,
            shorten_templates: self.arguments.report.shorten_templates,
        };
        let mut file = BufWriter::new(file);
        write_folded(profile, order, &options, &mut file)?;
        Ok(file.flush()?)
    }
}

/// The list of patterns as each version puts it together. Until 1.5 the user's patterns overwrite
/// the first builtin ones, and as many empty patterns, which match everything, remain at the end.
fn list_of_patterns(version: Version, builtin: bool, user: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    if !builtin {
        return user;
    }
    let mut patterns: Vec<Vec<u8>> = suppression::BUILTIN
        .iter()
        .map(|pattern| pattern.as_bytes().to_vec())
        .collect();
    if version >= Version::V1_6 {
        patterns.extend(user);
        return patterns;
    }
    patterns.resize(patterns.len() + user.len(), Vec::new());
    for (slot, pattern) in patterns.iter_mut().zip(user) {
        *slot = pattern;
    }
    patterns
}

/// Options that decide what is printed; the part of [`Arguments`] that the report needs.
pub(crate) type Sections = ReportOptions;
/// A path on the command line.
pub(crate) type ArgumentPath = PathBuf;
