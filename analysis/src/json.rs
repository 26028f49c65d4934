//! The report as JSON. The schema is versioned and documented in docs/report-json.md: fields are
//! only ever added within a version.

use std::collections::BTreeMap;
use std::io::{self, Write};

use htrace_trace_format::{Frame, StringIndex, TraceIndex};
use serde::Serialize;

use crate::cost::{CostKind, Costs};
use crate::filter::stops_anywhere;
use crate::left_out::{Choice, Pause};
use crate::merge::Group;
use crate::profile::Profile;
use crate::report::{Order, ReportOptions};
use crate::suppression::Suppressed;
use crate::tables::{Ip, Tables};

/// Version of the schema.
const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    schema_version: u32,
    command: Option<String>,
    attached: bool,
    whole: bool,
    runtime_ms: i64,
    peak_time_ms: i64,
    peak_rss_bytes: i64,
    total: CostFields,
    suppressed_bytes: i64,
    lost: BTreeMap<String, u64>,
    left_out: BTreeMap<String, Choice>,
    pauses: Vec<Pause>,
    stack_ends: BTreeMap<String, u64>,
    stack_cuts: Vec<StackCut>,
    rankings: Vec<Ranking>,
    suppressions: Vec<SuppressionFields>,
}

#[derive(Serialize)]
struct StackCut {
    reason: String,
    module: Option<String>,
    allocations: u64,
}

#[derive(Serialize)]
struct CostFields {
    allocations: i64,
    temporary: i64,
    leaked_bytes: i64,
    peak_bytes: i64,
}

impl From<Costs> for CostFields {
    fn from(costs: Costs) -> Self {
        Self {
            allocations: costs.allocations,
            temporary: costs.temporary,
            leaked_bytes: costs.leaked,
            peak_bytes: costs.peak,
        }
    }
}

#[derive(Serialize)]
struct Ranking {
    cost: &'static str,
    entries: Vec<RankingEntry>,
}

#[derive(Serialize)]
struct RankingEntry {
    costs: CostFields,
    /// The merged place, innermost function first; absent in unmerged rankings.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<Vec<FrameFields>>,
    backtraces: Vec<Backtrace>,
    /// Backtraces of the place that are not listed.
    other_backtraces: usize,
}

#[derive(Serialize)]
struct Backtrace {
    costs: CostFields,
    frames: Vec<FrameFields>,
}

#[derive(Serialize)]
struct FrameFields {
    function: Option<String>,
    file: Option<String>,
    line: Option<i32>,
    module: Option<String>,
    address: String,
    /// The function was inlined into the next frame.
    inlined: bool,
}

#[derive(Serialize)]
struct SuppressionFields {
    pattern: String,
    matches: u64,
    leaked_bytes: i64,
}

/// Writes the report that `options` ask for. `whole`: the trace was read without loss.
///
/// # Errors
/// Those of `out`.
pub fn write_json(
    profile: &Profile,
    suppressed: &[Suppressed],
    options: &ReportOptions,
    whole: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let report = Report {
        schema: "htrace-bpf-report",
        schema_version: SCHEMA_VERSION,
        command: profile.command.as_deref().map(text),
        attached: profile.attached,
        whole,
        runtime_ms: profile.runtime,
        peak_time_ms: profile.peak_time,
        peak_rss_bytes: profile.peak_rss(),
        total: profile.total.into(),
        suppressed_bytes: profile.suppressed,
        lost: profile.notes.lost.clone(),
        left_out: profile.notes.left_out.choices.clone(),
        pauses: profile.notes.left_out.pauses.clone(),
        stack_ends: profile.notes.stack_ends.clone(),
        stack_cuts: stack_cuts(profile),
        rankings: rankings(profile, options),
        suppressions: suppressed.iter().map(suppression_fields).collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &report)?;
    writeln!(out)
}

fn stack_cuts(profile: &Profile) -> Vec<StackCut> {
    let cuts = profile.notes.stack_cuts.iter();
    cuts.map(|((reason, module), &allocations)| StackCut {
        reason: reason.clone(),
        module: (!module.is_empty()).then(|| module.clone()),
        allocations,
    })
    .collect()
}

fn suppression_fields(used: &Suppressed) -> SuppressionFields {
    SuppressionFields {
        pattern: text(&used.pattern),
        matches: used.matches,
        leaked_bytes: used.leaked,
    }
}

fn rankings(profile: &Profile, options: &ReportOptions) -> Vec<Ranking> {
    let mut order = Order::new(profile, options);
    let wanted = |kind| match kind {
        CostKind::Allocations => options.allocators,
        CostKind::Peak => options.peaks,
        CostKind::Leaked => options.leaks,
        CostKind::Temporary => options.temporary,
    };
    let kinds = CostKind::ALL.into_iter().filter(|&kind| wanted(kind));
    kinds
        .map(|kind| Ranking {
            cost: kind.name(),
            entries: if options.merge {
                merged(profile, options, kind, &mut order)
            } else {
                unmerged(profile, options, kind, &mut order)
            },
        })
        .collect()
}

fn is_shown(options: &ReportOptions, cost: i64) -> bool {
    cost != 0 && cost.unsigned_abs() >= options.min_cost
}

fn limit(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn merged(
    profile: &Profile,
    options: &ReportOptions,
    kind: CostKind,
    order: &mut Order,
) -> Vec<RankingEntry> {
    order.rank_groups(kind);
    let top: Vec<u32> = order
        .group_order
        .iter()
        .copied()
        .take(limit(options.peak_limit))
        .collect();
    let mut entries = Vec::new();
    for number in top {
        order.rank_within(number, &profile.entries, kind);
        let Some(group) = order.groups.get(number as usize) else {
            break;
        };
        if !is_shown(options, group.costs.get(kind)) {
            break;
        }
        entries.push(merged_entry(profile, options, kind, group));
    }
    entries
}

fn merged_entry(
    profile: &Profile,
    options: &ReportOptions,
    kind: CostKind,
    group: &Group,
) -> RankingEntry {
    let members = group
        .entries
        .iter()
        .filter_map(|&at| profile.entries.get(at as usize));
    let backtraces: Vec<Backtrace> = members
        .take(limit(options.sub_peak_limit))
        .take_while(|entry| is_shown(options, entry.costs.get(kind)))
        .map(|entry| backtrace(&profile.tables, entry.trace, entry.costs))
        .collect();
    let ip = profile.tables.ip(group.ip);
    RankingEntry {
        costs: group.costs.into(),
        place: Some(frames_of(&profile.tables, &ip)),
        other_backtraces: group.entries.len() - backtraces.len(),
        backtraces,
    }
}

fn unmerged(
    profile: &Profile,
    options: &ReportOptions,
    kind: CostKind,
    order: &mut Order,
) -> Vec<RankingEntry> {
    order.rank_entries(&profile.entries, kind);
    order
        .entry_order
        .iter()
        .filter_map(|&at| profile.entries.get(at as usize))
        .take(limit(options.peak_limit))
        .take_while(|entry| is_shown(options, entry.costs.get(kind)))
        .map(|entry| RankingEntry {
            costs: entry.costs.into(),
            place: None,
            backtraces: vec![backtrace(&profile.tables, entry.trace, entry.costs)],
            other_backtraces: 0,
        })
        .collect()
}

fn backtrace(tables: &Tables, trace: TraceIndex, costs: Costs) -> Backtrace {
    let mut frames = Vec::new();
    for (_, ip) in tables.walk(trace) {
        frames.extend(frames_of(tables, &ip));
        if stops_anywhere(tables, &ip) {
            break;
        }
    }
    Backtrace {
        costs: costs.into(),
        frames,
    }
}

/// The functions at an instruction pointer, innermost first.
fn frames_of(tables: &Tables, ip: &Ip) -> Vec<FrameFields> {
    let outer = tables.inlined(ip);
    let mut frames: Vec<FrameFields> = [&ip.frame]
        .into_iter()
        .chain(outer)
        .map(|frame| frame_fields(tables, ip, frame))
        .collect();
    if let Some(last) = frames.last_mut() {
        last.inlined = false;
    }
    frames
}

fn frame_fields(tables: &Tables, ip: &Ip, frame: &Frame) -> FrameFields {
    let name = |index: StringIndex| (!index.is_none()).then(|| text(tables.strings.get(index)));
    let file = name(frame.file);
    FrameFields {
        function: name(frame.function),
        line: file.as_ref().map(|_| frame.line),
        file,
        module: name(ip.module),
        address: format!("0x{:x}", ip.address),
        inlined: true,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
