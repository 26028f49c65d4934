//! Merging backtraces by the place of their leaf.

use htrace_trace_format::IpIndex;

use crate::accounting::Entry;
use crate::cost::Costs;
use crate::tables::{PlaceKey, Tables};

/// Backtraces whose leaf is the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The leaf of the first backtrace of the group; may be none.
    pub ip: IpIndex,
    /// Sum of the costs.
    pub costs: Costs,
    /// Positions of the backtraces in the list of entries, in list order.
    pub entries: Vec<u32>,
}

/// The groups of `entries` in ascending order of their keys, that is by module, function, file and
/// line in the order in which the file defines them. Everything without a known leaf is one group.
#[must_use]
pub fn merge(tables: &Tables, entries: &[Entry]) -> Vec<Group> {
    let mut keyed: Vec<(PlaceKey, u32)> = entries
        .iter()
        .zip(0u32..)
        .map(|(entry, position)| (key_of(tables, entry), position))
        .collect();
    keyed.sort_unstable();
    keyed
        .chunk_by(|left, right| left.0 == right.0)
        .map(|group| gather(tables, entries, group))
        .collect()
}

fn key_of(tables: &Tables, entry: &Entry) -> PlaceKey {
    tables.ip(tables.node(entry.trace).ip).key()
}

fn gather(tables: &Tables, entries: &[Entry], group: &[(PlaceKey, u32)]) -> Group {
    let mut costs = Costs::default();
    let mut ip = IpIndex::NONE;
    let positions: Vec<u32> = group.iter().map(|&(_, position)| position).collect();
    for (number, entry) in positions
        .iter()
        .filter_map(|&at| entries.get(at as usize))
        .enumerate()
    {
        costs += entry.costs;
        if number == 0 {
            ip = tables.node(entry.trace).ip;
        }
    }
    Group {
        ip,
        costs,
        entries: positions,
    }
}
