//! Lists the frame descriptions (FDEs) of the unwind sections and evaluates one at a time.
//!
//! Knows call frame information, not code or tables. Where entries are is found elsewhere; an entry
//! that cannot be understood costs only itself.

use gimli::{
    CommonInformationEntry, DebugFrame, EhFrame, FrameDescriptionEntry, LittleEndian,
    UnwindContext, UnwindOffset, UnwindSection, X86_64,
};
use rustc_hash::FxHashMap;

use crate::encoding::Rule;
use crate::entries::{entry_length, fde_offsets};
use crate::error::BuildError;
use crate::frame_sections::{FrameFormat, FrameSection};
use crate::limits::Limits;
use crate::rules::{Slice, rule_of};

/// Real images have at most a few dozen CIEs.
const MAX_KEPT_CIES: usize = 4096;

/// An FDE that was found but not evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fde {
    /// First code address that it covers.
    pub(crate) start: u64,
    /// The address after the last one; greater than `start`.
    pub(crate) end: u64,
    /// Where it is: index of the section, offset of the entry therein.
    pub(crate) section: u32,
    pub(crate) offset: usize,
    /// Whether its own rows may be used; otherwise its whole range is unsupported.
    pub(crate) trusted: bool,
}

/// FDEs of one section and how many more have no usable range.
pub(crate) struct Listing {
    pub(crate) fdes: Vec<Fde>,
    pub(crate) skipped: u64,
}

/// The result of evaluating an FDE: where rules begin, ascending, the first at the FDE's start;
/// `None` when it cannot be evaluated.
pub(crate) type Evaluated<'rows> = Option<&'rows [(u64, Rule)]>;

/// Reads FDEs of one section; keeps parsed CIEs and buffers between them.
pub(crate) enum Reader<'data> {
    Eh(Evaluator<'data, EhFrame<Slice<'data>>>),
    Debug(Evaluator<'data, DebugFrame<Slice<'data>>>),
}

impl<'data> Reader<'data> {
    pub(crate) fn new(section: &'data FrameSection<'_>, limits: &Limits) -> Self {
        match section.format {
            FrameFormat::EhFrame => {
                let mut frames = EhFrame::new(&section.bytes, LittleEndian);
                frames.set_address_size(8);
                Self::Eh(Evaluator::new(frames, section, limits))
            }
            FrameFormat::DebugFrame => {
                let mut frames = DebugFrame::new(&section.bytes, LittleEndian);
                frames.set_address_size(8);
                Self::Debug(Evaluator::new(frames, section, limits))
            }
        }
    }

    /// All FDEs of the section, which has the given index, in the order of the section.
    pub(crate) fn list(&mut self, index: u32) -> Result<Listing, BuildError> {
        match self {
            Self::Eh(evaluator) => evaluator.list(index),
            Self::Debug(evaluator) => evaluator.list(index),
        }
    }

    /// Evaluates an FDE of this section.
    pub(crate) fn evaluate(&mut self, fde: &Fde) -> Evaluated<'_> {
        match self {
            Self::Eh(evaluator) => evaluator.evaluate(fde),
            Self::Debug(evaluator) => evaluator.evaluate(fde),
        }
    }
}

pub(crate) struct Evaluator<'data, S> {
    frames: S,
    section: &'data FrameSection<'data>,
    limits: Limits,
    cies: FxHashMap<usize, CommonInformationEntry<Slice<'data>>>,
    context: UnwindContext<usize>,
    rows: Vec<(u64, Rule)>,
}

impl<'data, S> Evaluator<'data, S>
where
    S: UnwindSection<Slice<'data>>,
    S::Offset: UnwindOffset<usize>,
{
    fn new(frames: S, section: &'data FrameSection<'data>, limits: &Limits) -> Self {
        let (cies, context) = (FxHashMap::default(), UnwindContext::new());
        Self {
            frames,
            section,
            limits: *limits,
            cies,
            context,
            rows: Vec::new(),
        }
    }

    fn list(&mut self, index: u32) -> Result<Listing, BuildError> {
        let mut listing = Listing {
            fdes: Vec::new(),
            skipped: 0,
        };
        for offset in fde_offsets(self.section, self.limits.fdes)? {
            self.add(offset, index, &mut listing)?;
        }
        Ok(listing)
    }

    fn add(
        &mut self,
        offset: usize,
        section: u32,
        listing: &mut Listing,
    ) -> Result<(), BuildError> {
        if listing.fdes.len() + listing.skipped as usize >= self.limits.fdes {
            return Err(BuildError::TooManyFdes {
                section: self.section.format.name(),
                offset: offset as u64,
                limit: self.limits.fdes,
            });
        }
        match self.parse(offset).and_then(|fde| range_of(&fde)) {
            Some((start, end)) => {
                listing.fdes.push(Fde {
                    start,
                    end,
                    section,
                    offset,
                    trusted: true,
                });
            }
            None => listing.skipped += 1,
        }
        Ok(())
    }

    fn parse(&mut self, offset: usize) -> Option<FrameDescriptionEntry<Slice<'data>>> {
        let bases = &self.section.bases;
        let partial = self
            .frames
            .partial_fde_from_offset(bases, offset.into())
            .ok()?;
        let cie = self.cie(UnwindOffset::into(partial.cie_offset()))?;
        partial.parse(|_, _, _| Ok(cie.clone())).ok()
    }

    /// The CIE at this offset. Hostile FDEs may refer to a different one each, anywhere in the
    /// section, so both their length and the number that is kept are limited.
    fn cie(&mut self, offset: usize) -> Option<CommonInformationEntry<Slice<'data>>> {
        if let Some(cie) = self.cies.get(&offset) {
            return Some(cie.clone());
        }
        if entry_length(&self.section.bytes, offset)? > self.limits.cie_bytes as u64 {
            return None;
        }
        let cie = self
            .frames
            .cie_from_offset(&self.section.bases, offset.into())
            .ok()?;
        if self.cies.len() < MAX_KEPT_CIES {
            self.cies.insert(offset, cie.clone());
        }
        Some(cie)
    }

    fn evaluate(&mut self, fde: &Fde) -> Evaluated<'_> {
        let parsed = self.parse(fde.offset)?;
        if parsed.cie().return_address_register() != X86_64::RA {
            return None;
        }
        self.rows.clear();
        let trampoline = parsed.is_signal_trampoline();
        let mut table = parsed
            .rows(&self.frames, &self.section.bases, &mut self.context)
            .ok()?;
        while let Some(row) = table.next_row().ok()? {
            let rule = rule_of(row, &self.frames, trampoline);
            push_row(&mut self.rows, row.start_address(), rule, fde.end);
            if self.rows.len() > self.limits.rows {
                // These rows alone make the table too large, which its builder reports.
                break;
            }
        }
        let starts_right = self
            .rows
            .first()
            .is_some_and(|(start, _)| *start == fde.start);
        starts_right.then_some(&self.rows)
    }
}

/// Adds a row of an FDE: of two at one address the later holds, none holds at or after `end`, and
/// equal neighbours are one.
fn push_row(rows: &mut Vec<(u64, Rule)>, start: u64, rule: Rule, end: u64) {
    if rows.last().is_some_and(|last| last.0 == start) {
        rows.pop();
    }
    if start < end && rows.last().is_none_or(|last| last.1 != rule) {
        rows.push((start, rule));
    }
}

fn range_of(fde: &FrameDescriptionEntry<Slice<'_>>) -> Option<(u64, u64)> {
    let start = fde.initial_address();
    let end = start.checked_add(fde.len())?;
    (end > start).then_some((start, end))
}
