//! The difference of two profiles, as heaptrack_print computes it: FILE minus BASE, backtrace by
//! backtrace, matched by module, function, file and line of every frame.
//!
//! The steps and their order, down to the sorts, are heaptrack's, because the order of the result
//! shows in reports and flame graphs.

use std::cmp::Ordering;

use htrace_trace_format::{Frame, IpIndex, StringIndex, TraceIndex};
use rustc_hash::FxHashMap;

use crate::accounting::Entry;
use crate::cost::Costs;
use crate::profile::Profile;
use crate::report::Style;
use crate::std_sort::{lower_bound, std_sort};
use crate::tables::{Ip, Node, PlaceKey, Tables};

/// BASE has allocations without a backtrace, which heaptrack_print cannot subtract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the base has allocations without a backtrace")]
pub struct UnknownTraceInBase;

/// Subtracts `base` from `file`. Afterwards the entries are in order of their backtraces, and
/// those that cost nothing any more are gone.
///
/// # Errors
/// In heaptrack's style, [`UnknownTraceInBase`].
pub fn subtract(
    file: &mut Profile,
    base: &Profile,
    style: Style,
) -> Result<(), UnknownTraceInBase> {
    if style == Style::Heaptrack && base.entries.iter().any(|entry| entry.trace.is_none()) {
        return Err(UnknownTraceInBase);
    }
    subtract_totals(file, base, style);
    sort_and_sum(file);
    let translation = Translation::new(&mut file.tables, base);
    let mut ips = SortedIps::new(&file.tables);
    for entry in &base.entries {
        subtract_entry(file, &translation, &mut ips, entry);
    }
    file.entries.retain(|entry| !entry.costs.is_zero());
    Ok(())
}

fn subtract_totals(file: &mut Profile, base: &Profile, style: Style) {
    file.total -= base.total;
    file.runtime = file.runtime.wrapping_sub(base.runtime);
    if style == Style::Mended && file.page_size != base.page_size {
        // Pages of different sizes cannot be subtracted; bytes can.
        let bytes = file.peak_rss().wrapping_sub(base.peak_rss());
        (file.peak_rss_pages, file.page_size) = (bytes, 1);
        return;
    }
    file.peak_rss_pages = file.peak_rss_pages.wrapping_sub(base.peak_rss_pages);
    if style == Style::Heaptrack {
        // heaptrack subtracts the page size too: 0 on one machine, so the peak is always 0 bytes.
        file.page_size = file.page_size.wrapping_sub(base.page_size);
    }
    file.pages = file.pages.wrapping_sub(base.pages);
}

/// Sorts the entries by backtrace and adds equal ones up.
fn sort_and_sum(file: &mut Profile) {
    let tables = &file.tables;
    std_sort(&mut file.entries, &mut |left, right| {
        compare_in(tables, left.trace, right.trace) == Ordering::Less
    });
    let mut summed: Vec<Entry> = Vec::with_capacity(file.entries.len());
    for entry in &file.entries {
        match summed.last_mut() {
            Some(last) if compare_in(tables, last.trace, entry.trace) == Ordering::Equal => {
                last.costs += entry.costs;
            }
            _ => summed.push(*entry),
        }
    }
    file.entries = summed;
}

fn compare_in(tables: &Tables, left: TraceIndex, right: TraceIndex) -> Ordering {
    let key = |node: Node| tables.ip(node.ip).key();
    let side = Side { tables, key: &key };
    compare(&side, left, &side, right, true)
}

/// One side of a comparison.
struct Side<'a> {
    tables: &'a Tables,
    key: &'a dyn Fn(Node) -> PlaceKey,
}

/// Compares two backtraces: shorter ones first, then from the root to the leaf by key. `same`: both
/// sides are the same tables, so equal indices are equal backtraces.
fn compare(
    left: &Side<'_>,
    mut left_trace: TraceIndex,
    right: &Side<'_>,
    mut right_trace: TraceIndex,
    same: bool,
) -> Ordering {
    let mut pairs = Vec::new();
    // Bounded because a hostile tree may have cycles.
    let most = left.tables.nodes().len() + right.tables.nodes().len();
    while !left_trace.is_none() && !right_trace.is_none() {
        if (same && left_trace == right_trace) || pairs.len() > most {
            break;
        }
        let nodes = (left.tables.node(left_trace), right.tables.node(right_trace));
        pairs.push(nodes);
        (left_trace, right_trace) = (nodes.0.parent, nodes.1.parent);
    }
    match (left_trace.is_none(), right_trace.is_none()) {
        (true, false) => return Ordering::Less,
        (false, true) => return Ordering::Greater,
        _ => {}
    }
    pairs
        .into_iter()
        .rev()
        .map(|(left_node, right_node)| (left.key)(left_node).cmp(&(right.key)(right_node)))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// BASE in terms of FILE's strings.
struct Translation<'a> {
    base: &'a Tables,
    strings: Vec<StringIndex>,
}

impl<'a> Translation<'a> {
    /// Strings that FILE lacks are appended to it.
    fn new(file: &mut Tables, base: &'a Profile) -> Self {
        let mut known: FxHashMap<Vec<u8>, StringIndex> = FxHashMap::default();
        for (index, text) in file.strings.iter() {
            known.entry(text.to_vec()).or_insert(index);
        }
        let mut strings = Vec::with_capacity(base.tables.strings.len());
        for (_, text) in base.tables.strings.iter() {
            let index = match known.get(text) {
                Some(&index) => index,
                None => {
                    let index = file.strings.push(text);
                    known.insert(text.to_vec(), index);
                    index
                }
            };
            strings.push(index);
        }
        Self {
            base: &base.tables,
            strings,
        }
    }

    fn string(&self, index: StringIndex) -> StringIndex {
        let translated = index
            .position()
            .and_then(|position| self.strings.get(position));
        translated.copied().unwrap_or_default()
    }

    fn frame(&self, frame: &Frame) -> Frame {
        Frame {
            function: self.string(frame.function),
            file: self.string(frame.file),
            line: frame.line,
        }
    }

    fn key(&self, ip: &Ip) -> PlaceKey {
        let frame = self.frame(&ip.frame);
        (
            self.string(ip.module),
            frame.function,
            frame.file,
            frame.line,
        )
    }
}

/// FILE's instruction pointers, sorted by key.
struct SortedIps {
    sorted: Vec<IpIndex>,
}

impl SortedIps {
    fn new(tables: &Tables) -> Self {
        let mut sorted: Vec<IpIndex> = (0..tables.ips().len())
            .filter_map(IpIndex::from_position)
            .collect();
        std_sort(&mut sorted, &mut |&left, &right| {
            tables.ip(left).key() < tables.ip(right).key()
        });
        Self { sorted }
    }

    /// FILE's counterpart of an instruction pointer of BASE; appended when there is none.
    fn translate(
        &mut self,
        file: &mut Tables,
        translation: &Translation<'_>,
        index: IpIndex,
    ) -> IpIndex {
        if index.is_none() {
            return IpIndex::NONE;
        }
        let ip = translation.base.ip(index);
        let key = translation.key(&ip);
        let at = lower_bound(&self.sorted, |&known| file.ip(known).key() < key);
        if let Some(&found) = self.sorted.get(at)
            && file.ip(found).key() == key
        {
            return found;
        }
        let inlined: Vec<Frame> = translation
            .base
            .inlined(&ip)
            .iter()
            .map(|frame| translation.frame(frame))
            .collect();
        let module = translation.string(ip.module);
        let new = file.push_ip(ip.address, module, translation.frame(&ip.frame), &inlined);
        self.sorted.insert(at, new);
        new
    }
}

fn subtract_entry(
    file: &mut Profile,
    translation: &Translation<'_>,
    ips: &mut SortedIps,
    entry: &Entry,
) {
    let file_key = |node: Node| file.tables.ip(node.ip).key();
    let base_key = |node: Node| translation.key(&translation.base.ip(node.ip));
    let file_side = Side {
        tables: &file.tables,
        key: &file_key,
    };
    let base_side = Side {
        tables: translation.base,
        key: &base_key,
    };
    let order = |known: &Entry| compare(&file_side, known.trace, &base_side, entry.trace, false);
    let at = lower_bound(&file.entries, |known| order(known) == Ordering::Less);
    let found = file
        .entries
        .get(at)
        .is_some_and(|known| order(known) == Ordering::Equal);
    if !found {
        let trace = copy_trace(&mut file.tables, translation, ips, entry.trace);
        file.entries.insert(at, Entry::new(trace, Costs::default()));
    }
    if let Some(known) = file.entries.get_mut(at) {
        known.costs -= entry.costs;
    }
}

/// Appends a backtrace of BASE to FILE's tree, node by node from the root.
fn copy_trace(
    file: &mut Tables,
    translation: &Translation<'_>,
    ips: &mut SortedIps,
    trace: TraceIndex,
) -> TraceIndex {
    let base = translation.base;
    let mut nodes = Vec::new();
    let mut next = trace;
    while !next.is_none() && nodes.len() <= base.nodes().len() {
        let node = base.node(next);
        nodes.push(node);
        next = node.parent;
    }
    let mut parent = TraceIndex::NONE;
    for node in nodes.into_iter().rev() {
        let ip = ips.translate(file, translation, node.ip);
        parent = file.push_node(Node { ip, parent });
    }
    parent
}
