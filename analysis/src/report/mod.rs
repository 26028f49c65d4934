//! The text report: rankings and summary in heaptrack_print's words and layout.
//!
//! The report knows profiles and writes text. It does not know files, options of a command line
//! or where the profile came from.

mod backtrace;
mod order;
mod section;
mod summary;

use std::io::{self, Write};

use htrace_trace_format::TraceIndex;

use crate::cost::CostKind;
use crate::profile::Profile;
use crate::suppression::Suppressed;

pub use order::Order;

/// Whether to repeat what heaptrack_print does where it is odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Byte for byte heaptrack_print's output.
    Heaptrack,
    /// The same layout with its oddities mended; docs/heaptrack-compat.md lists them.
    Mended,
}

/// Which parts of the report are wanted, and how long they may be.
#[derive(Clone, Copy, Debug)]
pub struct ReportOptions {
    /// Oddities.
    pub style: Style,
    /// Merge backtraces by leaf.
    pub merge: bool,
    /// Leave out template arguments.
    pub shorten_templates: bool,
    /// Print the ranking by calls.
    pub allocators: bool,
    /// Print the ranking by peak.
    pub peaks: bool,
    /// Print the ranking by leaks.
    pub leaks: bool,
    /// Print the ranking by temporary allocations.
    pub temporary: bool,
    /// Entries of a ranking.
    pub peak_limit: u64,
    /// Backtraces of a merged entry.
    pub sub_peak_limit: u64,
    /// Print the statistics of suppressions.
    pub suppressions: bool,
    /// Leave out ranking entries whose cost is smaller in magnitude.
    pub min_cost: u64,
}

impl Default for ReportOptions {
    fn default() -> Self {
        Self {
            style: Style::Mended,
            merge: true,
            shorten_templates: true,
            allocators: true,
            peaks: true,
            leaks: false,
            temporary: true,
            peak_limit: 10,
            sub_peak_limit: 5,
            suppressions: false,
            min_cost: 0,
        }
    }
}

/// Told of backtraces that end in a cycle: the trace index that came up twice.
pub type OnCycle<'a> = dyn FnMut(TraceIndex) + 'a;

/// Writes all sections and the summary. Returns the order in which the entries stand afterwards;
/// the order of the flame graph follows it.
///
/// # Errors
/// Those of `out`.
pub fn write_report(
    profile: &Profile,
    suppressed: &[Suppressed],
    options: &ReportOptions,
    out: &mut impl Write,
    on_cycle: &mut OnCycle<'_>,
) -> io::Result<Vec<u32>> {
    let mut order = Order::new(profile, options);
    let mut writer = section::SectionWriter::new(profile, options, out, on_cycle);
    for (wanted, kind) in [
        (options.allocators, CostKind::Allocations),
        (options.peaks, CostKind::Peak),
        (options.leaks, CostKind::Leaked),
        (options.temporary, CostKind::Temporary),
    ] {
        if wanted {
            writer.section(kind, &mut order)?;
        }
    }
    let formatted = writer.has_formatted();
    summary::write_summary(profile, options, formatted, out)?;
    if options.suppressions && profile.suppressed != 0 {
        summary::write_suppressions(suppressed, out)?;
    }
    Ok(order.into_entries())
}
