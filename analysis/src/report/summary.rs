//! The closing lines of the report.

use std::io::{self, Write};

use crate::number_format::{Unit, size};
use crate::profile::Profile;
use crate::report::{ReportOptions, Style};
use crate::suppression::Suppressed;

/// Writes the totals. `formatted`: a number with two decimals was printed before, which in
/// heaptrack_print decides how many decimals the run time has.
pub(crate) fn write_summary(
    profile: &Profile,
    options: &ReportOptions,
    formatted: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let seconds = profile.runtime as f64 / 1000.0;
    let decimals = if formatted || options.style == Style::Mended {
        2
    } else {
        6
    };
    let per_second = match profile.runtime {
        0 => 1.0,
        runtime => 1000.0 / runtime as f64,
    };
    let rate = |count: i64| (count as f64 * per_second) as i64;
    let total = &profile.total;
    let (calls, temporary) = (total.allocations, total.temporary);
    writeln!(out, "total runtime: {seconds:.decimals$}s.")?;
    writeln!(
        out,
        "calls to allocation functions: {calls} ({}/s)",
        rate(calls)
    )?;
    writeln!(
        out,
        "temporary memory allocations: {temporary} ({}/s)",
        rate(temporary)
    )?;
    writeln!(
        out,
        "peak heap memory consumption: {}",
        size(total.peak, Unit::Short)
    )?;
    let rss = size(profile.peak_rss(), Unit::Short);
    writeln!(out, "peak RSS (including heaptrack overhead): {rss}")?;
    writeln!(
        out,
        "total memory leaked: {}",
        size(total.leaked, Unit::Short)
    )?;
    if profile.suppressed != 0 {
        writeln!(
            out,
            "suppressed leaks: {}",
            size(profile.suppressed, Unit::Short)
        )?;
    }
    Ok(())
}

/// Writes which patterns suppressed how much.
pub(crate) fn write_suppressions(used: &[Suppressed], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "Suppressions used:")?;
    writeln!(out, "{:>16} {:>16} pattern", "matches", "leaked")?;
    for used in used {
        write!(
            out,
            "{:>16} {:>16} ",
            used.matches,
            size(used.leaked, Unit::Long)
        )?;
        out.write_all(&used.pattern)?;
        writeln!(out)?;
    }
    Ok(())
}
