//! Keeping only some backtraces. Totals are not touched.

use htrace_trace_format::{StringIndex, TraceIndex};
use memchr::memmem::Finder;

use crate::profile::Profile;
use crate::tables::{Ip, Tables};

/// Where the search for a function ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Before the first stop frame, so that `main` never matches: heaptrack.
    BeforeStop,
    /// With the first stop frame, inlined ones too: everything that is printed can match.
    ThroughStop,
}

/// Keeps the backtraces in which a function's full name contains `text`.
pub fn keep_function(profile: &mut Profile, text: &[u8], reach: Reach) {
    let hits = strings_with(&profile.tables, text);
    let hit = |index: StringIndex| index.position().is_some_and(|position| hits[position]);
    let tables = &profile.tables;
    let in_ip = |ip: &Ip| {
        hit(ip.frame.function) || tables.inlined(ip).iter().any(|frame| hit(frame.function))
    };
    let keeps = |trace: TraceIndex| {
        for (_, ip) in tables.walk(trace) {
            let stops = match reach {
                Reach::BeforeStop if tables.is_stop_ip(&ip) => return false,
                Reach::BeforeStop => false,
                Reach::ThroughStop => stops_anywhere(tables, &ip),
            };
            if in_ip(&ip) {
                return true;
            }
            if stops {
                return false;
            }
        }
        false
    };
    profile.entries.retain(|entry| keeps(entry.trace));
}

/// Keeps the backtraces that pass through a module whose path contains `text`.
pub fn keep_module(profile: &mut Profile, text: &[u8]) {
    let hits = strings_with(&profile.tables, text);
    let tables = &profile.tables;
    let keeps = |trace: TraceIndex| {
        tables
            .walk(trace)
            .any(|(_, ip)| ip.module.position().is_some_and(|at| hits[at]))
    };
    profile.entries.retain(|entry| keeps(entry.trace));
}

/// Whether a backtrace ends at `ip`, looking at inlined functions too.
#[must_use]
pub fn stops_anywhere(tables: &Tables, ip: &Ip) -> bool {
    tables.is_stop_ip(ip)
        || tables
            .inlined(ip)
            .iter()
            .any(|frame| tables.is_stop(frame.function))
}

/// For each string whether it contains `text`. An index out of range is given a position that no
/// string has, so look-ups go through positions of the table only.
fn strings_with(tables: &Tables, text: &[u8]) -> Hits {
    let finder = Finder::new(text);
    Hits(
        tables
            .strings
            .iter()
            .map(|(_, string)| finder.find(string).is_some())
            .collect(),
    )
}

struct Hits(Vec<bool>);

impl std::ops::Index<usize> for Hits {
    type Output = bool;

    fn index(&self, position: usize) -> &bool {
        self.0.get(position).unwrap_or(&false)
    }
}
