//! Many traces in one table, read in parallel.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use crate::cost::Costs;
use crate::files::Files;
use crate::number_format::{Unit, size};
use crate::request::{STATUS_DAMAGED, STATUS_FAILED, STATUS_OK, read};
use crate::warnings;

/// What the table says of one trace.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Row {
    Read {
        runtime: i64,
        total: Costs,
        whole: bool,
    },
    Failed(String),
}

/// Writes one line for each of `paths`, in their order, and a line of sums. Returns the exit
/// status: 3 when a trace is damaged, 1 when none could be read.
///
/// # Errors
/// Those of `out`.
pub fn write_folder(
    paths: &[PathBuf],
    files: &(dyn Files + Sync),
    threads: usize,
    out: &mut impl Write,
) -> io::Result<u8> {
    let rows = read_all(paths, files, threads);
    writeln!(
        out,
        "{:>10} {:>12} {:>12} {:>10} {:>10}  {:<7}  FILE",
        "RUNTIME", "CALLS", "TEMPORARY", "PEAK", "LEAKED", "STATE"
    )?;
    let mut sum = Costs::default();
    for (path, row) in paths.iter().zip(&rows) {
        let name = path.display();
        match row {
            Row::Read {
                runtime,
                total,
                whole,
            } => {
                let state = if *whole { "whole" } else { "damaged" };
                write_row(
                    &format!("{:.2}s", *runtime as f64 / 1000.0),
                    total,
                    state,
                    out,
                )?;
                writeln!(out, "{name}")?;
                sum += *total;
            }
            Row::Failed(reason) => {
                writeln!(out, "{:>58}  {:<7}  {name}: {reason}", "", "refused")?;
            }
        }
    }
    write_row("", &sum, "", out)?;
    writeln!(out, "{} traces", rows.len())?;
    Ok(status(&rows))
}

fn write_row(runtime: &str, total: &Costs, state: &str, out: &mut impl Write) -> io::Result<()> {
    write!(
        out,
        "{runtime:>10} {:>12} {:>12} {:>10} {:>10}  {state:<7}  ",
        total.allocations,
        total.temporary,
        size(total.peak, Unit::Short),
        size(total.leaked, Unit::Short),
    )
}

fn status(rows: &[Row]) -> u8 {
    let failed = rows
        .iter()
        .filter(|row| matches!(row, Row::Failed(_)))
        .count();
    if failed == rows.len() {
        STATUS_FAILED
    } else if failed > 0
        || rows
            .iter()
            .any(|row| matches!(row, Row::Read { whole: false, .. }))
    {
        STATUS_DAMAGED
    } else {
        STATUS_OK
    }
}

/// Reads all traces on `threads` threads; each takes the next one that nobody has taken.
fn read_all(paths: &[PathBuf], files: &(dyn Files + Sync), threads: usize) -> Vec<Row> {
    let next = AtomicUsize::new(0);
    let (sender, results) = channel();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, paths.len().max(1)) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some((at, path)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    paths.get(at).map(|path| (at, path))
                } {
                    // The other end outlives the threads.
                    let _ = sender.send((at, read_one(path, files)));
                }
            });
        }
        drop(sender);
    });
    let mut rows = vec![Row::Failed("not read".into()); paths.len()];
    for (at, row) in results {
        if let Some(slot) = rows.get_mut(at) {
            *slot = row;
        }
    }
    rows
}

fn read_one(path: &std::path::Path, files: &dyn Files) -> Row {
    let loaded = match read(path, files, &mut ()) {
        Ok(loaded) => loaded,
        Err(error) => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            return Row::Failed(format!("{error}{}", source.unwrap_or_default()));
        }
    };
    match warnings::judge(path, &loaded, false, &mut io::sink()) {
        Ok(whole) => Row::Read {
            runtime: loaded.profile.runtime,
            total: loaded.profile.total,
            whole,
        },
        Err(error) => Row::Failed(error.to_string()),
    }
}
