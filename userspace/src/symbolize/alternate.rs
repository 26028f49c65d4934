//! Reads debug information that refers to a `dwz` file, with addr2line.
//!
//! Debian's debug packages are of this kind: what the files of a package share stands once in a
//! file of its own. Both files' sections are read into memory, unpacked.

use std::fs::File;
use std::sync::Arc;

use addr2line::Context;
use addr2line::gimli::{self, Dwarf, EndianArcSlice, RunTimeEndian, SectionId};
use object::read::ReadCache;
use object::{Object as _, ObjectSection as _};

use super::elf_sections::ElfSections;
use super::frame::{Frame, source_path};
use crate::modules::ModuleContent;
use crate::modules::positioned::PositionedFile;

type Reader = EndianArcSlice<RunTimeEndian>;

/// The debug information of two files that belong together.
pub struct AlternateDwarf {
    context: Context<Reader>,
}

impl AlternateDwarf {
    /// Reads a file and its `dwz` file.
    ///
    /// # Errors
    /// When one of them cannot be read; the text says why.
    pub fn read(file: &Arc<File>, alternate: &Arc<File>) -> Result<Self, String> {
        let mut dwarf = load(file)?;
        dwarf.set_sup(load(alternate)?);
        let context = Context::from_dwarf(dwarf).map_err(|error| error.to_string())?;
        Ok(Self { context })
    }

    /// The frames at a virtual address, innermost first, with mangled names.
    ///
    /// # Errors
    /// When the debug information is malformed; the text says how.
    pub fn frames(&self, virtual_address: u64) -> Result<Vec<Frame>, String> {
        self.find(virtual_address)
            .map_err(|error| error.to_string())
    }

    fn find(&self, virtual_address: u64) -> Result<Vec<Frame>, gimli::Error> {
        let mut found = self.context.find_frames(virtual_address).skip_all_loads()?;
        let mut frames = Vec::new();
        while let Some(frame) = found.next()? {
            let function = frame
                .function
                .as_ref()
                .and_then(|function| function.raw_name().ok());
            let location = frame.location;
            frames.push(Frame {
                function: function.map(|name| name.into_owned()),
                file: location
                    .as_ref()
                    .and_then(|at| Some(source_path(None, at.file?.as_ref()))),
                line: location.and_then(|at| at.line).filter(|line| *line != 0),
            });
        }
        Ok(frames)
    }
}

fn load(file: &Arc<File>) -> Result<Dwarf<Reader>, String> {
    if ElfSections::read(&ModuleContent::File(Arc::clone(file))).is_trap {
        return Err("its sections claim to unpack to more than they can".to_owned());
    }
    let cache = ReadCache::new(PositionedFile::new(Arc::clone(file)));
    let elf = object::File::parse(&cache).map_err(|error| error.to_string())?;
    let endian = if elf.is_little_endian() {
        RunTimeEndian::Little
    } else {
        RunTimeEndian::Big
    };
    let section = |id: SectionId| {
        let data = elf
            .section_by_name(id.name())
            .and_then(|section| section.uncompressed_data().ok());
        Ok::<_, gimli::Error>(Reader::new(Arc::from(&*data.unwrap_or_default()), endian))
    };
    Dwarf::load(section).map_err(|error| error.to_string())
}
