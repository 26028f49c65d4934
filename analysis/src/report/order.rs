//! The order of ranking entries, and of backtraces within a merged entry.

use crate::accounting::Entry;
use crate::cost::CostKind;
use crate::merge::{Group, merge};
use crate::profile::Profile;
use crate::report::{ReportOptions, Style};
use crate::std_sort::std_sort;

/// Orders that one section leaves to the next.
///
/// heaptrack_print sorts its lists in place with an unstable sort, so how ties come out depends on
/// the sections printed before. In the mended style every section starts afresh and ties stay in
/// order of first appearance in the file.
#[derive(Debug)]
pub struct Order {
    /// Merged entries; empty in unmerged mode.
    pub groups: Vec<Group>,
    /// Order of `groups`.
    pub group_order: Vec<u32>,
    /// Order of the profile's entries.
    pub entry_order: Vec<u32>,
    style: Style,
}

impl Order {
    /// The order before any section.
    #[must_use]
    pub fn new(profile: &Profile, options: &ReportOptions) -> Self {
        let mut groups = if options.merge {
            merge(&profile.tables, &profile.entries)
        } else {
            Vec::new()
        };
        if options.style == Style::Mended {
            groups.sort_by_key(|group| group.entries.first().copied());
        }
        Self {
            group_order: (0..groups.len() as u32).collect(),
            entry_order: (0..profile.entries.len() as u32).collect(),
            groups,
            style: options.style,
        }
    }

    /// Ranks the merged entries.
    pub fn rank_groups(&mut self, kind: CostKind) {
        let groups = &self.groups;
        let cost = |at: u32| {
            groups
                .get(at as usize)
                .map_or(0, |group| group.costs.get(kind))
        };
        rank(self.style, &mut self.group_order, cost);
    }

    /// Ranks the backtraces of one merged entry.
    pub fn rank_within(&mut self, group: u32, entries: &[Entry], kind: CostKind) {
        let cost = |at: u32| {
            entries
                .get(at as usize)
                .map_or(0, |entry| entry.costs.get(kind))
        };
        if let Some(group) = self.groups.get_mut(group as usize) {
            rank(self.style, &mut group.entries, cost);
        }
    }

    /// Ranks all backtraces.
    pub fn rank_entries(&mut self, entries: &[Entry], kind: CostKind) {
        let cost = |at: u32| {
            entries
                .get(at as usize)
                .map_or(0, |entry| entry.costs.get(kind))
        };
        rank(self.style, &mut self.entry_order, cost);
    }

    /// The order of the profile's entries.
    #[must_use]
    pub fn into_entries(self) -> Vec<u32> {
        match self.style {
            Style::Heaptrack => self.entry_order,
            Style::Mended => {
                let mut order = self.entry_order;
                order.sort_unstable();
                order
            }
        }
    }
}

/// Sorts by magnitude of the cost, largest first.
fn rank(style: Style, positions: &mut [u32], cost: impl Fn(u32) -> i64) {
    match style {
        Style::Heaptrack => std_sort(positions, &mut |&left, &right| {
            cost(left).wrapping_abs() > cost(right).wrapping_abs()
        }),
        Style::Mended => {
            positions.sort_unstable_by_key(|&at| (std::cmp::Reverse(cost(at).unsigned_abs()), at))
        }
    }
}
