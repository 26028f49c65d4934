//! Reduces a table to what return addresses can need.
//!
//! Above a probed function, an unwinder looks up return addresses less one, and nothing else.
//! Those lie inside near calls; so a row in which no byte pattern of a near call ends is never
//! asked for. No instructions are decoded: every byte offset counts as a possible end, which
//! errs to the side of keeping rows.

use crate::call_pattern::may_end_call;
use crate::encoding::{Row, Rule, RuleKind};
use crate::error::TableError;
use crate::table::{Coverage, Parts, Segment, UnwindTable};

impl UnwindTable {
    /// The same table without the rows that no return address needs, usually 7 to 28 times
    /// smaller. `data` is the image that the table was built from.
    ///
    /// For every address that follows a near call, looking up the byte before it gives the same
    /// rule as before, and so do signal frames and ends of stack, which are reached without a
    /// call. Elsewhere the rule of a neighbouring row answers: see [`Coverage::CallSites`].
    ///
    /// # Errors
    ///
    /// [`TableError::Segment`] when `data` is too short for the table's segments.
    pub fn filter_call_sites(&self, data: &[u8]) -> Result<Self, TableError> {
        let mut needed: Vec<bool> = self
            .rows()
            .iter()
            .map(|row| is_reached_without_call(row.rule()))
            .collect();
        for (index, segment) in self.segments().iter().enumerate() {
            let code = bytes_of(segment, data).ok_or(TableError::Segment { index })?;
            mark_call_sites(
                self.rows(),
                segment.address - self.base(),
                code,
                &mut needed,
            );
        }
        Self::from_parts(Parts {
            segments: self.segments().to_vec(),
            rows: merge(self.rows(), &needed),
            build_id: self.build_id().to_vec(),
            coverage: Coverage::CallSites,
            statistics: self.statistics(),
        })
    }
}

/// The trampoline that a signal handler returns to, and code such as `__start_context` that
/// `makecontext` plants, are return addresses that follow no call.
fn is_reached_without_call(rule: Rule) -> bool {
    matches!(rule.kind(), RuleKind::SignalFrame | RuleKind::EndOfStack)
}

fn bytes_of<'data>(segment: &Segment, data: &'data [u8]) -> Option<&'data [u8]> {
    let start = usize::try_from(segment.file_offset).ok()?;
    data.get(start..)?
        .get(..usize::try_from(segment.size).ok()?)
}

/// Marks rows that hold at the last byte of a possible call in `code`, which begins `rel_start`
/// bytes after the table's base.
fn mark_call_sites(rows: &[Row], rel_start: u64, code: &[u8], needed: &mut [bool]) {
    let mut last_bytes = 0;
    let mut row = rows
        .partition_point(|row| u64::from(row.rel_pc()) <= rel_start)
        .max(1)
        - 1;
    let mut row_end = end_of(rows, row);
    for (rel_pc, byte) in (rel_start..).zip(code) {
        last_bytes = last_bytes >> 8 | u64::from(*byte) << 56;
        while rel_pc >= row_end {
            row += 1;
            row_end = end_of(rows, row);
        }
        if may_end_call(last_bytes) {
            needed[row] = true;
        }
    }
}

fn end_of(rows: &[Row], index: usize) -> u64 {
    rows.get(index + 1)
        .map_or(u64::MAX, |next| next.rel_pc().into())
}

/// Drops rows that are not needed, except for the gaps that begin and end every table.
fn merge(rows: &[Row], needed: &[bool]) -> Vec<Row> {
    let mut kept: Vec<Row> = vec![Row::new(0, Rule::GAP)];
    let last = rows.len().saturating_sub(1);
    for (index, (row, needed)) in rows.iter().zip(needed).enumerate() {
        if !needed && index != last {
            continue;
        }
        if row.rel_pc() == 0 {
            kept.pop();
        }
        if kept
            .last()
            .is_none_or(|previous| previous.rule() != row.rule())
        {
            kept.push(*row);
        }
    }
    kept
}
