//! Whether a trace is whole, and what is odd about it.

use std::io::{self, Write};

use htrace_trace_format::TargetExit;

use crate::left_out::words;
use crate::load::Loaded;
use crate::warnings::complaints;

/// Writes what there is to say about `loaded`: one line on its state, then what is wrong, then
/// what is odd, then how much it holds.
///
/// # Errors
/// Those of `out`.
pub fn write_check(name: &str, loaded: &Loaded, out: &mut impl Write) -> io::Result<()> {
    let state = if loaded.is_whole() {
        "whole"
    } else {
        "damaged"
    };
    writeln!(out, "{name}: {state}")?;
    for complaint in complaints(loaded) {
        writeln!(out, "  wrong: {complaint}")?;
    }
    for oddity in oddities(loaded) {
        writeln!(out, "  odd: {oddity}")?;
    }
    write_contents(loaded, out)
}

/// What is no damage, but worth knowing.
#[must_use]
pub fn oddities(loaded: &Loaded) -> Vec<String> {
    let profile = &loaded.profile;
    let mut oddities = Vec::new();
    for (reason, count) in &profile.notes.lost {
        oddities.push(format!("{count} events were lost: {reason}"));
    }
    for (reason, count) in profile.notes.cut_stacks() {
        let within = profile.notes.cuts(reason);
        let within = within.map(|(module, count)| format!("{count} in {module}"));
        let modules = within.collect::<Vec<_>>().join(", ");
        let colon = if modules.is_empty() { "" } else { ": " };
        oddities.push(format!(
            "the stacks of {count} allocations are cut: {reason}{colon}{modules}"
        ));
    }
    if profile.total.allocations == 0 {
        oddities.push("no allocation was recorded".into());
    }
    if profile.total.leaked < 0 {
        oddities.push("more bytes are freed than allocated".into());
    }
    let unknown = profile
        .entries
        .iter()
        .filter(|entry| entry.trace.is_none())
        .count();
    if unknown > 0 {
        oddities.push("some allocations have no backtrace".into());
    }
    let strings = &profile.tables.strings;
    if !profile.tables.ips().is_empty()
        && profile
            .tables
            .ips()
            .iter()
            .all(|ip| strings.get(ip.frame.function).is_empty())
    {
        oddities.push("no function has a name; were the modules at hand when it was made?".into());
    }
    oddities
}

fn write_contents(loaded: &Loaded, out: &mut impl Write) -> io::Result<()> {
    let profile = &loaded.profile;
    match &profile.notes.version {
        Some(version) => writeln!(out, "  written by: htrace-bpf {version}")?,
        None => writeln!(out, "  written by: heaptrack or another program")?,
    }
    if let Some(command) = &profile.command {
        writeln!(out, "  command: {}", String::from_utf8_lossy(command))?;
    }
    if profile.attached {
        writeln!(out, "  attached to a running process")?;
    }
    match profile.notes.exit {
        Some(TargetExit::Code(code)) => writeln!(out, "  the program exited with {code}")?,
        Some(TargetExit::Signal(signal)) => writeln!(out, "  signal {signal} ended the program")?,
        Some(TargetExit::Detached) => writeln!(out, "  the program ran on")?,
        None => {}
    }
    let left_out = &profile.notes.left_out;
    for (choice, of_it) in &left_out.choices {
        writeln!(out, "  {} {}", of_it.allocations, words(choice))?;
    }
    if !left_out.pauses.is_empty() {
        writeln!(
            out,
            "  times that the recording paused: {}",
            left_out.pauses.len()
        )?;
    }
    let tables = &profile.tables;
    writeln!(
        out,
        "  {} allocations over {:.2} s, {} backtraces, {} instruction pointers, {} strings",
        profile.total.allocations,
        profile.runtime as f64 / 1000.0,
        profile.entries.len(),
        tables.ips().len(),
        tables.strings.len(),
    )
}
