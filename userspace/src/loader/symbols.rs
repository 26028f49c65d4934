//! The functions that an ELF file defines, with their names.
//!
//! Names are read all at once: a large library has tens of thousands, and a read for each takes
//! longer than all else that attaching does. The file is a target's: what it does not hold is left
//! out.

use object::{
    Endianness, ReadRef,
    elf::{FileHeader64, SHN_LORESERVE, SHN_UNDEF, SHN_XINDEX, STB_LOCAL, STT_FUNC, STT_GNU_IFUNC},
    read::elf::{ElfFile64, SectionHeader, Sym, SymbolTable},
};

/// A function that is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FunctionSymbol<'data> {
    /// Empty if it cannot be read.
    pub(super) name: &'data str,
    pub(super) address: u64,
    /// In bytes.
    pub(super) size: u64,
    /// True if other modules cannot see it.
    pub(super) is_local: bool,
}

/// All functions that a file defines, those of the dynamic linker's table first.
pub(super) fn functions<'data, 'file, R: ReadRef<'data>>(
    file: &'file ElfFile64<'data, Endianness, R>,
) -> impl Iterator<Item = FunctionSymbol<'data>> + use<'data, 'file, R> {
    of_type(file, STT_FUNC)
}

/// The functions that choose one of several versions of a function, whose name they bear, when the
/// program is loaded.
pub(super) fn choosers<'data, 'file, R: ReadRef<'data>>(
    file: &'file ElfFile64<'data, Endianness, R>,
) -> impl Iterator<Item = FunctionSymbol<'data>> + use<'data, 'file, R> {
    of_type(file, STT_GNU_IFUNC)
}

fn of_type<'data, 'file, R: ReadRef<'data>>(
    file: &'file ElfFile64<'data, Endianness, R>,
    kind: u8,
) -> impl Iterator<Item = FunctionSymbol<'data>> + use<'data, 'file, R> {
    let tables = [file.elf_dynamic_symbol_table(), file.elf_symbol_table()];
    tables.into_iter().flat_map(move |table| {
        let names = all_names(file, table).unwrap_or_default();
        let endian = file.endian();
        let functions = table.iter().filter(move |symbol| {
            symbol.st_type() == kind && is_in_section(symbol.st_shndx(endian))
        });
        functions.map(move |symbol| FunctionSymbol {
            name: name_at(names, symbol.st_name(endian)).unwrap_or_default(),
            address: symbol.st_value(endian),
            size: symbol.st_size(endian),
            is_local: symbol.st_bind() == STB_LOCAL,
        })
    })
}

/// True if the index of a symbol's section is one, be it told elsewhere.
const fn is_in_section(index: u16) -> bool {
    index == SHN_XINDEX || (index != SHN_UNDEF && index < SHN_LORESERVE)
}

fn all_names<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
    table: &SymbolTable<'data, FileHeader64<Endianness>, R>,
) -> Option<&'data [u8]> {
    let section = file.elf_section_table().section(table.string_section());
    section.ok()?.data(file.endian(), file.data()).ok()
}

/// The name that begins at an offset.
fn name_at(names: &[u8], offset: u32) -> Option<&str> {
    let from_there = names.get(offset as usize..)?;
    let end = memchr::memchr(0, from_there)?;
    str::from_utf8(&from_there[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_a_zero_and_within_the_table() {
        let names = b"\0malloc\0fr\xffee\0no end";
        assert_eq!(name_at(names, 1), Some("malloc"));
        assert_eq!(name_at(names, 4), Some("loc"));
        assert_eq!(name_at(names, 0), Some(""));
        assert_eq!(name_at(names, 8), None, "no text");
        assert_eq!(name_at(names, 15), None, "no end");
        assert_eq!(name_at(names, 100), None);
    }

    #[test]
    fn a_library_chooses_its_memset() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.ends_with("/libc.so.6"));
        let path = line.unwrap().split_whitespace().last().unwrap();
        let libc = std::fs::read(path).unwrap();
        let file = ElfFile64::<Endianness, _>::parse(libc.as_slice()).unwrap();
        assert!(choosers(&file).any(|function| function.name == "memset"));
        assert!(!functions(&file).any(|function| function.name == "memset"));
    }

    #[test]
    fn the_functions_of_this_program_are_found() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let file = ElfFile64::<Endianness, _>::parse(program.as_slice()).unwrap();
        let main = functions(&file).find(|function| function.name == "main");
        assert!(main.is_some_and(|main| main.size > 0 && !main.is_local));
        assert_eq!(functions(&file).find(|found| found.name == "malloc"), None);
    }
}
