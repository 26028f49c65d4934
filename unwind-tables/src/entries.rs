//! Walks a section of call frame information by the length fields of its entries alone.
//!
//! Knows how entries are delimited, not what they say: so one entry that cannot be understood
//! costs only itself, and a zero length in the middle (which linkers leave between input files)
//! does not hide what follows.

use crate::error::BuildError;
use crate::frame_sections::{Extent, FrameFormat, FrameSection};

/// Where the section's FDEs are, ascending; one more than `limit` when there are more.
pub(crate) fn fde_offsets(
    section: &FrameSection<'_>,
    limit: usize,
) -> Result<Vec<usize>, BuildError> {
    let entries = Entries::new(section).filter_map(|entry| entry.map(|e| e.fde_offset).transpose());
    let mut offsets = entries
        .take(limit.saturating_add(1))
        .collect::<Result<Vec<_>, _>>()?;
    if let Extent::Open { listed } = &section.extent {
        offsets.extend(listed);
        offsets.sort_unstable();
        offsets.dedup();
    }
    Ok(offsets)
}

/// The length that the entry at this offset claims, without the length field itself.
pub(crate) fn entry_length(section: &[u8], offset: usize) -> Option<u64> {
    read_length(section, offset).map(|(length, _, _)| length)
}

/// The length of an entry, whether it is in the 64-bit format, and what follows the length field.
fn read_length(section: &[u8], offset: usize) -> Option<(u64, bool, &[u8])> {
    let (length, rest) = section.get(offset..)?.split_first_chunk()?;
    match u32::from_le_bytes(*length) {
        u32::MAX => {
            let (length, rest) = rest.split_first_chunk()?;
            Some((u64::from_le_bytes(*length), true, rest))
        }
        length => Some((length.into(), false, rest)),
    }
}

/// Walks a section by its length fields.
struct Entries<'data> {
    section: &'data FrameSection<'data>,
    offset: usize,
}

/// One entry: an FDE at an offset, or something else (a CIE, a terminator).
struct SectionEntry {
    fde_offset: Option<usize>,
}

impl<'data> Entries<'data> {
    fn new(section: &'data FrameSection<'data>) -> Self {
        Self { section, offset: 0 }
    }

    fn error(&self, length: u64, left: usize) -> BuildError {
        BuildError::EntryLength {
            section: self.section.format.name(),
            offset: self.offset as u64,
            length,
            left: left as u64,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.section.extent, Extent::Open { .. })
    }

    fn is_cie(&self, wide: bool, entry: &[u8]) -> bool {
        match (self.section.format, wide) {
            (FrameFormat::EhFrame, _) => entry.starts_with(&[0; 4]),
            (FrameFormat::DebugFrame, false) => entry.starts_with(&[0xff; 4]),
            (FrameFormat::DebugFrame, true) => entry.starts_with(&[0xff; 8]),
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<SectionEntry, BuildError>;

    fn next(&mut self) -> Option<Self::Item> {
        let size = self.section.bytes.len();
        // Less than a length field: alignment bytes at the end.
        let (length, wide, rest) = read_length(&self.section.bytes, self.offset)?;
        if length == 0 && self.is_open() {
            return None;
        }
        let entry = usize::try_from(length)
            .ok()
            .and_then(|length| rest.get(..length));
        let Some(entry) = entry else {
            if self.is_open() {
                return None;
            }
            let error = self.error(length, rest.len());
            self.offset = size;
            return Some(Err(error));
        };
        let offset = self.offset;
        self.offset = size - rest.len() + entry.len();
        let is_fde = !entry.is_empty() && !self.is_cie(wide, entry);
        Some(Ok(SectionEntry {
            fde_offset: is_fde.then_some(offset),
        }))
    }
}
