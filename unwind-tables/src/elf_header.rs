//! Recognises ELF images that tables can be built from: 64-bit, little-endian, x86-64.

use object::LittleEndian;
use object::elf::{EM_X86_64, FileHeader64};
use object::read::elf::FileHeader;

use crate::error::BuildError;

pub(crate) type Header = FileHeader64<LittleEndian>;
pub(crate) const ENDIAN: LittleEndian = LittleEndian;

pub(crate) fn parse_header(data: &[u8]) -> Result<&Header, BuildError> {
    let not = |reason: String| BuildError::NotX86_64 { reason };
    let header = Header::parse(data).map_err(|error| not(error.to_string()))?;
    if !header.is_little_endian() || header.e_machine(ENDIAN) != EM_X86_64 {
        return Err(not(format!("machine {}", header.e_machine(ENDIAN))));
    }
    Ok(header)
}
