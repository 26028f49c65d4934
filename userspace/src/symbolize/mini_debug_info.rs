//! Unpacks `.gnu_debugdata`: an ELF file with the symbol table of a stripped one, packed with xz,
//! as Fedora and its kin put into every library.

use std::io::Read as _;

use lzma_rust2::XzReader;

use super::elf_sections::ElfSections;
use super::symbol_table::SymbolTable;

/// Unpacked files larger than this are ignored; those of the largest libraries have some MiB.
const MAX_UNPACKED: u64 = 256 << 20;
/// Memory for the dictionary, KiB; xz's own largest preset needs 65 MiB.
const MAX_DICTIONARY: u32 = 128 << 10;

/// The symbols in the contents of a `.gnu_debugdata` section.
///
/// # Errors
/// When it does not unpack within bounds; the text says why.
pub fn symbols(packed: &[u8]) -> Result<SymbolTable, String> {
    let mut unpacked = Vec::new();
    XzReader::new_mem_limit(packed, false, MAX_DICTIONARY)
        .take(MAX_UNPACKED)
        .read_to_end(&mut unpacked)
        .map_err(|error| error.to_string())?;
    if unpacked.len() as u64 == MAX_UNPACKED {
        return Err(format!("unpacks to more than {MAX_UNPACKED} bytes"));
    }
    Ok(ElfSections::parse(unpacked.as_slice()).symbols)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_not_packed_is_an_error() {
        assert!(symbols(b"not xz at all").is_err());
        assert!(symbols(b"").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_behind_an_xz_magic_are_survived(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = symbols(&[&b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4\x46"[..], &bytes].concat());
        }
    }
}
