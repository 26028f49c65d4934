//! What a trace adds up to: the result of reading, and the input of everything that is printed.

use crate::accounting::{Entry, Info};
use crate::cost::Costs;
use crate::notes::Notes;
use crate::problem::ProblemLog;
use crate::tables::Tables;

/// A trace, added up.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Strings, instruction pointers and the trace tree.
    pub tables: Tables,
    /// Every distinct backtrace with its costs, in order of first appearance.
    pub entries: Vec<Entry>,
    /// Every distinct pair of size and backtrace.
    pub infos: Vec<Info>,
    /// Costs of the whole trace. Not always the sum of the entries: suppressions, filters and
    /// malformed files tell them apart.
    pub total: Costs,
    /// Milliseconds from the start to the last time stamp, plus one.
    pub runtime: i64,
    /// Time stamp of the peak in milliseconds.
    pub peak_time: i64,
    /// Largest resident set in pages.
    pub peak_rss_pages: i64,
    /// Bytes a page.
    pub page_size: i64,
    /// Physical pages of the machine.
    pub pages: i64,
    /// Command line of the target.
    pub command: Option<Vec<u8>>,
    /// The trace was recorded by attaching to a running process.
    pub attached: bool,
    /// Patterns of the target's embedded suppressions.
    pub embedded_suppressions: Vec<Vec<u8>>,
    /// What our own recorder says.
    pub notes: Notes,
    /// What was wrong with the file.
    pub problems: ProblemLog,
    /// Sum of what suppressions took off the leaked bytes.
    pub suppressed: i64,
    /// Frees within a time window of blocks from before it.
    pub freed_older: u64,
}

impl Profile {
    /// Largest resident set in bytes.
    #[must_use]
    pub fn peak_rss(&self) -> i64 {
        self.peak_rss_pages.wrapping_mul(self.page_size)
    }
}
