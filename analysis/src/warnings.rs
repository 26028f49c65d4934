//! Saying what is wrong with a file that was read.

use std::io::{self, Write};
use std::path::Path;

use htrace_trace_format::ReadError;
use htrace_trace_format::compression::{Damage, damage_of};

use crate::load::Loaded;
use crate::problem::LoadError;
use crate::request::RequestError;

/// Writes warnings about `loaded` to `err` and tells whether the file was whole.
///
/// # Errors
/// [`RequestError::Refused`] when nothing at all could be read, or when `strict` and the file is
/// not whole.
pub fn judge(
    path: &Path,
    loaded: &Loaded,
    strict: bool,
    err: &mut impl Write,
) -> Result<bool, RequestError> {
    let complaints = complaints(loaded);
    let refused = |reason: String| RequestError::Refused {
        path: path.to_owned(),
        reason,
    };
    if let Some(error) = &loaded.stopped_by
        && is_hopeless(loaded)
    {
        return Err(refused(describe_stop(error)));
    }
    if is_no_trace(loaded) {
        return Err(refused(
            "no heap trace: neither a command line nor an allocation in it".into(),
        ));
    }
    if strict && !loaded.is_whole() {
        return Err(refused(complaints.join("; ")));
    }
    for complaint in complaints {
        writeln!(err, "warning: {}: {complaint}", path.display())?;
    }
    warn_of_losses(path, loaded, err)?;
    Ok(loaded.is_whole())
}

/// The file was read to its end and says nothing.
fn is_no_trace(loaded: &Loaded) -> bool {
    let profile = &loaded.profile;
    let empty = profile.infos.is_empty() && profile.notes.version.is_none();
    empty && (profile.command.is_none() || profile.problems.count > 0)
}

/// Nothing that a report could be about was read.
fn is_hopeless(loaded: &Loaded) -> bool {
    let nothing = loaded.profile.infos.is_empty() && loaded.profile.command.is_none();
    let other_kind = matches!(
        loaded.stopped_by,
        Some(LoadError::RawFile { .. } | LoadError::Read(ReadError::NewerVersion { .. }))
    );
    other_kind || nothing
}

/// Everything wrong with the file, in words.
#[must_use]
pub fn complaints(loaded: &Loaded) -> Vec<String> {
    let mut complaints = Vec::new();
    if let Some(error) = &loaded.stopped_by {
        complaints.push(describe_stop(error));
    }
    if loaded.last_line_cut {
        complaints.push("the file ends inside a line, which was left out".into());
    }
    if loaded.profile.notes.cut_short() {
        complaints.push(
            "the recording was cut short; the report covers what was written until then".into(),
        );
    }
    let problems = &loaded.profile.problems;
    complaints.extend(problems.first.iter().cloned());
    let more = problems.count.saturating_sub(problems.first.len() as u64);
    if more > 0 {
        complaints.push(format!("and {more} more problems of this kind"));
    }
    complaints
}

fn describe_stop(error: &LoadError) -> String {
    match error {
        LoadError::Read(ReadError::Io { place, source }) => match damage_of(source) {
            Some(Damage::Truncated) => format!("the compressed data ends early, behind {place}"),
            Some(Damage::Corrupt) => format!("the compressed data is damaged behind {place}"),
            None => format!("cannot read on behind {place}: {source}"),
        },
        other => other.to_string(),
    }
}

/// What the recorder lost is no damage of the file, but changes what its figures mean.
fn warn_of_losses(path: &Path, loaded: &Loaded, err: &mut impl Write) -> io::Result<()> {
    let notes = &loaded.profile.notes;
    for (reason, count) in &notes.lost {
        writeln!(
            err,
            "warning: {}: {count} events were lost: {reason}",
            path.display()
        )?;
    }
    Ok(())
}
