//! What changed between two traces, in one table.
//!
//! Unlike [`crate::diff`], which matches frames by file and line and so takes every moved line for
//! another place, backtraces are matched by the names of their functions; a function that is not
//! known counts as its module. So two builds of a program can be compared.

use std::collections::HashMap;
use std::io::{self, Write};

use htrace_trace_format::TraceIndex;

use crate::cost::{CostKind, Costs};
use crate::filter::stops_anywhere;
use crate::number_format::{Unit, size};
use crate::profile::Profile;
use crate::tables::Tables;
use crate::template;

/// What happened to a backtrace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It costs something now, and did not before.
    Appeared,
    /// It cost something before, and does not now.
    Vanished,
    /// It costs more.
    Grew,
    /// It costs less.
    Shrank,
}

impl Change {
    /// The word in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Appeared => "appeared",
            Self::Vanished => "vanished",
            Self::Grew => "grew",
            Self::Shrank => "shrank",
        }
    }
}

/// One backtrace of either trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Function names, leaf first.
    pub stack: Vec<String>,
    /// Costs in the base.
    pub before: Costs,
    /// Costs in the other.
    pub after: Costs,
}

impl Row {
    /// The difference of one cost.
    #[must_use]
    pub fn delta(&self, kind: CostKind) -> i64 {
        self.after.get(kind).wrapping_sub(self.before.get(kind))
    }

    /// What happened, seen by one cost; `None` when nothing did.
    #[must_use]
    pub fn change(&self, kind: CostKind) -> Option<Change> {
        match (self.before.get(kind), self.after.get(kind)) {
            (before, after) if before == after => None,
            (0, _) => Some(Change::Appeared),
            (_, 0) => Some(Change::Vanished),
            (before, after) if after > before => Some(Change::Grew),
            _ => Some(Change::Shrank),
        }
    }
}

/// Two traces, compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// All backtraces of either.
    pub rows: Vec<Row>,
    /// Totals of the base.
    pub before: Costs,
    /// Totals of the other.
    pub after: Costs,
}

/// Compares `before` and `after`.
#[must_use]
pub fn compare(before: &Profile, after: &Profile) -> Comparison {
    let mut rows: HashMap<Vec<String>, (Costs, Costs)> = HashMap::new();
    for entry in &before.entries {
        rows.entry(stack(&before.tables, entry.trace))
            .or_default()
            .0 += entry.costs;
    }
    for entry in &after.entries {
        rows.entry(stack(&after.tables, entry.trace)).or_default().1 += entry.costs;
    }
    let mut rows: Vec<Row> = rows
        .into_iter()
        .map(|(stack, (before, after))| Row {
            stack,
            before,
            after,
        })
        .collect();
    rows.sort_by(|left, right| left.stack.cmp(&right.stack));
    Comparison {
        rows,
        before: before.total,
        after: after.total,
    }
}

/// The names of a backtrace, leaf first, inlined functions too.
fn stack(tables: &Tables, trace: TraceIndex) -> Vec<String> {
    let mut names = Vec::new();
    for (_, ip) in tables.walk(trace) {
        for frame in [&ip.frame].into_iter().chain(tables.inlined(&ip)) {
            names.push(if frame.function.is_none() {
                let module = tables.strings.get(ip.module);
                format!("?? in {}", String::from_utf8_lossy(module))
            } else {
                String::from_utf8_lossy(tables.strings.get(frame.function)).into_owned()
            });
        }
        if stops_anywhere(tables, &ip) {
            break;
        }
    }
    names
}

impl Comparison {
    /// Rows that changed: growth first, largest first, then what shrank, most first.
    #[must_use]
    pub fn changed(&self, kind: CostKind) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self
            .rows
            .iter()
            .filter(|row| row.change(kind).is_some())
            .collect();
        rows.sort_by_key(|row| {
            let delta = row.delta(kind);
            (delta < 0, std::cmp::Reverse(delta.unsigned_abs()))
        });
        rows
    }

    /// Writes the table: totals, then up to `limit` rows of growth and as many of shrinking.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, kind: CostKind, limit: usize, out: &mut impl Write) -> io::Result<()> {
        self.write_totals(out)?;
        let changed = self.changed(kind);
        let (shrunk, grown): (Vec<&Row>, Vec<&Row>) =
            changed.into_iter().partition(|row| row.delta(kind) < 0);
        writeln!(
            out,
            "\n{:<9} {:>12} {:>12} {:>12}  BACKTRACE",
            "CHANGE", "DELTA", "BEFORE", "AFTER"
        )?;
        for (rows, word) in [(grown, "more that grew"), (shrunk, "more that shrank")] {
            for row in rows.iter().take(limit) {
                write_row(row, kind, out)?;
            }
            if rows.len() > limit {
                writeln!(out, "({} {word})", rows.len() - limit)?;
            }
        }
        Ok(())
    }

    fn write_totals(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "{:<28} {:>12} {:>12} {:>12}",
            "", "DELTA", "BEFORE", "AFTER"
        )?;
        let names = [
            (CostKind::Allocations, "calls to allocation functions"),
            (CostKind::Temporary, "temporary allocations"),
            (CostKind::Peak, "peak heap memory"),
            (CostKind::Leaked, "memory leaked"),
        ];
        for (kind, name) in names {
            let (before, after) = (self.before.get(kind), self.after.get(kind));
            let delta = signed(kind, after.wrapping_sub(before));
            let (before, after) = (unsigned(kind, before), unsigned(kind, after));
            writeln!(out, "{name:<28} {delta:>12} {before:>12} {after:>12}")?;
        }
        Ok(())
    }
}

/// Functions of a backtrace that the table shows.
const SHOWN_FRAMES: usize = 4;

fn write_row(row: &Row, kind: CostKind, out: &mut impl Write) -> io::Result<()> {
    let change = row.change(kind).map_or("", Change::name);
    let delta = signed(kind, row.delta(kind));
    let before = unsigned(kind, row.before.get(kind));
    let after = unsigned(kind, row.after.get(kind));
    write!(out, "{change:<9} {delta:>12} {before:>12} {after:>12}  ")?;
    if row.stack.is_empty() {
        out.write_all(b"??")?;
    }
    for (number, name) in row.stack.iter().take(SHOWN_FRAMES).enumerate() {
        if number > 0 {
            out.write_all(b" <- ")?;
        }
        out.write_all(&template::shorten(name.as_bytes()))?;
    }
    if row.stack.len() > SHOWN_FRAMES {
        write!(out, " <- {} more", row.stack.len() - SHOWN_FRAMES)?;
    }
    writeln!(out)
}

fn unsigned(kind: CostKind, cost: i64) -> String {
    if kind.is_bytes() {
        size(cost, Unit::Short)
    } else {
        cost.to_string()
    }
}

fn signed(kind: CostKind, delta: i64) -> String {
    let plus = if delta > 0 { "+" } else { "" };
    format!("{plus}{}", unsigned(kind, delta))
}
