//! Backtraces that read the same are one.
//!
//! A program that loads the same code again and again, at another address each time, leaves a
//! backtrace for each load; so do two calls in one line. Nobody can tell these apart in what is
//! printed, so the default report adds them up: same module, function, file, line and inlined
//! functions, frame by frame. Frames without a function name are printed as addresses, and stay
//! apart by them.

use std::collections::hash_map::Entry as Slot;

use htrace_trace_format::{Frame, IpIndex, TraceIndex};
use rustc_hash::FxHashMap;

use crate::profile::Profile;
use crate::tables::{Ip, PlaceKey, Tables};

/// Adds up the entries whose backtraces read the same, at the first of them. The infos' references
/// to entries do not hold afterwards.
pub fn unite(profile: &mut Profile) {
    let Some(same_ips) = same_ips(&profile.tables) else {
        return;
    };
    let same_traces = same_traces(&profile.tables, &same_ips);
    let mut known = FxHashMap::default();
    let mut united = Vec::with_capacity(profile.entries.len());
    for mut entry in profile.entries.drain(..) {
        entry.trace = first_of(&same_traces, entry.trace);
        match known.entry(entry.trace) {
            Slot::Vacant(slot) => {
                slot.insert(united.len());
                united.push(entry);
            }
            Slot::Occupied(slot) => united[*slot.get()].costs += entry.costs,
        }
    }
    profile.entries = united;
}

/// What is printed of an instruction pointer: its place, its address if that is all there is, and
/// its inlined functions.
type Printed<'a> = (PlaceKey, u64, &'a [Frame]);

fn printed<'a>(tables: &'a Tables, ip: &Ip) -> Printed<'a> {
    let address = match ip.frame.function.is_none() {
        true => ip.address,
        false => 0,
    };
    (ip.key(), address, tables.inlined(ip))
}

/// For each instruction pointer the first that is printed the same; `None` if all are different.
fn same_ips(tables: &Tables) -> Option<Vec<IpIndex>> {
    let mut known = FxHashMap::default();
    let mut same = Vec::with_capacity(tables.ips().len());
    for (position, ip) in tables.ips().iter().enumerate() {
        let index = IpIndex::from_position(position)?;
        same.push(*known.entry(printed(tables, ip)).or_insert(index));
    }
    (known.len() < same.len()).then_some(same)
}

/// For each node the first whose backtrace is printed the same. A parent that comes behind its
/// child, which no recorder writes, stays as it is.
fn same_traces(tables: &Tables, same_ips: &[IpIndex]) -> Vec<TraceIndex> {
    let mut known = FxHashMap::default();
    let mut same: Vec<TraceIndex> = Vec::with_capacity(tables.nodes().len());
    for (position, node) in tables.nodes().iter().enumerate() {
        let Some(index) = TraceIndex::from_position(position) else {
            break;
        };
        let ip = node.ip.position().and_then(|at| same_ips.get(at));
        let key = (ip.copied().unwrap_or(node.ip), first_of(&same, node.parent));
        same.push(*known.entry(key).or_insert(index));
    }
    same
}

fn first_of(same: &[TraceIndex], trace: TraceIndex) -> TraceIndex {
    let first = trace.position().and_then(|position| same.get(position));
    first.copied().unwrap_or(trace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Rules;
    use crate::cost::Costs;
    use crate::load::load;

    /// What is left of a trace whose table of instruction pointers is `ips`, each called once by
    /// the one at index 1.
    fn united(ips: &[&str]) -> Vec<(u32, i64)> {
        let mut text = "v 10400 3\ns 1 m\ns 4 main\ns 4 work\ns 1 f\ni 10 1 2 4 1\n".to_owned();
        text += "t 1 0\n";
        for (position, ip) in ips.iter().enumerate() {
            text += &format!(
                "i {ip}\nt {:x} 1\na 10 {:x}\n+ {position:x}\n",
                position + 2,
                position + 2
            );
        }
        let mut profile = load(text.as_bytes(), Rules::LENIENT, &mut ()).profile;
        let total = profile.total;
        unite(&mut profile);
        let mut sum = Costs::default();
        profile.entries.iter().for_each(|entry| sum += entry.costs);
        assert_eq!(sum, total);
        let entries = profile.entries.iter();
        let entries = entries.map(|entry| (entry.trace.get(), entry.costs.allocations));
        entries.collect()
    }

    #[test]
    fn the_same_place_at_another_address_is_the_same() {
        assert_eq!(united(&["20 1 3 4 7", "30 1 3 4 7"]), [(2, 2)]);
    }

    #[test]
    fn another_line_module_or_inlined_function_is_another_place() {
        let ips = ["20 1 3 4 7", "20 1 3 4 8", "20 4 3 4 7", "20 1 3 4 7 2 4 9"];
        assert_eq!(united(&ips), [(2, 1), (3, 1), (4, 1), (5, 1)]);
        let inlined = ["20 1 3 4 7 2 4 9", "30 1 3 4 7 2 4 9"];
        assert_eq!(united(&inlined), [(2, 2)]);
    }

    #[test]
    fn addresses_tell_code_without_names_apart() {
        assert_eq!(united(&["20 1", "30 1", "20 1"]), [(2, 2), (3, 1)]);
    }

    #[test]
    fn callers_tell_backtraces_apart() {
        let text = "v 10400 3\ns 1 m\ns 1 a\ns 1 b\ni 10 1 2\ni 20 1 3\ni 30 1 3\n\
            t 1 0\nt 2 1\nt 3 1\nt 3 3\nt 2 5\na 1 3\na 1 2\na 1 4\n+ 0\n+ 1\n+ 2\n";
        let mut profile = load(text.as_bytes(), Rules::LENIENT, &mut ()).profile;
        unite(&mut profile);
        let traces: Vec<u32> = profile
            .entries
            .iter()
            .map(|entry| entry.trace.get())
            .collect();
        assert_eq!(traces, [2, 4]);
    }
}
