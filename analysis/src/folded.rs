//! Folded stacks: one line a backtrace, frames joined by `;`, then the cost. The input of flame
//! graph programs.

use std::io::{self, Write};

use htrace_trace_format::{Frame, IpIndex, TraceIndex};

use crate::cost::CostKind;
use crate::filter::stops_anywhere;
use crate::profile::Profile;
use crate::report::Style;
use crate::tables::{Ip, Tables};
use crate::template;

/// How stacks are folded.
#[derive(Clone, Copy, Debug)]
pub struct FoldedOptions {
    /// Oddities: heaptrack ends each frame with `;`, prints inlined functions from inner to outer
    /// in a list from outer to inner, and prints backtraces that cost nothing.
    pub style: Style,
    /// Which cost.
    pub kind: CostKind,
    /// Leave out template arguments.
    pub shorten_templates: bool,
}

/// Writes one line for each entry, in the given order of entries.
///
/// # Errors
/// Those of `out`.
pub fn write_folded(
    profile: &Profile,
    order: &[u32],
    options: &FoldedOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut line = Vec::new();
    for entry in order
        .iter()
        .filter_map(|&at| profile.entries.get(at as usize))
    {
        let cost = entry.costs.get(options.kind);
        if cost == 0 && options.style == Style::Mended {
            continue;
        }
        line.clear();
        fold(&profile.tables, entry.trace, options, &mut line);
        writeln!(line, " {cost}")?;
        out.write_all(&line)?;
    }
    Ok(())
}

/// Appends the folded stack of `trace` to `line`, outermost function first.
pub(crate) fn fold(
    tables: &Tables,
    trace: TraceIndex,
    options: &FoldedOptions,
    line: &mut Vec<u8>,
) {
    let stack = stack_from_outermost(tables, trace, options.style);
    if trace.is_none() || (stack.is_empty() && options.style == Style::Mended) {
        line.extend_from_slice(b"??");
        return;
    }
    match options.style {
        Style::Heaptrack => fold_as_heaptrack(tables, &stack, options, line),
        Style::Mended => fold_in_order(tables, &stack, options, line),
    }
}

/// The instruction pointers of a backtrace from the stop frame or the root down to the leaf.
fn stack_from_outermost(tables: &Tables, trace: TraceIndex, style: Style) -> Vec<Ip> {
    let mut stack = Vec::new();
    for (_, ip) in tables.walk(trace) {
        stack.push(ip);
        let stops = match style {
            Style::Heaptrack => tables.is_stop_ip(&ip),
            Style::Mended => stops_anywhere(tables, &ip),
        };
        if stops {
            break;
        }
    }
    stack.reverse();
    stack
}

fn fold_as_heaptrack(tables: &Tables, stack: &[Ip], options: &FoldedOptions, line: &mut Vec<u8>) {
    for ip in stack {
        push_name(tables, ip, &ip.frame, options, line);
        if !ip.frame.file.is_none() {
            push_file(tables, &ip.frame, line);
        }
        line.push(b';');
        for frame in tables.inlined(ip) {
            push_function(tables, frame, options, line);
            push_file(tables, frame, line);
            line.push(b';');
        }
    }
}

fn fold_in_order(tables: &Tables, stack: &[Ip], options: &FoldedOptions, line: &mut Vec<u8>) {
    let start = line.len();
    for ip in stack {
        for frame in tables.inlined(ip).iter().rev().chain([&ip.frame]) {
            if line.len() > start {
                line.push(b';');
            }
            let from = line.len();
            push_name(tables, ip, frame, options, line);
            if !frame.file.is_none() {
                push_file(tables, frame, line);
            }
            // The separator must not occur inside a name.
            line[from..]
                .iter_mut()
                .filter(|byte| **byte == b';')
                .for_each(|byte| *byte = b':');
        }
    }
}

fn push_name(tables: &Tables, ip: &Ip, frame: &Frame, options: &FoldedOptions, line: &mut Vec<u8>) {
    if frame.function.is_none() {
        line.extend_from_slice(format!("0x{:x}", ip.address).as_bytes());
    } else {
        push_function(tables, frame, options, line);
    }
}

fn push_function(tables: &Tables, frame: &Frame, options: &FoldedOptions, line: &mut Vec<u8>) {
    let name = tables.strings.get(frame.function);
    if options.shorten_templates {
        line.extend_from_slice(&template::shorten(name));
    } else {
        line.extend_from_slice(name);
    }
}

fn push_file(tables: &Tables, frame: &Frame, line: &mut Vec<u8>) {
    let path = tables.strings.get(frame.file);
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    line.extend_from_slice(b" (");
    line.extend_from_slice(name);
    line.push(b')');
}

/// Whether some backtrace runs in a circle, on which heaptrack_print crashes.
#[must_use]
pub fn has_cycle(profile: &Profile) -> bool {
    profile.entries.iter().any(|entry| {
        let mut steps = 0;
        let mut node = profile.tables.node(entry.trace);
        while node.ip != IpIndex::NONE && !profile.tables.is_stop_ip(&profile.tables.ip(node.ip)) {
            steps += 1;
            if steps > profile.tables.nodes().len() {
                return true;
            }
            node = profile.tables.node(node.parent);
        }
        false
    })
}
