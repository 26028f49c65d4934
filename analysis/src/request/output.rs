//! Writing what a request asks for: the text report, and files beside it.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::files::Files;
use crate::folded::{FoldedOptions, write_folded};
use crate::profile::Profile;
use crate::report::write_report;
use crate::request::input::Input;
use crate::request::{Request, RequestError, View};
use crate::suppression::Suppressed;
use crate::tree::{write_callers_and_callees, write_tree};
use crate::window::Window;

/// Writes the report and what was asked for behind it; returns the order of the entries.
pub(super) fn write_text(
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
    profile.notes.left_out.write(out)?;
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

pub(super) fn announce(request: &Request, out: &mut impl Write) -> io::Result<()> {
    let wait = "please wait, this might take some time...";
    writeln!(out, "reading file \"{}\" - {wait}", request.file.display())?;
    if let Some(base) = &request.base {
        writeln!(out, "reading diff file \"{}\" - {wait}", base.display())?;
    }
    out.flush()
}

pub(super) fn write_commands(commands: &[Option<Vec<u8>>], out: &mut impl Write) -> io::Result<()> {
    for command in commands.iter().flatten() {
        out.write_all(b"Debuggee command was: ")?;
        out.write_all(command)?;
        out.write_all(b"\n")?;
    }
    out.write_all(b"finished reading file, now analyzing data:\n\n")
}

pub(super) fn write_side_files(
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

pub(super) fn create(
    path: &Path,
    files: &dyn Files,
) -> Result<BufWriter<Box<dyn Write>>, RequestError> {
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
