//! Builds a table from an ELF image: parse, list, lay out, evaluate, assemble.
//!
//! Pure: the caller hands in the bytes of a file or of a memory image such as the vdso. Input is
//! hostile: time and memory are bounded by the image's size and by [`Limits`].

use crate::encoding::{BLOCK_BYTES, Row, Rule};
use crate::error::BuildError;
use crate::frame_sections::FrameFormat;
use crate::frames::{Fde, Reader};
use crate::image::{self, Code, Image};
use crate::layout::{Layout, lay_out};
use crate::limits::Limits;
use crate::padding::is_padding;
use crate::table::{Coverage, Parts, Statistics, UnwindTable};

/// The largest gap between functions that is taken for alignment when it holds filler only. Code
/// is aligned to 16 bytes almost everywhere; a larger gap gets a row even if it is filler.
const MAX_PADDING: u64 = 15;

/// The most code from an image's entry point to the next function that is taken for the entry code
/// alone. The dynamic linker's has no unwind data in glibc (2.36: 80 bytes, `_dl_start_user`),
/// and constructors run below it. More is a file without unwind data.
const MAX_ENTRY_CODE: u64 = 128;

/// Builds the table of the ELF image `data` within default [`Limits`].
///
/// An image without unwind data yields a table that is one gap.
///
/// # Errors
///
/// When `data` is no ELF image for x86-64, has no code, contradicts itself, or exceeds a limit.
/// A single frame description that cannot be used is no error: its code becomes
/// [`Rule::UNSUPPORTED`], which the table's statistics count.
pub fn build(data: &[u8]) -> Result<UnwindTable, BuildError> {
    build_within(data, &Limits::default())
}

/// As [`build`], within the given limits.
///
/// # Errors
///
/// As for [`build`].
pub fn build_within(data: &[u8], limits: &Limits) -> Result<UnwindTable, BuildError> {
    let image = image::parse(data, limits)?;
    let mut readers: Vec<_> = image
        .frames
        .iter()
        .map(|section| Reader::new(section, limits))
        .collect();
    let (layout, unusable) = list_fdes(&image, &mut readers)?;
    let mut assembly = Assembly::new(&image, limits.rows);
    assembly.add_all(&layout, &image.code, &mut readers)?;
    let statistics = Statistics {
        fdes: layout.fdes.len() as u64,
        rejected_fdes: assembly.rejected,
        skipped_fdes: layout.skipped + unusable,
        ..Statistics::default()
    };
    let table = UnwindTable::from_parts(Parts {
        segments: image.code.iter().map(|code| code.segment).collect(),
        rows: assembly.rows.rows,
        build_id: image.build_id,
        coverage: Coverage::Everywhere,
        statistics,
    })?;
    Ok(table)
}

/// Lists the FDEs of all sections, and counts those that are unusable.
fn list_fdes(image: &Image<'_>, readers: &mut [Reader<'_>]) -> Result<(Layout, u64), BuildError> {
    let (mut eh, mut debug, mut unusable) = (Vec::new(), Vec::new(), 0);
    for (index, (section, reader)) in image.frames.iter().zip(readers).enumerate() {
        let mut listing = reader.list(index as u32)?;
        unusable += listing.skipped;
        match section.format {
            FrameFormat::EhFrame => eh.append(&mut listing.fdes),
            FrameFormat::DebugFrame => debug.append(&mut listing.fdes),
        }
    }
    Ok((lay_out(eh, debug, &image.code), unusable))
}

/// The table under construction.
struct Assembly {
    rows: RowList,
    entry: u64,
    rejected: u64,
}

impl Assembly {
    fn new(image: &Image<'_>, limit: usize) -> Self {
        let first = image.code.first().map_or(0, |code| code.segment.address);
        let base = first & !(BLOCK_BYTES - 1);
        Self {
            rows: RowList::new(base, limit),
            entry: image.entry,
            rejected: 0,
        }
    }

    fn add_all(
        &mut self,
        layout: &Layout,
        code: &[Code<'_>],
        readers: &mut [Reader<'_>],
    ) -> Result<(), BuildError> {
        let mut fdes = layout.fdes.as_slice();
        for code in code {
            let (here, beyond) = fdes.split_at(fdes.partition_point(|fde| fde.start < code.end));
            self.add_segment(code, here, readers)?;
            fdes = beyond;
        }
        Ok(())
    }

    fn add_segment(
        &mut self,
        code: &Code<'_>,
        fdes: &[Fde],
        readers: &mut [Reader<'_>],
    ) -> Result<(), BuildError> {
        let mut covered = code.segment.address;
        self.rows.push(covered, Rule::GAP)?;
        for fde in fdes {
            self.add_gap(code, covered, fde.start)?;
            self.add_fde(fde, readers)?;
            covered = covered.max(fde.end);
        }
        self.rows.push(covered, Rule::GAP)
    }

    /// Code between two FDEs. Nothing has called an entry point, whatever is said of it.
    fn add_gap(&mut self, code: &Code<'_>, start: u64, end: u64) -> Result<(), BuildError> {
        if is_gap(code, start, end) {
            self.rows.push(start, Rule::GAP)?;
            let is_inside = (start..end).contains(&self.entry);
            if is_inside && end - self.entry <= MAX_ENTRY_CODE {
                self.rows.push(self.entry, Rule::END_OF_STACK)?;
            }
        }
        Ok(())
    }

    fn add_fde(&mut self, fde: &Fde, readers: &mut [Reader<'_>]) -> Result<(), BuildError> {
        let reader = readers
            .get_mut(fde.section as usize)
            .filter(|_| fde.trusted);
        let Some(rules) = reader.and_then(|reader| reader.evaluate(fde)) else {
            self.rejected += 1;
            return self.rows.push(fde.start, Rule::UNSUPPORTED);
        };
        for (start, rule) in rules {
            self.rows.push(*start, *rule)?;
        }
        Ok(())
    }
}

/// Whether code between two FDEs needs a row of its own.
fn is_gap(code: &Code<'_>, start: u64, end: u64) -> bool {
    if start >= end {
        return false;
    }
    let from = (start - code.segment.address) as usize;
    let to = (end - code.segment.address) as usize;
    end - start > MAX_PADDING || !code.bytes.get(from..to).is_some_and(is_padding)
}

/// Rows in the making: merged, in order, limited in number.
struct RowList {
    base: u64,
    limit: usize,
    rows: Vec<Row>,
}

impl RowList {
    /// A list that begins with a gap at the base.
    fn new(base: u64, limit: usize) -> Self {
        Self {
            base,
            limit,
            rows: vec![Row::new(0, Rule::GAP)],
        }
    }

    /// Lets `rule` hold from `address` on. Addresses must not descend; of two rules for the same
    /// address the later one holds.
    fn push(&mut self, address: u64, rule: Rule) -> Result<(), BuildError> {
        // Code spans less than 4 GiB from the base on, which the image's layout was checked for.
        let rel_pc = (address - self.base) as u32;
        if self.rows.last().is_some_and(|last| last.rel_pc() == rel_pc) {
            self.rows.pop();
        }
        if self.rows.last().is_some_and(|last| last.rule() == rule) {
            return Ok(());
        }
        if self.rows.len() >= self.limit {
            return Err(BuildError::TooManyRows {
                address,
                limit: self.limit,
            });
        }
        self.rows.push(Row::new(rel_pc, rule));
        Ok(())
    }
}
