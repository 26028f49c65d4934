//! Flame graphs as SVG, drawn by inferno from folded stacks.

use std::collections::BTreeMap;
use std::io::{self, Write};

use inferno::{differential, flamegraph};

use crate::cost::CostKind;
use crate::folded::{FoldedOptions, fold};
use crate::profile::Profile;
use crate::report::Style;

/// What the picture is of.
#[derive(Clone, Copy, Debug)]
pub struct FlamegraphOptions {
    /// The cost that is a frame's width.
    pub kind: CostKind,
    /// Leave out template arguments.
    pub shorten_templates: bool,
    /// The leaf at the bottom.
    pub reverse: bool,
}

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum FlamegraphError {
    /// No backtrace costs anything of this kind.
    #[error("nothing to draw: no backtrace has a cost of the kind {0}")]
    Empty(&'static str),
    /// The picture could not be written.
    #[error("cannot write the flame graph")]
    Write(#[from] io::Error),
}

/// Draws `profile`; with `base`, frames are coloured by how much more (red) or less (blue) they
/// cost than there.
///
/// # Errors
/// See [`FlamegraphError`].
pub fn write_svg(
    profile: &Profile,
    base: Option<&Profile>,
    options: FlamegraphOptions,
    out: &mut impl Write,
) -> Result<(), FlamegraphError> {
    let lines = lines(&stacks(profile, options));
    let lines = match base {
        Some(base) => compared(&self::lines(&stacks(base, options)), &lines)?,
        None => lines,
    };
    if lines.is_empty() {
        return Err(FlamegraphError::Empty(options.kind.name()));
    }
    let mut svg = svg_options(profile, base.is_some(), options);
    flamegraph::from_lines(&mut svg, lines.lines(), out)?;
    Ok(())
}

/// Costs by folded stack. What costs nothing or less has no width.
fn stacks(profile: &Profile, options: FlamegraphOptions) -> BTreeMap<String, u64> {
    let folding = FoldedOptions {
        style: Style::Mended,
        kind: options.kind,
        shorten_templates: options.shorten_templates,
    };
    let mut stacks = BTreeMap::new();
    let mut stack = Vec::new();
    for entry in &profile.entries {
        let Ok(cost @ 1..) = u64::try_from(entry.costs.get(options.kind)) else {
            continue;
        };
        stack.clear();
        fold(&profile.tables, entry.trace, &folding, &mut stack);
        let sum: &mut u64 = stacks
            .entry(String::from_utf8_lossy(&stack).into_owned())
            .or_default();
        *sum = sum.saturating_add(cost);
    }
    stacks
}

fn lines(stacks: &BTreeMap<String, u64>) -> String {
    let mut lines = String::new();
    for (stack, cost) in stacks {
        lines.push_str(&format!("{stack} {cost}\n"));
    }
    lines
}

/// Lines with the costs before and after.
fn compared(before: &str, after: &str) -> io::Result<String> {
    let mut lines = Vec::new();
    let options = differential::Options::default();
    differential::from_readers(options, before.as_bytes(), after.as_bytes(), &mut lines)?;
    Ok(String::from_utf8_lossy(&lines).into_owned())
}

fn svg_options(
    profile: &Profile,
    is_diff: bool,
    options: FlamegraphOptions,
) -> flamegraph::Options<'static> {
    let mut svg = flamegraph::Options::default();
    let what = match options.kind {
        CostKind::Allocations => "allocations",
        CostKind::Temporary => "temporary allocations",
        CostKind::Leaked => "bytes leaked",
        CostKind::Peak => "bytes at the peak",
    };
    let against = if is_diff { ", compared" } else { "" };
    svg.title = format!("{what}{against}");
    svg.subtitle = profile
        .command
        .as_ref()
        .map(|command| String::from_utf8_lossy(command).into_owned());
    svg.count_name = if options.kind.is_bytes() {
        "bytes".into()
    } else {
        "allocations".into()
    };
    svg.colors = flamegraph::color::Palette::Basic(flamegraph::color::BasicPalette::Mem);
    svg.reverse_stack_order = options.reverse;
    svg.deterministic = true;
    svg
}
