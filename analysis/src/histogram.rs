//! How often each size was allocated.

use std::collections::BTreeMap;
use std::io::{self, Write};

use htrace_trace_format::AllocationInfoIndex;

use crate::accounting::Info;
use crate::observer::{Observer, Snapshot};

/// Counts allocations by info while a trace is read.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Histogram {
    /// Allocations by size, smallest size first.
    #[must_use]
    pub fn by_size(&self, infos: &[Info]) -> BTreeMap<u64, u64> {
        let mut by_size = BTreeMap::new();
        for (info, &count) in infos.iter().zip(&self.counts) {
            if count > 0 {
                *by_size.entry(info.size).or_default() += count;
            }
        }
        by_size
    }

    /// Forgets all counts.
    pub fn clear(&mut self) {
        self.counts.clear();
    }

    /// Writes a line `SIZE<TAB>COUNT` for each size.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, infos: &[Info], out: &mut impl Write) -> io::Result<()> {
        for (size, count) in self.by_size(infos) {
            writeln!(out, "{size}\t{count}")?;
        }
        Ok(())
    }
}

impl Observer for Histogram {
    #[inline]
    fn allocated(&mut self, index: AllocationInfoIndex, so_far: Snapshot<'_>) {
        let position = index.position();
        if position >= self.counts.len() {
            self.counts
                .resize(so_far.accounting.infos().len().max(position + 1), 0);
        }
        self.counts[position] += 1;
    }
}
