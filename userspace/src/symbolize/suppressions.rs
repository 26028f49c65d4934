//! Reads the leak suppressions that a program carries inside, without running any of its code.
//!
//! LeakSanitizer's convention is a C function `const char *__lsan_default_suppressions(void)`.
//! In practice it returns a string literal; the few instruction sequences that compilers make of
//! that are recognised, and any other function counts as having none.

use std::io;
use std::os::unix::fs::FileExt as _;

use super::elf_sections::ElfSections;
use crate::modules::{Module, ModuleContent, ModuleOpener};

/// The function's name.
const FUNCTION: &str = "__lsan_default_suppressions";
/// No recognised body is longer.
const MAX_BODY: usize = 32;
/// Longer suppressions are cut off at a line's end.
const MAX_TEXT: usize = 1 << 20;

/// A process that has the module mapped, for functions that return a variable.
#[derive(Clone, Copy)]
pub struct RunningTarget<'a> {
    /// Reads its memory.
    pub opener: &'a dyn ModuleOpener,
    /// The module's address in memory minus its virtual address, wrapping.
    pub load_bias: u64,
}

/// The suppressions in a module, one string a line, without empty lines. Empty when it has none
/// or they cannot be read without running code.
#[must_use]
pub fn embedded_suppressions(module: &Module, target: Option<RunningTarget<'_>>) -> Vec<String> {
    let Ok(content) = module.content() else {
        return Vec::new();
    };
    let sections = ElfSections::read(&content);
    let tables = [&sections.dynamic_symbols, &sections.symbols];
    let Some(address) = tables.iter().find_map(|table| table.address_of(FUNCTION)) else {
        return Vec::new();
    };
    let text = read_text(module, &content, address, target);
    if text.is_none() {
        tracing::debug!(
            "{}: {FUNCTION} is not a plain string",
            module.path().display()
        );
    }
    lines(&text.unwrap_or_default())
}

fn read_text(
    module: &Module,
    content: &ModuleContent,
    function: u64,
    target: Option<RunningTarget<'_>>,
) -> Option<Vec<u8>> {
    let offset_of = |address| module.image().file_offset(address);
    let body = read_at(content, offset_of(function)?, MAX_BODY).ok()?;
    match returned(&body, function)? {
        Returned::Address(address) => {
            until_zero(read_at(content, offset_of(address)?, MAX_TEXT).ok()?)
        }
        Returned::Variable(address) => {
            let target = target?;
            let mut pointer = [0; 8];
            let variable = target.load_bias.wrapping_add(address);
            let count = target.opener.read_memory(variable, &mut pointer).ok()?;
            let mut text = vec![0; MAX_TEXT];
            let pointer = (count == pointer.len()).then(|| u64::from_le_bytes(pointer))?;
            let count = target.opener.read_memory(pointer, &mut text).ok()?;
            text.truncate(count);
            until_zero(text)
        }
    }
}

fn read_at(content: &ModuleContent, offset: u64, limit: usize) -> io::Result<Vec<u8>> {
    match content {
        ModuleContent::File(file) => {
            let mut bytes = vec![0; limit];
            let count = file.read_at(&mut bytes, offset)?;
            bytes.truncate(count);
            Ok(bytes)
        }
        ModuleContent::Bytes(bytes) => {
            let start = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
            let rest = bytes.get(start..).unwrap_or_default();
            Ok(rest.get(..limit).unwrap_or(rest).to_vec())
        }
    }
}

/// `None` when the text has no end: then it is no C string.
fn until_zero(mut text: Vec<u8>) -> Option<Vec<u8>> {
    let end = text.iter().position(|&byte| byte == 0)?;
    text.truncate(end);
    Some(text)
}

fn lines(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

/// What a function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Returned {
    /// This virtual address.
    Address(u64),
    /// What the eight bytes at this virtual address hold at run time.
    Variable(u64),
}

/// Recognises `[endbr64] [push %rbp; mov %rsp,%rbp] LOAD [pop %rbp | leave] [rep] ret`, where LOAD
/// puts an address, or a variable's contents, into `%rax`.
fn returned(body: &[u8], function: u64) -> Option<Returned> {
    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    const PROLOGUE: &[u8] = &[0x55, 0x48, 0x89, 0xe5];
    let rest = body.strip_prefix(ENDBR64).unwrap_or(body);
    let with_frame = rest.strip_prefix(PROLOGUE);
    let rest = with_frame.unwrap_or(rest);
    let (load, rest) = parse_load(rest)?;
    let rest = match with_frame {
        Some(_) => rest
            .strip_prefix(&[0x5d])
            .or_else(|| rest.strip_prefix(&[0xc9]))?,
        None => rest,
    };
    let is_return = matches!(rest, [0xc3, ..] | [0xf3, 0xc3, ..]);
    let behind_load = function.wrapping_add((body.len() - rest.len()) as u64);
    // The frame's end stands between the load, which addresses are relative to, and `ret`.
    let behind_load = behind_load.wrapping_sub(u64::from(with_frame.is_some()));
    is_return.then(|| load.resolve(behind_load))
}

/// An instruction that loads `%rax`.
#[derive(Clone, Copy)]
enum Load {
    Absolute(u64),
    Relative(i32),
    Memory(i32),
}

impl Load {
    fn resolve(self, next_instruction: u64) -> Returned {
        let relative = |displacement| next_instruction.wrapping_add_signed(i64::from(displacement));
        match self {
            Self::Absolute(address) => Returned::Address(address),
            Self::Relative(displacement) => Returned::Address(relative(displacement)),
            Self::Memory(displacement) => Returned::Variable(relative(displacement)),
        }
    }
}

fn parse_load(code: &[u8]) -> Option<(Load, &[u8])> {
    match code {
        // lea disp32(%rip),%rax
        [0x48, 0x8d, 0x05, a, b, c, d, rest @ ..] => {
            Some((Load::Relative(i32::from_le_bytes([*a, *b, *c, *d])), rest))
        }
        // mov disp32(%rip),%rax
        [0x48, 0x8b, 0x05, a, b, c, d, rest @ ..] => {
            Some((Load::Memory(i32::from_le_bytes([*a, *b, *c, *d])), rest))
        }
        // mov $imm32,%eax
        [0xb8, a, b, c, d, rest @ ..] => Some((
            Load::Absolute(u64::from(u32::from_le_bytes([*a, *b, *c, *d]))),
            rest,
        )),
        // movabs $imm64,%rax
        [0x48, 0xb8, a, b, c, d, e, f, g, h, rest @ ..] => {
            let address = u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]);
            Some((Load::Absolute(address), rest))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_compilers_make_of_a_literal_is_recognised() {
        let lea = [0x48, 0x8d, 0x05, 0x10, 0, 0, 0];
        let plain = [&lea[..], &[0xc3]].concat();
        assert_eq!(returned(&plain, 0x1000), Some(Returned::Address(0x1017)));
        let guarded = [&[0xf3, 0x0f, 0x1e, 0xfa][..], &lea, &[0xc3]].concat();
        assert_eq!(returned(&guarded, 0x1000), Some(Returned::Address(0x101b)));
        let framed = [&[0x55, 0x48, 0x89, 0xe5][..], &lea, &[0x5d, 0xc3]].concat();
        assert_eq!(returned(&framed, 0x1000), Some(Returned::Address(0x101b)));
        let absolute = [0xb8, 0x04, 0x20, 0x40, 0, 0xc3];
        assert_eq!(
            returned(&absolute, 0x1000),
            Some(Returned::Address(0x40_2004))
        );
        let variable = [0x48, 0x8b, 0x05, 0xf9, 0xff, 0xff, 0xff, 0xf3, 0xc3];
        assert_eq!(
            returned(&variable, 0x1000),
            Some(Returned::Variable(0x1000))
        );
    }

    #[test]
    fn other_functions_are_not() {
        for body in [
            &[0x31, 0xc0, 0xc3][..],
            &[0x48, 0x8d, 0x05, 0, 0, 0, 0, 0x90, 0xc3],
            &[0x55, 0x48, 0x89, 0xe5, 0xb8, 0, 0, 0, 0, 0xc3],
            &[0xe8, 0, 0, 0, 0, 0xc3],
            &[],
        ] {
            assert_eq!(returned(body, 0x1000), None, "{body:x?}");
        }
    }

    #[test]
    fn empty_lines_and_blanks_go() {
        assert_eq!(
            lines(b"leak:a\n\n  leak:b \r\n#c"),
            ["leak:a", "leak:b", "#c"]
        );
    }

    proptest! {
        #[test]
        fn no_code_panics(body in proptest::collection::vec(any::<u8>(), 0..32), at: u64) {
            let _ = returned(&body, at);
        }
    }
}
