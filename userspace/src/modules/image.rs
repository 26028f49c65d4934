//! What is needed of an ELF file to place an address in it: load segments and build id.
//!
//! Reads the program headers, which are also what the kernel went by; section headers may be
//! missing or lie. Only for a file without load segments, as `dwz` makes them, they give the build
//! id. A file that is no ELF file has an empty image.

use std::fmt;
use std::fs::File;
use std::sync::Arc;

use object::Endianness;
use object::elf::{FileHeader32, FileHeader64, NT_GNU_BUILD_ID, PT_LOAD, PT_NOTE};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader as _, SectionHeader as _};
use object::read::{FileKind, ReadCache, ReadRef};

use super::positioned::PositionedFile;

/// More load segments than this are ignored; linkers make fewer than ten.
const MAX_SEGMENTS: usize = 1024;
/// Longer notes than this are not read; a build id segment holds some hundred bytes.
const MAX_NOTES: u64 = 1 << 16;
/// Longer build ids than this are ignored; 20 bytes are usual, 64 the longest that linkers offer.
const MAX_BUILD_ID: usize = 64;

/// The bytes of an `NT_GNU_BUILD_ID` note: which build of a file this is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId(Box<[u8]>);

impl BuildId {
    /// Takes a note's bytes; `None` when there are none or too many.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=MAX_BUILD_ID)
            .contains(&bytes.len())
            .then(|| Self(bytes.into()))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Lower-case hexadecimal, as in the names of debug files.
impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

/// One `PT_LOAD` program header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSegment {
    /// Offset in the file, bytes.
    pub file_offset: u64,
    /// Bytes that come from the file.
    pub file_size: u64,
    /// Virtual address in the ELF file of the first of them.
    pub virtual_address: u64,
}

impl LoadSegment {
    /// The virtual address that belongs to a file offset, if the offset is in this segment or in
    /// the rest of the pages that the kernel maps for it.
    fn virtual_address_of(&self, offset: u64) -> Option<u64> {
        /// The largest page size on x86-64 that a file mapping is rounded to.
        const PAGE: u64 = 4096;
        let first = self.file_offset & !(PAGE - 1);
        let end = self
            .file_offset
            .checked_add(self.file_size)?
            .checked_next_multiple_of(PAGE)?;
        if !(first..end).contains(&offset) {
            return None;
        }
        Some(
            self.virtual_address
                .wrapping_sub(self.file_offset)
                .wrapping_add(offset),
        )
    }

    fn file_offset_of(&self, address: u64) -> Option<u64> {
        let delta = address.checked_sub(self.virtual_address)?;
        (delta < self.file_size).then(|| self.file_offset.checked_add(delta))?
    }

    fn contains_offset(&self, offset: u64) -> bool {
        offset
            .checked_sub(self.file_offset)
            .is_some_and(|delta| delta < self.file_size)
    }
}

/// Load segments and build id of one ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElfImage {
    /// Load segments in the file's order, which is by ascending address.
    pub segments: Vec<LoadSegment>,
    /// Build id, if the linker made one.
    pub build_id: Option<BuildId>,
}

impl ElfImage {
    /// Reads the image of a file; empty when it is no ELF file or is broken.
    #[must_use]
    pub fn of_file(file: &Arc<File>) -> Self {
        let cache = ReadCache::new(PositionedFile::new(Arc::clone(file)));
        Self::parse(&cache)
    }

    /// Reads the image of a whole file in memory, or of as much of its beginning as is at hand.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self::parse(bytes)
    }

    fn parse<'data, R: ReadRef<'data>>(data: R) -> Self {
        match FileKind::parse(data) {
            Ok(FileKind::Elf64) => parse_class::<FileHeader64<Endianness>, R>(data),
            Ok(FileKind::Elf32) => parse_class::<FileHeader32<Endianness>, R>(data),
            _ => None,
        }
        .unwrap_or_default()
    }

    /// The virtual address in the ELF file that a file offset is loaded to. An offset that lies in
    /// the shared page of two segments belongs to the one whose bytes it is.
    #[must_use]
    pub fn virtual_address(&self, file_offset: u64) -> Option<u64> {
        let exact = self
            .segments
            .iter()
            .find(|segment| segment.contains_offset(file_offset));
        match exact {
            Some(segment) => segment.virtual_address_of(file_offset),
            None => self
                .segments
                .iter()
                .find_map(|s| s.virtual_address_of(file_offset)),
        }
    }

    /// The file offset of the byte at a virtual address; `None` for what no segment has in the file.
    #[must_use]
    pub fn file_offset(&self, virtual_address: u64) -> Option<u64> {
        self.segments
            .iter()
            .find_map(|segment| segment.file_offset_of(virtual_address))
    }
}

fn parse_class<'data, Elf, R>(data: R) -> Option<ElfImage>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let program_headers = header.program_headers(endian, data).ok()?;
    let mut image = ElfImage::default();
    for program_header in program_headers {
        match program_header.p_type(endian) {
            PT_LOAD if image.segments.len() < MAX_SEGMENTS => image.segments.push(LoadSegment {
                file_offset: program_header.p_offset(endian).into(),
                file_size: program_header.p_filesz(endian).into(),
                virtual_address: program_header.p_vaddr(endian).into(),
            }),
            PT_NOTE if image.build_id.is_none() => {
                image.build_id = read_build_id::<Elf, R>(program_header, endian, data);
            }
            _ => {}
        }
    }
    if image.segments.is_empty() {
        image.build_id = section_build_id(header, endian, data);
    }
    Some(image)
}

fn read_build_id<'data, Elf, R>(
    program_header: &Elf::ProgramHeader,
    endian: Endianness,
    data: R,
) -> Option<BuildId>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    if program_header.p_filesz(endian).into() > MAX_NOTES {
        return None;
    }
    find_build_id(program_header.notes(endian, data).ok()??, endian)
}

fn section_build_id<'data, Elf, R>(header: &Elf, endian: Endianness, data: R) -> Option<BuildId>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let sections = header.sections(endian, data).ok()?;
    let (_, section) = sections.section_by_name(endian, b".note.gnu.build-id")?;
    if section.sh_size(endian).into() > MAX_NOTES {
        return None;
    }
    find_build_id(section.notes(endian, data).ok()??, endian)
}

fn find_build_id<Elf>(mut notes: NoteIterator<'_, Elf>, endian: Endianness) -> Option<BuildId>
where
    Elf: FileHeader<Endian = Endianness>,
{
    while let Ok(Some(note)) = notes.next() {
        if note.n_type(endian) == NT_GNU_BUILD_ID && note.name() == object::elf::ELF_NOTE_GNU {
            return BuildId::new(note.desc());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read as _;

    fn image() -> ElfImage {
        let segment = |file_offset, file_size, virtual_address| LoadSegment {
            file_offset,
            file_size,
            virtual_address,
        };
        ElfImage {
            segments: vec![
                segment(0, 0x1234, 0x40_0000),
                segment(0x1234, 0x2000, 0x40_2234),
                segment(0x4010, 0x100, 0x41_0010),
            ],
            build_id: None,
        }
    }

    #[test]
    fn an_offset_belongs_to_the_segment_that_holds_its_bytes() {
        let image = image();
        assert_eq!(image.virtual_address(0x1000), Some(0x40_1000));
        assert_eq!(image.virtual_address(0x1233), Some(0x40_1233));
        assert_eq!(image.virtual_address(0x1234), Some(0x40_2234));
        assert_eq!(image.virtual_address(0x3233), Some(0x40_4233));
    }

    #[test]
    fn what_only_the_rounding_to_pages_maps_is_still_placed() {
        assert_eq!(image().virtual_address(0x3fff), Some(0x40_4fff));
        assert_eq!(image().virtual_address(0x4000), Some(0x41_0000));
        assert_eq!(image().virtual_address(0x5000), None);
    }

    #[test]
    fn an_address_leads_back_to_its_offset() {
        assert_eq!(image().file_offset(0x40_2234), Some(0x1234));
        assert_eq!(image().file_offset(0x41_010f), Some(0x410f));
        assert_eq!(image().file_offset(0x41_0110), None);
        assert_eq!(image().file_offset(0), None);
    }

    #[test]
    fn this_executable_has_segments() {
        let file = Arc::new(File::open("/proc/self/exe").unwrap());
        let image = ElfImage::of_file(&file);
        assert!(image.segments.len() >= 2);
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(image, ElfImage::of_bytes(&bytes));
    }

    #[test]
    fn a_build_id_prints_as_debug_files_are_named() {
        assert_eq!(BuildId::new(&[0xab, 0x01]).unwrap().to_string(), "ab01");
        assert_eq!(BuildId::new(&[]), None);
        assert_eq!(BuildId::new(&[0; 65]), None);
    }

    proptest! {
        #[test]
        fn damaged_headers_never_panic(
            cut in 0usize..2000,
            flips in proptest::collection::vec((0usize..1024, any::<u8>()), 0..8),
            offset: u64,
        ) {
            let mut bytes = vec![0; 4096];
            File::open("/proc/self/exe").unwrap().read_exact(&mut bytes).unwrap();
            for (at, value) in flips {
                bytes[at] = value;
            }
            bytes.truncate(4096 - cut.min(4096));
            let image = ElfImage::of_bytes(&bytes);
            let _ = image.virtual_address(offset);
            let _ = image.file_offset(offset);
        }
    }
}
