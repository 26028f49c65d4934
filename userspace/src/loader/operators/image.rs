//! An ELF file as a disassembler sees it: instructions at addresses, what is known of functions,
//! and where the pointers of the global offset table lead.
//!
//! The file is a target's: addresses may be anything, and nothing is read that the file does not
//! hold.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
};

use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::{
    Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol, ObjectSymbolTable, ReadRef,
    SegmentFlags, SymbolIndex, SymbolKind, elf,
    read::elf::{ElfFile64, ElfSymbol64, Rela, SectionHeader},
};

use super::{
    frames,
    names::{self, Role},
};
use crate::loader::symbols::{self, FunctionSymbol};

/// Longest instruction in bytes.
const LONGEST: u64 = 15;
/// Code is read in pieces of so many bytes, so that a cached reader keeps few of them.
const PIECE: u64 = 4096;

/// Where a pointer in the global offset table leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::loader) enum Slot {
    /// To a function with a role, in this module or another one.
    Role(Role),
    /// To code of this module.
    Code(u64),
    /// To a function of another module that is not known.
    Unknown(String),
}

/// A part of the file that is loaded.
#[derive(Clone, Debug)]
struct Segment {
    address: u64,
    offset: u64,
    length: u64,
    executable: bool,
}

/// The file.
pub(in crate::loader) struct Image<'data, R: ReadRef<'data>> {
    data: R,
    segments: Vec<Segment>,
    roles: HashMap<u64, Role>,
    /// End of each function, by its begin.
    ends: BTreeMap<u64, u64>,
    /// Addresses of global offset tables.
    tables: Vec<Range<u64>>,
    slots: HashMap<u64, Slot>,
    /// Functions that return their first argument, and pointers to them.
    returning_first: HashSet<u64>,
    lifetime: std::marker::PhantomData<&'data ()>,
}

impl<'data, R: ReadRef<'data>> Image<'data, R> {
    /// Reads the tables of a file.
    pub(in crate::loader) fn new(file: &ElfFile64<'data, Endianness, R>) -> object::Result<Self> {
        let mut image = Self {
            data: file.data(),
            segments: file.segments().map(Segment::from).collect(),
            roles: HashMap::new(),
            ends: BTreeMap::new(),
            tables: Vec::new(),
            slots: HashMap::new(),
            returning_first: HashSet::new(),
            lifetime: std::marker::PhantomData,
        };
        for function in symbols::functions(file) {
            image.add_function(&function);
        }
        let choosers = symbols::choosers(file).filter(|found| names::returns_first(found.name));
        image
            .returning_first
            .extend(choosers.map(|chooser| chooser.address));
        for section in file.sections() {
            if section
                .name_bytes()
                .is_ok_and(|name| name.starts_with(b".got"))
            {
                let end = section.address().saturating_add(section.size());
                image.tables.push(section.address()..end);
            }
        }
        image.add_slots(file)?;
        for (start, end) in frames::functions(file) {
            let known = image.ends.entry(start).or_insert(end);
            *known = end.max(*known);
        }
        Ok(image)
    }

    /// What is known of the function at an address.
    pub(in crate::loader) fn role(&self, address: u64) -> Option<Role> {
        self.roles.get(&address).copied()
    }

    /// Addresses of all functions that have a role.
    pub(in crate::loader) fn roles(&self) -> impl Iterator<Item = (u64, Role)> {
        self.roles.iter().map(|(address, role)| (*address, *role))
    }

    /// True for a function that returns its first argument, and for a pointer of a table to one.
    pub(in crate::loader) fn returns_first(&self, address: u64) -> bool {
        self.returning_first.contains(&address)
    }

    /// True if a function ends at `address`, as far as symbols and unwind information tell.
    pub(in crate::loader) fn is_end(&self, of: u64, address: u64) -> bool {
        let function = self.ends.range(..=of).next_back();
        function.is_some_and(|(_, end)| of < *end && address >= *end)
    }

    /// Offset in the file of the code at an address.
    pub(in crate::loader) fn offset(&self, address: u64) -> Option<u64> {
        let segment = self.segment(address)?;
        let inside = address - segment.address;
        segment
            .executable
            .then(|| segment.offset.checked_add(inside))?
    }

    /// The instruction at an address, if there is a valid one.
    pub(in crate::loader) fn instruction(&self, address: u64) -> Option<Instruction> {
        let bytes = self.code(address)?;
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        let instruction = decoder.decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// The bytes of at least one instruction at an address, fewer at the end of the code.
    pub(in crate::loader) fn code(&self, address: u64) -> Option<&'data [u8]> {
        let segment = self.segment(address).filter(|segment| segment.executable)?;
        let inside = address - segment.address;
        let piece = inside / PIECE * PIECE;
        let length = (segment.length - piece).min(PIECE + LONGEST);
        let offset = segment.offset.checked_add(piece)?;
        let bytes = self.data.read_bytes_at(offset, length).ok()?;
        bytes.get(usize::try_from(inside - piece).ok()?..)
    }

    /// Where the pointer at an address leads, if it is part of a global offset table: others can
    /// change as the program runs.
    pub(in crate::loader) fn slot(&self, address: u64) -> Option<Slot> {
        if let Some(slot) = self.slots.get(&address) {
            return Some(slot.clone());
        }
        if !self.tables.iter().any(|table| table.contains(&address)) {
            return None;
        }
        self.slot_of(self.word(address)?)
    }

    /// What a pointer of a table is without a relocation: null is a weak function that does not
    /// exist, and that is called by nobody.
    fn slot_of(&self, pointer: u64) -> Option<Slot> {
        if pointer == 0 {
            return Some(Slot::Role(Role::Returns));
        }
        self.offset(pointer).map(|_| Slot::Code(pointer))
    }

    fn segment(&self, address: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| {
            address >= segment.address && address - segment.address < segment.length
        })
    }

    fn word(&self, address: u64) -> Option<u64> {
        let segment = self.segment(address)?;
        let inside = address - segment.address;
        let length = size_of::<u64>() as u64;
        if segment.length - inside < length {
            return None;
        }
        let offset = segment.offset.checked_add(inside)?;
        let bytes = self.data.read_bytes_at(offset, length).ok()?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }

    fn add_function(&mut self, function: &FunctionSymbol<'_>) {
        let address = function.address;
        let end = address.saturating_add(function.size);
        let known = self.ends.entry(address).or_insert(end);
        *known = end.max(*known);
        if names::returns_first(function.name) {
            self.returning_first.insert(address);
        }
        if let Some(role) = Role::of(function.name) {
            let known = self.roles.entry(address).or_insert(role);
            *known = role.min(*known);
        }
    }

    /// Reads the relocations by which the dynamic linker fills the tables.
    fn add_slots(&mut self, file: &ElfFile64<'data, Endianness, R>) -> object::Result<()> {
        let endian = file.endian();
        for section in file.elf_section_table().iter() {
            if section.sh_flags(endian) & u64::from(elf::SHF_ALLOC) == 0 {
                continue;
            }
            let Some((relocations, _)) = section.rela(endian, file.data())? else {
                continue;
            };
            for relocation in relocations {
                if self.leads_to_first(file, relocation) {
                    self.returning_first.insert(relocation.r_offset(endian));
                }
                let target = match relocation.r_type(endian, false) {
                    elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT => {
                        self.slot_of_symbol(file, relocation.r_sym(endian, false))
                    }
                    // libc chooses between versions of its memory and string functions so.
                    elf::R_X86_64_IRELATIVE => Some(Slot::Role(Role::Returns)),
                    elf::R_X86_64_RELATIVE if self.in_table(relocation.r_offset(endian)) => {
                        self.slot_of(relocation.r_addend(endian).cast_unsigned())
                    }
                    _ => None,
                };
                if let Some(target) = target {
                    self.slots.insert(relocation.r_offset(endian), target);
                }
            }
        }
        Ok(())
    }

    /// True if a relocation makes a pointer to a function that returns its first argument.
    fn leads_to_first(
        &self,
        file: &ElfFile64<'data, Endianness, R>,
        relocation: &elf::Rela64<Endianness>,
    ) -> bool {
        let endian = file.endian();
        match relocation.r_type(endian, false) {
            elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT => {
                let symbol = symbol(file, relocation.r_sym(endian, false));
                symbol.is_some_and(|symbol| symbol.name().is_ok_and(names::returns_first))
            }
            // The address is that of the function that chooses, which bears the name.
            elf::R_X86_64_IRELATIVE => {
                self.returns_first(relocation.r_addend(endian).cast_unsigned())
            }
            _ => false,
        }
    }

    fn in_table(&self, address: u64) -> bool {
        self.tables.iter().any(|table| table.contains(&address))
    }

    fn slot_of_symbol(&self, file: &ElfFile64<'data, Endianness, R>, index: u32) -> Option<Slot> {
        let symbol = symbol(file, index)?;
        let name = symbol.name().ok()?;
        let defined = || {
            (symbol.is_definition() && symbol.kind() == SymbolKind::Text)
                .then(|| Slot::Code(symbol.address()))
        };
        Role::of(name)
            .map(Slot::Role)
            .or_else(defined)
            .or_else(|| Some(Slot::Unknown(name.to_owned())))
    }
}

/// A symbol that relocations name.
fn symbol<'data, 'file, R: ReadRef<'data>>(
    file: &'file ElfFile64<'data, Endianness, R>,
    index: u32,
) -> Option<ElfSymbol64<'data, 'file, Endianness, R>> {
    let table = file.dynamic_symbol_table()?;
    table.symbol_by_index(SymbolIndex(index as usize)).ok()
}

impl<'data, 'file, R: ReadRef<'data>>
    From<object::read::elf::ElfSegment64<'data, 'file, Endianness, R>> for Segment
{
    fn from(segment: object::read::elf::ElfSegment64<'data, 'file, Endianness, R>) -> Self {
        let (offset, length) = segment.file_range();
        let executable = matches!(
            segment.flags(),
            SegmentFlags::Elf { p_flags } if p_flags & elf::PF_X != 0
        );
        Self {
            address: segment.address(),
            offset,
            length,
            executable,
        }
    }
}
