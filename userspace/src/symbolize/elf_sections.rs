//! Reads the sections of an ELF file that symbolizing needs, without mapping the file: the target
//! may cut it short while we look, and a mapped page that is gone kills the reader.
//!
//! Everything is optional; what is malformed counts as not there.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym as _};
use object::read::{FileKind, ReadCache, ReadRef};

use super::symbol_table::{Binding, Symbol, SymbolTable};
use crate::modules::positioned::PositionedFile;
use crate::modules::{BuildId, ModuleContent};

/// Debug link sections hold a file name; longer ones are ignored.
const MAX_LINK: u64 = 1 << 13;
/// Larger `.gnu_debugdata` sections are ignored; usual ones have some hundred KiB at most.
const MAX_MINI_DEBUG_INFO: u64 = 64 << 20;
/// More than this is never unpacked from a compressed file, however large.
const MAX_UNPACKED: u64 = 16 << 30;
/// zlib packs at most 1032 to 1; debug information that claims to unpack to more is a trap.
const MAX_RATIO: u64 = 1100;

/// `.gnu_debuglink`: the name of a separate debug file and the CRC-32 of its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugLink {
    /// File name without directory.
    pub name: OsString,
    /// CRC-32 (IEEE) of the whole debug file.
    pub crc: u32,
}

/// `.gnu_debugaltlink`: the file that `dwz` moved what several files share into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlternateLink {
    /// Its path; a relative one starts at the directory of the file that has the link.
    pub path: PathBuf,
    /// Its build id.
    pub build_id: BuildId,
}

/// What the sections of one ELF file offer.
#[derive(Debug, Default)]
pub struct ElfSections {
    /// Whether there is debug information to read (`.debug_info` with contents).
    pub has_debug_info: bool,
    /// Whether compressed sections claim to unpack to more than they can.
    pub is_trap: bool,
    /// Link to a separate debug file.
    pub debug_link: Option<DebugLink>,
    /// Link to a `dwz` file.
    pub alternate_link: Option<AlternateLink>,
    /// `.symtab`
    pub symbols: SymbolTable,
    /// `.dynsym`
    pub dynamic_symbols: SymbolTable,
    /// `.gnu_debugdata`, still packed.
    pub mini_debug_info: Option<Vec<u8>>,
}

impl ElfSections {
    /// Reads them.
    #[must_use]
    pub fn read(content: &ModuleContent) -> Self {
        match content {
            ModuleContent::File(file) => {
                Self::parse(&ReadCache::new(PositionedFile::new(Arc::clone(file))))
            }
            ModuleContent::Bytes(bytes) => Self::parse(&**bytes),
        }
    }

    /// Reads them from bytes, or from a cache over a file.
    pub fn parse<'data, R: ReadRef<'data>>(data: R) -> Self {
        match FileKind::parse(data) {
            Ok(FileKind::Elf64) => Sections::<elf::FileHeader64<Endianness>, R>::open(data)
                .map(|sections| sections.summary()),
            Ok(FileKind::Elf32) => Sections::<elf::FileHeader32<Endianness>, R>::open(data)
                .map(|sections| sections.summary()),
            _ => None,
        }
        .unwrap_or_default()
    }
}

struct Sections<'data, Elf: FileHeader, R: ReadRef<'data>> {
    data: R,
    endian: Endianness,
    table: SectionTable<'data, Elf, R>,
}

impl<'data, Elf, R> Sections<'data, Elf, R>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    fn open(data: R) -> Option<Self> {
        let header = Elf::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let table = header.sections(endian, data).ok()?;
        Some(Self {
            data,
            endian,
            table,
        })
    }

    fn summary(&self) -> ElfSections {
        ElfSections {
            has_debug_info: self.has_contents(b".debug_info"),
            is_trap: self.is_trap(),
            debug_link: self
                .contents(b".gnu_debuglink", MAX_LINK)
                .and_then(|bytes| parse_debug_link(bytes, self.endian)),
            alternate_link: self
                .contents(b".gnu_debugaltlink", MAX_LINK)
                .and_then(parse_alternate_link),
            symbols: self.symbols(elf::SHT_SYMTAB).unwrap_or_default(),
            dynamic_symbols: self.symbols(elf::SHT_DYNSYM).unwrap_or_default(),
            mini_debug_info: self
                .contents(b".gnu_debugdata", MAX_MINI_DEBUG_INFO)
                .map(<[u8]>::to_vec),
        }
    }

    fn section(&self, name: &[u8]) -> Option<&'data Elf::SectionHeader> {
        self.table
            .section_by_name(self.endian, name)
            .map(|(_, section)| section)
    }

    fn has_contents(&self, name: &[u8]) -> bool {
        self.section(name).is_some_and(|section| {
            section.sh_type(self.endian) != elf::SHT_NOBITS
                && section.sh_size(self.endian).into() != 0
        })
    }

    fn contents(&self, name: &[u8], limit: u64) -> Option<&'data [u8]> {
        let section = self.section(name)?;
        if section.sh_size(self.endian).into() > limit {
            return None;
        }
        section
            .data(self.endian, self.data)
            .ok()
            .filter(|bytes| !bytes.is_empty())
    }

    fn is_trap(&self) -> bool {
        let unpacked = self
            .table
            .iter()
            .filter_map(|section| section.compression(self.endian, self.data).ok()?)
            .map(|(header, ..)| object::read::elf::CompressionHeader::ch_size(header, self.endian))
            .fold(0u64, |sum, size| sum.saturating_add(size.into()));
        let length = self.data.len().unwrap_or(0);
        unpacked > MAX_UNPACKED.min(length.saturating_mul(MAX_RATIO))
    }

    fn symbols(&self, kind: u32) -> Option<SymbolTable> {
        let table = self.table.symbols(self.endian, self.data, kind).ok()?;
        let names = self.table.section(table.string_section()).ok()?;
        let names = names.data(self.endian, self.data).ok()?;
        let functions = table.iter().filter_map(|symbol| {
            let is_function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
            (is_function && symbol.st_shndx(self.endian) != elf::SHN_UNDEF).then(|| Symbol {
                address: symbol.st_value(self.endian).into(),
                size: symbol.st_size(self.endian).into(),
                name: symbol.st_name(self.endian),
                binding: match symbol.st_bind() {
                    elf::STB_LOCAL => Binding::Local,
                    elf::STB_WEAK => Binding::Weak,
                    _ => Binding::Global,
                },
            })
        });
        let functions: Vec<_> = functions.collect();
        // The strings are not worth their memory when nothing points into them.
        let names = if functions.is_empty() {
            Vec::new()
        } else {
            names.to_vec()
        };
        Some(SymbolTable::new(names, functions))
    }
}

/// A name ended by zero, padding to a multiple of four, four bytes of CRC.
fn parse_debug_link(bytes: &[u8], endian: Endianness) -> Option<DebugLink> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    let name = bytes.get(..end)?;
    // With a directory in it the link could lead anywhere; the format has none.
    if name.is_empty() || name.contains(&b'/') || name == b".." {
        return None;
    }
    let crc_at = (end + 1).next_multiple_of(4);
    let crc: [u8; 4] = bytes.get(crc_at..crc_at + 4)?.try_into().ok()?;
    let crc = match endian {
        Endianness::Little => u32::from_le_bytes(crc),
        Endianness::Big => u32::from_be_bytes(crc),
    };
    Some(DebugLink {
        name: OsString::from_vec(name.to_vec()),
        crc,
    })
}

/// A path ended by zero, then the build id up to the section's end.
fn parse_alternate_link(bytes: &[u8]) -> Option<AlternateLink> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    let path = PathBuf::from(OsString::from_vec(bytes.get(..end)?.to_vec()));
    Some(AlternateLink {
        path,
        build_id: BuildId::new(bytes.get(end + 1..)?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn debug_links_are_read_with_their_padding() {
        let link = parse_debug_link(b"a.debug\0\x78\x56\x34\x12", Endianness::Little).unwrap();
        assert_eq!(
            (link.name.to_str(), link.crc),
            (Some("a.debug"), 0x1234_5678)
        );
        let link = parse_debug_link(b"ab\0\0\x12\x34\x56\x78", Endianness::Big).unwrap();
        assert_eq!((link.name.to_str(), link.crc), (Some("ab"), 0x1234_5678));
    }

    #[test]
    fn debug_links_out_of_the_directory_are_refused() {
        for link in [
            &b"../x\0\0\0\0aaaa"[..],
            b"\0\0\0\0aaaa",
            b"..\0\0aaaa",
            b"a",
            b"a\0\0\0aa",
        ] {
            assert_eq!(parse_debug_link(link, Endianness::Little), None, "{link:?}");
        }
    }

    #[test]
    fn an_alternate_link_is_a_path_and_a_build_id() {
        let link = parse_alternate_link(b"/usr/lib/debug/.dwz/x.debug\0\xab\xcd").unwrap();
        assert_eq!(link.path, PathBuf::from("/usr/lib/debug/.dwz/x.debug"));
        assert_eq!(link.build_id.to_string(), "abcd");
        assert_eq!(parse_alternate_link(b"/x\0"), None);
    }

    #[test]
    fn this_test_program_has_symbols() {
        let file = Arc::new(std::fs::File::open("/proc/self/exe").unwrap());
        let sections = ElfSections::read(&ModuleContent::File(file));
        assert!(!sections.symbols.is_empty());
        assert!(!sections.is_trap);
    }

    proptest! {
        #[test]
        fn any_bytes_behind_an_elf_magic_are_survived(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
        ) {
            let file = [&b"\x7fELF\x02\x01\x01"[..], &bytes].concat();
            let _ = ElfSections::parse(file.as_slice());
        }
    }
}
