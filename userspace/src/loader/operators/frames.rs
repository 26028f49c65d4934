//! Where functions begin and end, by unwind information: files are stripped of the symbols of
//! their inner functions, but not of that.
//!
//! Only the usual encodings are read (LSB Core, `.eh_frame_hdr`): offsets of 32 bits relative to
//! where they stand or to the section. What is encoded otherwise is left out.

use object::{Endianness, Object, ObjectSection, ReadRef, read::elf::ElfFile64};

/// Version 1, a pointer relative to itself, a count, and a table relative to the section.
const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
/// The header with the pointer and the count.
const TABLE_AT: usize = 12;

/// Begin and end of the functions that unwind information describes.
pub(super) fn functions<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
) -> Vec<(u64, u64)> {
    let section = |name| {
        let section = file.section_by_name(name)?;
        Some((section.address(), section.data().ok()?))
    };
    let (Some((header_at, header)), Some((frames_at, frames))) =
        (section(".eh_frame_hdr"), section(".eh_frame"))
    else {
        return Vec::new();
    };
    if !header.starts_with(&HEADER) {
        return Vec::new();
    }
    let entries = header.get(TABLE_AT..).unwrap_or_default().chunks_exact(8);
    let function = |entry: &[u8]| {
        let start = relative(header_at, word(entry, 0)?);
        let frame = relative(header_at, word(entry, 4)?);
        let inside = usize::try_from(frame.checked_sub(frames_at)?).ok()?;
        length(frames.get(inside..)?, frame, start).map(|length| (start, start + length))
    };
    entries.filter_map(function).collect()
}

/// The length of the function that begins at `start`, whose entry stands at `address`.
fn length(entry: &[u8], address: u64, start: u64) -> Option<u64> {
    const BEGIN_AT: usize = 8;
    let begin = relative(address + BEGIN_AT as u64, word(entry, BEGIN_AT)?);
    let length = u64::from(word(entry, BEGIN_AT + 4)?);
    // Otherwise it is encoded in another way.
    (begin == start && start.checked_add(length).is_some()).then_some(length)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn relative(address: u64, offset: u32) -> u64 {
    address.wrapping_add_signed(i64::from(offset.cast_signed()))
}
