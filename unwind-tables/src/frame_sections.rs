//! Finds the sections of call frame information in an ELF image.
//!
//! Knows ELF and the header of `.eh_frame`, not what its entries say. Section headers are used
//! where they can be read, because they tell the exact size of `.eh_frame`; images without them
//! (stripped by `sstrip`, packed, or cut) go by the `PT_GNU_EH_FRAME` program header and the search
//! table there, as the run-time unwinders do.

use std::borrow::Cow;

use gimli::{
    BaseAddresses, EhFrameHdr, EndianSlice, LittleEndian as GimliEndian, ParsedEhFrameHdr,
};
use object::elf::{self, ProgramHeader64, SectionHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{CompressedData, CompressionFormat, LittleEndian};

use crate::elf_header::{ENDIAN, Header};
use crate::error::BuildError;
use crate::limits::Limits;
use crate::table::MAX_SEGMENTS;

type SearchHeader<'data> = ParsedEhFrameHdr<EndianSlice<'data, GimliEndian>>;

/// The two formats of call frame information, which differ in how entries refer to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameFormat {
    EhFrame,
    DebugFrame,
}

impl FrameFormat {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::EhFrame => ".eh_frame",
            Self::DebugFrame => ".debug_frame",
        }
    }
}

/// Where the entries of a section are.
pub(crate) enum Extent {
    /// One after the other, up to the end of the bytes; zero lengths in between mean nothing.
    Whole,
    /// One after the other, up to a zero length or something that cannot be an entry, because the
    /// section's end is not known; and FDEs at the offsets that a search table lists. Neither is
    /// whole: sections may have zero lengths in between, and lld's tables list one FDE an
    /// address, even if that one is empty.
    Open { listed: Vec<usize> },
}

/// A section (or stretch of memory) of call frame information.
pub(crate) struct FrameSection<'data> {
    pub(crate) format: FrameFormat,
    pub(crate) bytes: Cow<'data, [u8]>,
    /// What encoded pointers are relative to.
    pub(crate) bases: BaseAddresses,
    pub(crate) extent: Extent,
}

/// All sections of call frame information, `.eh_frame` before `.debug_frame`.
pub(crate) fn find<'data>(
    header: &Header,
    segments: &[ProgramHeader64<LittleEndian>],
    data: &'data [u8],
    limits: &Limits,
) -> Result<Vec<FrameSection<'data>>, BuildError> {
    let mut frames = frame_sections(header, data, limits)?;
    if !frames
        .iter()
        .any(|section| section.format == FrameFormat::EhFrame)
    {
        frames.splice(0..0, frames_by_program_header(segments, data));
    }
    Ok(frames)
}

/// The unwind sections by section header; none when the section headers cannot be read.
fn frame_sections<'data>(
    header: &Header,
    data: &'data [u8],
    limits: &Limits,
) -> Result<Vec<FrameSection<'data>>, BuildError> {
    let Ok(sections) = header.sections(ENDIAN, data) else {
        return Ok(Vec::new());
    };
    let named = |name: &'static str| {
        sections.iter().filter(move |section| {
            section.sh_type(ENDIAN) != elf::SHT_NOBITS
                && sections.section_name(ENDIAN, section) == Ok(name.as_bytes())
        })
    };
    let text = named(".text")
        .next()
        .map_or(0, |section| section.sh_addr(ENDIAN));
    let mut frames = Vec::new();
    for format in [FrameFormat::EhFrame, FrameFormat::DebugFrame] {
        for section in named(format.name()).take(MAX_SEGMENTS) {
            frames.push(FrameSection {
                format,
                bytes: section_bytes(section, data, format, limits)?,
                bases: BaseAddresses::default()
                    .set_eh_frame(section.sh_addr(ENDIAN))
                    .set_text(text),
                extent: Extent::Whole,
            });
        }
    }
    Ok(frames)
}

fn section_bytes<'data>(
    section: &SectionHeader64<LittleEndian>,
    data: &'data [u8],
    format: FrameFormat,
    limits: &Limits,
) -> Result<Cow<'data, [u8]>, BuildError> {
    let malformed = |source| BuildError::Malformed {
        part: format.name(),
        source,
    };
    let compression = section.compression(ENDIAN, data).map_err(malformed)?;
    let bytes = section.data(ENDIAN, data).map_err(malformed)?;
    let Some((compressed, header_bytes, _)) = compression else {
        check_section_size(format, bytes.len() as u64, limits)?;
        return Ok(Cow::Borrowed(bytes));
    };
    let uncompressed_size = compressed.ch_size.get(ENDIAN);
    check_section_size(format, uncompressed_size, limits)?;
    let header_bytes = header_bytes.saturating_sub(section.sh_offset(ENDIAN)) as usize;
    let packed = CompressedData {
        format: match compressed.ch_type.get(ENDIAN) {
            elf::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
            _ => CompressionFormat::Unknown,
        },
        data: bytes.get(header_bytes..).unwrap_or_default(),
        uncompressed_size,
    };
    packed.decompress().map_err(malformed)
}

fn check_section_size(format: FrameFormat, size: u64, limits: &Limits) -> Result<(), BuildError> {
    if size <= limits.section_bytes {
        return Ok(());
    }
    let limit = limits.section_bytes;
    Err(BuildError::SectionTooLarge {
        section: format.name(),
        size,
        limit,
    })
}

/// `.eh_frame` as the header at `PT_GNU_EH_FRAME` points to it, up to the end of its segment.
fn frames_by_program_header<'data>(
    segments: &[ProgramHeader64<LittleEndian>],
    data: &'data [u8],
) -> Option<FrameSection<'data>> {
    let header = segments
        .iter()
        .find(|s| s.p_type(ENDIAN) == elf::PT_GNU_EH_FRAME)?;
    let bytes = header.data(ENDIAN, data).ok()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.p_vaddr(ENDIAN));
    let parsed = EhFrameHdr::new(bytes, GimliEndian).parse(&bases, 8).ok()?;
    let address = parsed.eh_frame_ptr().direct().ok()?;
    Some(FrameSection {
        format: FrameFormat::EhFrame,
        bytes: Cow::Borrowed(bytes_from(address, segments, data)?),
        bases: BaseAddresses::default().set_eh_frame(address),
        extent: Extent::Open {
            listed: fdes_by_search_table(&parsed, &bases).unwrap_or_default(),
        },
    })
}

/// Offsets of the FDEs in the header's search table; `None` when it has no (readable) table.
fn fdes_by_search_table(header: &SearchHeader<'_>, bases: &BaseAddresses) -> Option<Vec<usize>> {
    let eh_frame = header.eh_frame_ptr().direct().ok()?;
    let table = header.table()?;
    let mut entries = table.iter(bases);
    let mut offsets = Vec::new();
    while let Some((_, fde)) = entries.next().ok()? {
        let offset = fde.direct().ok()?.checked_sub(eh_frame)?;
        offsets.push(usize::try_from(offset).ok()?);
    }
    Some(offsets)
}

/// The bytes of the loaded segment that holds `address`, from there on.
fn bytes_from<'data>(
    address: u64,
    segments: &[ProgramHeader64<LittleEndian>],
    data: &'data [u8],
) -> Option<&'data [u8]> {
    segments
        .iter()
        .filter(|segment| segment.p_type(ENDIAN) == elf::PT_LOAD)
        .find_map(|segment| {
            let distance = address.checked_sub(segment.p_vaddr(ENDIAN))?;
            let rest = segment
                .data(ENDIAN, data)
                .ok()?
                .get(usize::try_from(distance).ok()?..)?;
            (!rest.is_empty()).then_some(rest)
        })
}
