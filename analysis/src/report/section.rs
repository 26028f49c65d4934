//! One section of the report: a ranking by one cost.

use std::io::{self, Write};

use crate::cost::{CostKind, Costs};
use crate::merge::Group;
use crate::number_format::{Unit, percentage, size};
use crate::profile::Profile;
use crate::report::backtrace::BacktracePrinter;
use crate::report::{OnCycle, Order, ReportOptions, Style};

/// Writes sections; remembers whether a number with decimals has been printed.
pub(crate) struct SectionWriter<'a, W> {
    profile: &'a Profile,
    options: &'a ReportOptions,
    printer: BacktracePrinter<'a>,
    out: &'a mut W,
    on_cycle: &'a mut OnCycle<'a>,
    formatted: bool,
}

/// What a label stands at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    /// A ranking entry.
    Entry,
    /// A backtrace within a merged entry.
    Backtrace,
}

impl<'a, W: Write> SectionWriter<'a, W> {
    pub(crate) fn new(
        profile: &'a Profile,
        options: &'a ReportOptions,
        out: &'a mut W,
        on_cycle: &'a mut OnCycle<'_>,
    ) -> Self {
        let printer = BacktracePrinter {
            tables: &profile.tables,
            style: options.style,
            shorten_templates: options.shorten_templates,
        };
        Self {
            profile,
            options,
            printer,
            out,
            on_cycle,
            formatted: false,
        }
    }

    /// Whether a size or a percentage has been printed.
    pub(crate) fn has_formatted(&self) -> bool {
        self.formatted
    }

    /// Writes the ranking by `kind`.
    pub(crate) fn section(&mut self, kind: CostKind, order: &mut Order) -> io::Result<()> {
        writeln!(self.out, "{}", title(kind))?;
        if self.options.merge {
            self.merged(kind, order)?;
        } else {
            self.unmerged(kind, order)?;
        }
        writeln!(self.out)
    }

    fn merged(&mut self, kind: CostKind, order: &mut Order) -> io::Result<()> {
        order.rank_groups(kind);
        let limit = usize::try_from(self.options.peak_limit).unwrap_or(usize::MAX);
        for position in 0..order.group_order.len().min(limit) {
            let number = order.group_order[position];
            let Some(group) = order.groups.get(number as usize) else {
                break;
            };
            if self.is_negligible(group.costs.get(kind)) {
                break;
            }
            self.label(kind, &group.costs, Label::Entry)?;
            self.printer.ip(group.ip, 0, self.out)?;
            if group.ip.is_none() {
                if self.options.style == Style::Mended {
                    writeln!(self.out)?;
                }
                continue;
            }
            order.rank_within(number, &self.profile.entries, kind);
            if let Some(group) = order.groups.get(number as usize) {
                self.backtraces(kind, group)?;
            }
            writeln!(self.out)?;
        }
        Ok(())
    }

    /// The backtraces of a merged entry, then what is left of its cost.
    fn backtraces(&mut self, kind: CostKind, group: &Group) -> io::Result<()> {
        let limit = usize::try_from(self.options.sub_peak_limit).unwrap_or(usize::MAX);
        let mut rest = group.costs.get(kind);
        for &position in group.entries.iter().take(limit) {
            let Some(entry) = self.profile.entries.get(position as usize) else {
                break;
            };
            let cost = entry.costs.get(kind);
            if self.is_negligible(cost) {
                break;
            }
            rest = rest.wrapping_sub(cost);
            self.label(kind, &entry.costs, Label::Backtrace)?;
            self.printer
                .backtrace(entry.trace, 2, true, self.out, self.on_cycle)?;
        }
        if group.entries.len() > limit {
            let rest = self.rest(kind, rest);
            writeln!(
                self.out,
                "  and {rest} from {} other places",
                group.entries.len() - limit
            )?;
        }
        Ok(())
    }

    /// The rest of a cost. heaptrack prints all but calls as sizes, temporary allocations too.
    fn rest(&mut self, kind: CostKind, rest: i64) -> String {
        let plain = match self.options.style {
            Style::Heaptrack => kind == CostKind::Allocations,
            Style::Mended => !kind.is_bytes(),
        };
        if plain {
            rest.to_string()
        } else {
            self.size(rest)
        }
    }

    fn unmerged(&mut self, kind: CostKind, order: &mut Order) -> io::Result<()> {
        order.rank_entries(&self.profile.entries, kind);
        let limit = usize::try_from(self.options.peak_limit).unwrap_or(usize::MAX);
        for &position in order.entry_order.iter().take(limit) {
            let Some(entry) = self.profile.entries.get(position as usize) else {
                break;
            };
            if self.is_negligible(entry.costs.get(kind)) {
                break;
            }
            self.label(kind, &entry.costs, Label::Entry)?;
            self.printer
                .backtrace(entry.trace, 1, false, self.out, self.on_cycle)?;
            writeln!(self.out)?;
        }
        writeln!(self.out)
    }

    fn is_negligible(&self, cost: i64) -> bool {
        cost == 0 || cost.unsigned_abs() < self.options.min_cost
    }

    fn label(&mut self, kind: CostKind, costs: &Costs, label: Label) -> io::Result<()> {
        let calls = costs.allocations;
        let text = match (kind, label) {
            (CostKind::Allocations, Label::Entry) => {
                let peak = self.size(costs.peak);
                format!("{calls} calls to allocation functions with {peak} peak consumption from")
            }
            (CostKind::Allocations, Label::Backtrace) => {
                let peak = self.size(costs.peak);
                format!("{calls} calls with {peak} peak consumption from:")
            }
            (CostKind::Peak, Label::Entry) => {
                let peak = self.size(costs.peak);
                format!("{peak} peak memory consumed over {calls} calls from")
            }
            (CostKind::Peak, Label::Backtrace) => {
                let peak = self.size(costs.peak);
                format!("{peak} consumed over {calls} calls from:")
            }
            (CostKind::Leaked, label) => {
                let leaked = self.size(costs.leaked);
                format!("{leaked} leaked over {calls} calls from{}", colon(label))
            }
            (CostKind::Temporary, label) => {
                self.formatted = true;
                let temporary = costs.temporary;
                let share = percentage(temporary, calls);
                let colon = colon(label);
                format!(
                    "{temporary} temporary allocations of {calls} allocations in total ({share}%) from{colon}"
                )
            }
        };
        writeln!(self.out, "{text}")
    }

    fn size(&mut self, bytes: i64) -> String {
        self.formatted = true;
        size(bytes, Unit::Short)
    }
}

fn colon(label: Label) -> &'static str {
    if label == Label::Backtrace { ":" } else { "" }
}

fn title(kind: CostKind) -> &'static str {
    match kind {
        CostKind::Allocations => "MOST CALLS TO ALLOCATION FUNCTIONS",
        CostKind::Peak => "PEAK MEMORY CONSUMERS",
        CostKind::Leaked => "MEMORY LEAKS",
        CostKind::Temporary => "MOST TEMPORARY ALLOCATIONS",
    }
}
