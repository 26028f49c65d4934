//! The finished table: sorted rows, a block index over them, and where the code lies.
//!
//! Knows nothing of ELF parsing or DWARF. A value of [`UnwindTable`] always holds these
//! invariants, whether it was built or read from a cache, because there is one way to make one:
//! - segments are sorted, do not overlap, and lie within [`MAX_SPAN`] bytes of `base`;
//! - the first row is at the base, rows ascend strictly, every rule is well formed;
//! - the last row is a gap, so that no rule runs past the end of the code;
//! - `blocks[i]` is the last row that begins at or before block `i`, and one more entry ends it.

use crate::encoding::{BLOCK_BYTES, BLOCK_SHIFT, Row, Rule, RuleKind};
use crate::error::TableError;

/// The largest distance from a table's base to the end of its code, in bytes.
pub const MAX_SPAN: u64 = 1 << 31;
/// The largest number of executable segments of one table.
pub const MAX_SEGMENTS: usize = 16;

/// An executable segment of an ELF image, as its program header gives it (not page-aligned).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First byte in the file.
    pub file_offset: u64,
    /// Length in bytes, in the file and so in memory.
    pub size: u64,
    /// Address of the first byte, before any load bias.
    pub address: u64,
}

impl Segment {
    /// The address after the last byte; `None` when it does not fit.
    pub fn end(&self) -> Option<u64> {
        self.address.checked_add(self.size)
    }

    /// Whether the segment holds this address.
    pub fn contains(&self, address: u64) -> bool {
        address
            .checked_sub(self.address)
            .is_some_and(|distance| distance < self.size)
    }
}

/// What a table was made from and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frame descriptions that cover code.
    pub fdes: u64,
    /// Of these, described as unsupported over their whole range: parse errors, overlaps, ranges
    /// that leave their segment.
    pub rejected_fdes: u64,
    /// Frame descriptions without any usable range: empty, outside of code, or with a header that
    /// cannot be read.
    pub skipped_fdes: u64,
    /// Rows whose rule is "unsupported".
    pub unsupported_rows: u64,
    /// Rows that begin a stretch of code without unwind data.
    pub gap_rows: u64,
}

/// For which addresses a table answers rightly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Every address of the code.
    Everywhere,
    /// Only addresses inside an instruction that can be a near call, that is: return addresses
    /// less one. The frame that a signal interrupted must not be looked up.
    CallSites,
}

/// Unwind rules of one ELF image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwindTable {
    base: u64,
    segments: Vec<Segment>,
    rows: Vec<Row>,
    blocks: Vec<u32>,
    build_id: Vec<u8>,
    coverage: Coverage,
    statistics: Statistics,
}

/// What an [`UnwindTable`] is made of, unchecked.
pub(crate) struct Parts {
    pub(crate) segments: Vec<Segment>,
    pub(crate) rows: Vec<Row>,
    pub(crate) build_id: Vec<u8>,
    pub(crate) coverage: Coverage,
    pub(crate) statistics: Statistics,
}

impl UnwindTable {
    /// Checks the parts and computes the block index; the only way to make a table.
    pub(crate) fn from_parts(parts: Parts) -> Result<Self, TableError> {
        let (base, span) = span_of(&parts.segments)?;
        check_rows(&parts.rows, span)?;
        let blocks = index_blocks(&parts.rows, span);
        let statistics = Statistics {
            unsupported_rows: count(&parts.rows, RuleKind::Unsupported),
            gap_rows: count(&parts.rows, RuleKind::Gap),
            ..parts.statistics
        };
        let Parts {
            segments,
            rows,
            build_id,
            coverage,
            ..
        } = parts;
        Ok(Self {
            base,
            segments,
            rows,
            blocks,
            build_id,
            coverage,
            statistics,
        })
    }

    /// The address that `rel_pc` counts from: the first executable address rounded down to
    /// [`BLOCK_BYTES`], before any load bias.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Executable segments by ascending address.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Rows by ascending `rel_pc`, the first at 0, the last a gap.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// For each block of [`BLOCK_BYTES`] bytes from the base on, the index of the last row that
    /// begins at or before the block's first byte, then the index of the last row.
    ///
    /// The row for an address in block `i` has an index in `blocks[i]..=blocks[i + 1]`.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// The GNU build id of the image, empty when it has none.
    pub fn build_id(&self) -> &[u8] {
        &self.build_id
    }

    /// For which addresses [`UnwindTable::lookup`] answers rightly.
    pub fn coverage(&self) -> Coverage {
        self.coverage
    }

    /// Counts of what the table was made from.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Bytes of code for which there is unwind data, of a table whose coverage is everywhere.
    pub fn covered_bytes(&self) -> u64 {
        let stretches = self.rows.iter().zip(self.rows.iter().skip(1));
        let covered = stretches.filter(|(row, _)| row.rule().kind() != RuleKind::Gap);
        covered
            .map(|(row, next)| u64::from(next.rel_pc() - row.rel_pc()))
            .sum()
    }

    /// Memory for rows and block index together, in bytes.
    pub fn size_in_bytes(&self) -> usize {
        size_of_val(self.rows.as_slice()) + size_of_val(self.blocks.as_slice())
    }

    /// The rule at an address of the image (before any load bias); `None` outside of its
    /// executable segments.
    ///
    /// This is the search that the unwinder in the kernel makes.
    pub fn lookup(&self, address: u64) -> Option<Rule> {
        if !self
            .segments
            .iter()
            .any(|segment| segment.contains(address))
        {
            return None;
        }
        let rel_pc = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let block = (rel_pc >> BLOCK_SHIFT) as usize;
        let first = *self.blocks.get(block)? as usize;
        let last = *self.blocks.get(block + 1)? as usize;
        let candidates = self.rows.get(first..=last)?;
        let after = candidates.partition_point(|row| row.rel_pc() <= rel_pc);
        Some(candidates.get(after.checked_sub(1)?)?.rule())
    }
}

/// The base of a table over these segments and the distance from it to the end of the last one.
fn span_of(segments: &[Segment]) -> Result<(u64, u64), TableError> {
    let first = segments.first().ok_or(TableError::Segment { index: 0 })?;
    let base = first.address & !(BLOCK_BYTES - 1);
    let mut end = base;
    for (index, segment) in segments.iter().enumerate() {
        let fault = TableError::Segment { index };
        let segment_end = segment.end().ok_or(fault)?;
        let in_order = segment.address >= end && segment.size > 0 && index < MAX_SEGMENTS;
        if !in_order || segment_end - base > MAX_SPAN {
            return Err(fault);
        }
        end = segment_end;
    }
    Ok((base, end - base))
}

fn check_rows(rows: &[Row], span: u64) -> Result<(), TableError> {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return Err(TableError::Ends);
    };
    if first.rel_pc() != 0 || last.rule() != Rule::GAP {
        return Err(TableError::Ends);
    }
    for (index, row) in rows.iter().enumerate() {
        let rel_pc = row.rel_pc();
        let ascends = index == 0 || rows[index - 1].rel_pc() < rel_pc;
        if !ascends || u64::from(rel_pc) > span {
            return Err(TableError::RowOrder { index, rel_pc });
        }
        if !row.rule().is_well_formed() {
            return Err(TableError::Rule {
                index,
                bits: row.rule().bits(),
            });
        }
    }
    Ok(())
}

fn index_blocks(rows: &[Row], span: u64) -> Vec<u32> {
    let last_row = rows.len().saturating_sub(1);
    let mut blocks = Vec::with_capacity(span.div_ceil(BLOCK_BYTES) as usize + 1);
    let mut row = 0;
    for start in (0..span).step_by(BLOCK_BYTES as usize) {
        while row < last_row && u64::from(rows[row + 1].rel_pc()) <= start {
            row += 1;
        }
        blocks.push(row as u32);
    }
    blocks.push(last_row as u32);
    blocks
}

fn count(rows: &[Row], kind: RuleKind) -> u64 {
    rows.iter().filter(|row| row.rule().kind() == kind).count() as u64
}
