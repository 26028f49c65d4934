//! `htrace-bpf report`: from a file to the report and its side files.
//!
//! [`Request`] says what is wanted, [`run`] does it in named steps. Where the words go (standard
//! output, standard error) and how files are opened is the caller's.

mod error;
mod input;
mod options;
mod output;

use std::io::Write;

pub use error::RequestError;
pub use input::read;
pub use options::{Format, Request, Suppressions, View};

use crate::files::Files;
use crate::filter::{self, Reach};
use crate::json::write_json;
use crate::profile::Profile;
use crate::same_places;
use crate::suppression::{self, Suppressed};
use input::{read_file, read_suppressions, subtract_base};
use output::{announce, write_commands, write_side_files, write_text};

/// Everything was read and made sense.
pub const STATUS_OK: u8 = 0;
/// The report could not be made.
pub const STATUS_FAILED: u8 = 1;
/// The report is about what could be read of a damaged file.
pub const STATUS_DAMAGED: u8 = 3;

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

/// Applies suppressions, then filters, then adds up what reads the same.
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
    same_places::unite(profile);
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
