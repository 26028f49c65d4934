//! Finds in an ELF image what a table is made from: code, unwind sections, build id.
//!
//! Knows ELF, not DWARF. Segments are checked here: executable ones are sorted, do not overlap, do
//! not wrap, and span less than a table can hold.

use object::LittleEndian;
use object::elf::{self, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};

use crate::elf_header::{ENDIAN, parse_header};
use crate::error::BuildError;
use crate::frame_sections::{self, FrameSection};
use crate::limits::Limits;
use crate::table::{MAX_SEGMENTS, MAX_SPAN, Segment};

/// GNU build ids have 16 or 20 bytes; longer ones than this are not believed.
const MAX_BUILD_ID: usize = 64;

/// The parts of an ELF image that matter for unwinding.
pub(crate) struct Image<'data> {
    /// Executable segments by ascending address; at least one.
    pub(crate) code: Vec<Code<'data>>,
    /// Unwind sections, `.eh_frame` before `.debug_frame`.
    pub(crate) frames: Vec<FrameSection<'data>>,
    /// Where execution begins; 0 for most libraries.
    pub(crate) entry: u64,
    /// Empty when there is none.
    pub(crate) build_id: Vec<u8>,
}

/// An executable segment and its bytes.
pub(crate) struct Code<'data> {
    pub(crate) segment: Segment,
    /// As many as `segment.size` says.
    pub(crate) bytes: &'data [u8],
    /// The address after the last byte.
    pub(crate) end: u64,
}

/// Reads headers of `data` and picks out the parts.
pub(crate) fn parse<'data>(data: &'data [u8], limits: &Limits) -> Result<Image<'data>, BuildError> {
    let header = parse_header(data)?;
    let segments =
        header
            .program_headers(ENDIAN, data)
            .map_err(|source| BuildError::Malformed {
                part: "program headers",
                source,
            })?;
    let frames = frame_sections::find(header, segments, data, limits)?;
    Ok(Image {
        code: executable_segments(segments, data)?,
        frames,
        entry: header.e_entry(ENDIAN),
        build_id: build_id(segments, data).unwrap_or_default(),
    })
}

fn executable_segments<'data>(
    segments: &[ProgramHeader64<LittleEndian>],
    data: &'data [u8],
) -> Result<Vec<Code<'data>>, BuildError> {
    let executable = |segment: &&ProgramHeader64<LittleEndian>| {
        segment.p_type(ENDIAN) == elf::PT_LOAD
            && segment.p_flags(ENDIAN) & elf::PF_X != 0
            && segment.p_filesz(ENDIAN) > 0
    };
    let mut code = segments
        .iter()
        .filter(executable)
        .map(|segment| code_of(segment, data))
        .collect::<Result<Vec<_>, _>>()?;
    code.sort_by_key(|code| code.segment.address);
    check_layout(&code)?;
    Ok(code)
}

fn code_of<'data>(
    segment: &ProgramHeader64<LittleEndian>,
    data: &'data [u8],
) -> Result<Code<'data>, BuildError> {
    let bytes = segment
        .data(ENDIAN, data)
        .map_err(|()| BuildError::BadSegment {
            address: segment.p_vaddr(ENDIAN),
            size: segment.p_filesz(ENDIAN),
        })?;
    let segment = Segment {
        file_offset: segment.p_offset(ENDIAN),
        size: bytes.len() as u64,
        address: segment.p_vaddr(ENDIAN),
    };
    let end = segment.end().ok_or(BuildError::BadSegment {
        address: segment.address,
        size: segment.size,
    })?;
    Ok(Code {
        segment,
        bytes,
        end,
    })
}

fn check_layout(code: &[Code<'_>]) -> Result<(), BuildError> {
    let (Some(first), Some(last)) = (code.first(), code.last()) else {
        return Err(BuildError::NoCode);
    };
    if code.len() > MAX_SEGMENTS {
        return Err(BuildError::TooManySegments {
            count: code.len(),
            limit: MAX_SEGMENTS,
        });
    }
    if let Some([_, second]) = code
        .array_windows()
        .find(|[a, b]| a.end > b.segment.address)
    {
        let Segment { address, size, .. } = second.segment;
        return Err(BuildError::BadSegment { address, size });
    }
    let start = first.segment.address;
    let span = last.end.saturating_sub(start);
    // One block less than a table can hold, because its base is rounded down.
    let limit = MAX_SPAN - crate::encoding::BLOCK_BYTES;
    if span > limit {
        return Err(BuildError::SpanTooLarge { start, span, limit });
    }
    Ok(())
}

fn build_id(segments: &[ProgramHeader64<LittleEndian>], data: &[u8]) -> Option<Vec<u8>> {
    segments
        .iter()
        .filter_map(|segment| segment.notes(ENDIAN, data).ok().flatten())
        .flat_map(|notes| notes.map_while(Result::ok))
        .find(|note| {
            note.name() == elf::ELF_NOTE_GNU && note.n_type(ENDIAN) == elf::NT_GNU_BUILD_ID
        })
        .map(|note| note.desc())
        .filter(|id| id.len() <= MAX_BUILD_ID)
        .map(<[u8]>::to_vec)
}
