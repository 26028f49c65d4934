//! Reading what a request names: the trace, the one to subtract, and suppressions.

use std::io::{BufWriter, Write};
use std::path::Path;

use crate::ages::Ages;
use crate::builder::Rules;
use crate::diff;
use crate::files::Files;
use crate::histogram::Histogram;
use crate::load::{Loaded, load};
use crate::massif::MassifWriter;
use crate::observer::Observer;
use crate::profile::Profile;
use crate::report::Style;
use crate::request::output::create;
use crate::request::{Request, RequestError, Suppressions};
use crate::source;
use crate::suppression;
use crate::warnings;

/// What is measured while a trace is read.
type Observers = (
    Option<Histogram>,
    (
        Option<MassifWriter<BufWriter<Box<dyn Write>>>>,
        Option<Ages>,
    ),
);

/// What reading the file of a request came to.
pub(super) struct Input {
    pub(super) profile: Profile,
    pub(super) histogram: Option<Histogram>,
    pub(super) ages: Option<Ages>,
    pub(super) whole: bool,
}

/// Reads the file; writes Massif snapshots, counts sizes and remembers ages on the way.
pub(super) fn read_file(
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
pub(super) fn subtract_base(
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
pub(super) fn read_suppressions(
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
