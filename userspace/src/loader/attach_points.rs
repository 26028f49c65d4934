//! Finds where in an ELF file the functions to be probed begin.
//!
//! Pure: bytes in, file offsets out. Symbols are taken from the dynamic symbol table and, for
//! static programs, from the full one. The file is a target's, so nothing in it is trusted.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

use htrace_ebpf_common::function::Function;
use object::{
    Object, ObjectSegment, ObjectSymbol, ReadRef, SegmentFlags, SymbolKind, elf,
    read::elf::{ElfFile64, ElfSegment64},
};

use super::{
    functions::{self, ProbedFunction},
    operators::{self, Kind, Operator, Verdict},
};

/// A place for a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttachPoint {
    /// True for the return of the function, false for its entry.
    pub on_return: bool,
    /// Name of the program to attach.
    pub program: &'static str,
    /// Number of the function that a program which serves several is to know; 0 for none.
    pub number: u64,
    /// Bytes from the start of the file.
    pub offset: u64,
}

/// Attach points of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramPoints {
    /// Bytes from the start of the file.
    pub offsets: Vec<u64>,
    /// The [`AttachPoint::number`] of each.
    pub numbers: Vec<u64>,
}

/// Where a file is to be probed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachPoints {
    /// Names of the functions found.
    pub functions: BTreeSet<&'static str>,
    /// Length in bytes of the executable segment that holds them.
    pub text_length: u64,
    points: BTreeSet<AttachPoint>,
}

/// Why a file has no attach points.
#[derive(Debug, thiserror::Error)]
#[error("not a readable 64-bit ELF file")]
pub struct ElfError(#[from] object::Error);

impl AttachPoints {
    /// Looks for `functions` in an ELF file.
    ///
    /// # Errors
    /// When the file is not a 64-bit ELF file or its tables cannot be read.
    pub fn find<'data>(
        elf: impl ReadRef<'data>,
        functions: &[ProbedFunction],
    ) -> Result<Self, ElfError> {
        let file = ElfFile64::<object::Endianness, _>::parse(elf)?;
        let mut found = Self::default();
        for symbol in file.dynamic_symbols().chain(file.symbols()) {
            if symbol.kind() != SymbolKind::Text || !symbol.is_definition() || symbol.is_local() {
                continue;
            }
            let Ok(name) = symbol.name() else { continue };
            if let Some(function) = functions.iter().find(|function| function.name == name) {
                found.add(&file, function, symbol.address());
            }
        }
        Ok(found)
    }

    /// Looks for C++ operators that allocate, or free, by themselves. `functions` has their
    /// mangled names; `text_length` stays 0, because they call no probed function.
    ///
    /// # Errors
    /// When the file is not a 64-bit ELF file or its tables cannot be read.
    pub fn of_operators<'data>(elf: impl ReadRef<'data>) -> Result<Self, ElfError> {
        let file = ElfFile64::<object::Endianness, _>::parse(elf)?;
        let mut found = Self::default();
        for operator in operators::find(&file)? {
            match &operator.verdict {
                Verdict::Apart { rets } => found.add_operator(&file, &operator, rets),
                verdict => tracing::debug!("{} is not probed: it {verdict}", operator.name),
            }
        }
        Ok(found)
    }

    /// The same points in functions that no allocator calls.
    #[must_use]
    pub fn without_text(mut self) -> Self {
        self.text_length = 0;
        self
    }

    /// True if nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Attach points of one program each: its name, whether it goes to returns, where to.
    /// Entries come before returns.
    #[must_use]
    pub fn by_program(&self) -> Vec<(&'static str, bool, ProgramPoints)> {
        let mut groups: BTreeMap<(bool, &'static str), ProgramPoints> = BTreeMap::new();
        for point in &self.points {
            let group = groups.entry((point.on_return, point.program)).or_default();
            group.offsets.push(point.offset);
            group.numbers.push(point.number);
        }
        let entry = |((on_return, program), points)| (program, on_return, points);
        groups.into_iter().map(entry).collect()
    }

    /// Adds the points of an operator; all of them or, if one is in no executable segment, none.
    fn add_operator<'data, R: ReadRef<'data>>(
        &mut self,
        file: &ElfFile64<'data, object::Endianness, R>,
        operator: &Operator,
        rets: &[u64],
    ) {
        let (program, number, rets) = match operator.kind {
            Kind::New => (functions::ENTER, Function::OperatorNew.number(), rets),
            Kind::Delete => (functions::ENTER_FREE, 0, &[][..]),
        };
        let point = |program, number, offset| AttachPoint {
            on_return: false,
            program,
            number,
            offset,
        };
        let entry =
            Code::at(file, operator.address).map(|code| point(program, number, code.offset));
        let exits = rets
            .iter()
            .map(|ret| Some(point(functions::LEAVE_AT_RET, 0, file_offset(file, *ret)?)));
        let Some(points) = iter::once(entry).chain(exits).collect::<Option<Vec<_>>>() else {
            return;
        };
        self.functions.insert(operator.name);
        self.points.extend(points);
    }

    /// Adds the points of a function at `address`. Aliases share an address and thus their
    /// points; a symbol outside all executable segments has none.
    fn add<'data, R: ReadRef<'data>>(
        &mut self,
        file: &ElfFile64<'data, object::Endianness, R>,
        function: &ProbedFunction,
        address: u64,
    ) {
        let Some(code) = Code::at(file, address) else {
            return;
        };
        self.functions.insert(function.name);
        self.text_length = self.text_length.max(code.segment_length);
        let taken = self
            .points
            .iter()
            .any(|point| !point.on_return && point.offset == code.offset);
        if taken {
            return;
        }
        let offset = code.offset;
        self.points.insert(AttachPoint {
            on_return: false,
            program: function.enter,
            number: function.function.map_or(0, Function::number),
            offset,
        });
        if let Some(program) = function.leave {
            self.points.insert(AttachPoint {
                on_return: true,
                program,
                number: 0,
                offset,
            });
        }
    }
}

/// A function's code.
struct Code {
    /// Where to attach, in bytes from the start of the file.
    offset: u64,
    /// Length of the segment.
    segment_length: u64,
}

impl Code {
    /// Where to attach to the function at `address`: to its first instruction, or to one soon
    /// after that costs less.
    fn at<'data, R: ReadRef<'data>>(
        file: &ElfFile64<'data, object::Endianness, R>,
        address: u64,
    ) -> Option<Self> {
        let segment = executable_segment(file, address)?;
        let inside = usize::try_from(address - segment.address()).ok()?;
        let code = segment.data().ok().and_then(|data| data.get(inside..));
        let skip = code.map_or(0, cheap_entry) as u64;
        Some(Self {
            offset: file_offset(file, address)?.checked_add(skip)?,
            segment_length: segment.file_range().1,
        })
    }
}

/// Where the code at `address` lies, in bytes from the start of the file.
fn file_offset<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, object::Endianness, R>,
    address: u64,
) -> Option<u64> {
    let segment = executable_segment(file, address)?;
    let inside = address - segment.address();
    segment.file_range().0.checked_add(inside)
}

fn executable_segment<'data, 'file, R: ReadRef<'data>>(
    file: &'file ElfFile64<'data, object::Endianness, R>,
    address: u64,
) -> Option<ElfSegment64<'data, 'file, object::Endianness, R>> {
    file.segments().find(|segment| {
        let executable = matches!(
            segment.flags(),
            SegmentFlags::Elf { p_flags } if p_flags & elf::PF_X != 0
        );
        let start = segment.address();
        executable && address >= start && address - start < segment.file_range().1
    })
}

/// How many bytes of a function may be skipped to attach to an instruction that the kernel
/// emulates instead of stepping over it, which costs a fifth (measured on Linux 6.18; the list is
/// `branch_setup_xol_ops` and `push_setup_xol_ops` in the kernel's `arch/x86/kernel/uprobes.c`).
/// Only instructions are skipped that change neither memory, stack pointer nor arguments.
fn cheap_entry(code: &[u8]) -> usize {
    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    /// `test %rdi,%rdi`: glibc's `free` begins so.
    const TEST_ARGUMENT: &[u8] = &[0x48, 0x85, 0xff];

    let mut skip = 0;
    for prefix in [ENDBR64, TEST_ARGUMENT] {
        if code[skip..].starts_with(prefix) {
            skip += prefix.len();
        }
    }
    if is_emulated(&code[skip..]) { skip } else { 0 }
}

/// True if `code` begins with a `push` of a register, a conditional or unconditional jump, a call
/// or a one-byte `nop`.
fn is_emulated(code: &[u8]) -> bool {
    let push_or_jump = matches!(
        *code,
        [0x50..=0x57 | 0x70..=0x7f | 0x90 | 0xe8 | 0xe9 | 0xeb, ..]
    );
    let of_two_bytes = matches!(*code, [0x41, 0x50..=0x57, ..] | [0x0f, 0x80..=0x8f, ..]);
    push_or_jump || of_two_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::functions::{ALLOCATOR, ESSENTIAL};

    /// The library that this test runs on.
    fn libc() -> Vec<u8> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps
            .lines()
            .find(|line| line.ends_with("/libc.so.6"))
            .unwrap();
        std::fs::read(line.split_whitespace().last().unwrap()).unwrap()
    }

    #[test]
    fn the_c_library_has_all_functions() {
        let points = AttachPoints::find(&*libc(), &ALLOCATOR).unwrap();
        for name in [
            ESSENTIAL,
            "free",
            "reallocarray",
            "posix_memalign",
            "pvalloc",
        ] {
            assert!(
                points.functions.contains(name),
                "{name} in {:?}",
                points.functions
            );
        }
        assert!(points.text_length > 0x10_0000);
    }

    #[test]
    fn entries_come_before_returns_and_frees_have_none() {
        let groups = AttachPoints::find(&*libc(), &ALLOCATOR)
            .unwrap()
            .by_program();
        let first_return = groups.iter().position(|group| group.1).unwrap();
        assert!(groups[..first_return].iter().all(|group| !group.1));
        assert_eq!(
            &groups[first_return..].len(),
            &1,
            "one program serves all returns"
        );
        let entries = groups[..first_return]
            .iter()
            .filter(|group| group.0 != "enter_free");
        let allocating: usize = entries.map(|group| group.2.offsets.len()).sum();
        assert_eq!(groups[first_return].2.offsets.len(), allocating);
    }

    #[test]
    fn garbage_is_an_error_and_cuts_do_not_panic() {
        assert!(AttachPoints::find(&b"#!/bin/sh\n"[..], &ALLOCATOR).is_err());
        let whole = libc();
        for cut in (0..whole.len()).step_by(whole.len() / 97) {
            let _any = AttachPoints::find(&whole[..cut], &ALLOCATOR);
        }
    }

    #[test]
    fn instructions_are_skipped_only_up_to_an_emulated_one() {
        let cases: [(&[u8], usize); 7] = [
            (&[0x41, 0x54], 0),
            (&[0x48, 0x85, 0xff, 0x74, 0x10], 3),
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x85, 0xff, 0x0f, 0x84], 7),
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0x55], 4),
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08], 0),
            (&[0x48, 0x85, 0xff, 0x48], 0),
            (&[], 0),
        ];
        for (code, skip) in cases {
            assert_eq!(cheap_entry(code), skip, "{code:x?}");
        }
    }
}
