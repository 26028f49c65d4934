//! Records of a raw trace, parsed from one line.

use super::modules::RawModule;
use crate::fields::Fields;

/// One record of a raw trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RawRecord<'a> {
    /// `x`: path of the executable.
    Executable(&'a [u8]),
    /// `X`: command line.
    Command(&'a [u8]),
    /// `I`: bytes a page, pages.
    System(u64, u64),
    /// `S`: a line of embedded suppressions.
    Suppression(&'a [u8]),
    /// `A`: attached.
    Attached,
    /// `m -`: a new list of modules follows.
    ClearModules,
    /// `m`: a module; its path may be `x`, the executable.
    Module(RawModule, Vec<(u64, u64)>),
    /// `t`: a node of the trace tree.
    Trace { ip: u64, parent: u64 },
    /// `+`.
    Allocation { size: u64, trace: u64, pointer: u64 },
    /// `-`.
    Deallocation { pointer: u64 },
    /// `c`.
    Timestamp(u64),
    /// `R`.
    Rss(u64),
    /// A comment or an empty line.
    Comment,
    /// Not a record.
    Unknown,
}

/// Parses a line of a raw trace of version `file_version`; `None` when fields are missing.
pub(super) fn parse(line: &[u8], file_version: u32) -> Option<RawRecord<'_>> {
    let mut fields = Fields::new(line);
    let mut hex = || fields.hex().ok();
    Some(match line.first() {
        None | Some(b'#') => RawRecord::Comment,
        Some(b't') => RawRecord::Trace {
            ip: hex()?,
            parent: hex()?,
        },
        Some(b'+') => RawRecord::Allocation {
            size: hex()?,
            trace: hex()?,
            pointer: hex()?,
        },
        Some(b'-') => RawRecord::Deallocation { pointer: hex()? },
        Some(b'c') => RawRecord::Timestamp(hex()?),
        Some(b'R') => RawRecord::Rss(hex()?),
        Some(b'I') => RawRecord::System(hex()?, hex()?),
        Some(b'A') => RawRecord::Attached,
        Some(b'X') => RawRecord::Command(fields.rest()),
        Some(b'x') => RawRecord::Executable(text(&mut fields, file_version)?),
        Some(b'S') => RawRecord::Suppression(text(&mut fields, file_version)?),
        Some(b'm') => parse_module(&mut fields, file_version)?,
        Some(_) => RawRecord::Unknown,
    })
}

/// A string: sized since version 3, else up to the next space.
fn text<'a>(fields: &mut Fields<'a>, file_version: u32) -> Option<&'a [u8]> {
    if file_version >= 3 {
        fields.sized_string().ok()
    } else {
        Some(fields.word())
    }
}

fn parse_module<'a>(fields: &mut Fields<'a>, file_version: u32) -> Option<RawRecord<'a>> {
    let path = text(fields, file_version)?;
    if path == b"-" {
        return Some(RawRecord::ClearModules);
    }
    let bias = fields.hex().ok()?;
    let mut segments = Vec::new();
    while let (Ok(address), Ok(size)) = (fields.hex(), fields.hex()) {
        segments.push((address, size));
    }
    let path = String::from_utf8_lossy(path).into_owned();
    Some(RawRecord::Module(RawModule { path, bias }, segments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_in_both_forms_of_strings() {
        let module = |path: &str, bias, segments: &[(u64, u64)]| {
            Some(RawRecord::Module(
                RawModule {
                    path: path.into(),
                    bias,
                },
                segments.to_vec(),
            ))
        };
        let sized = b"m 6 /a b.c 4000 0 2000 3000 100";
        assert_eq!(
            parse(sized, 3),
            module("/a b.c", 0x4000, &[(0, 0x2000), (0x3000, 0x100)])
        );
        assert_eq!(
            parse(b"m /a 4000 0 20", 2),
            module("/a", 0x4000, &[(0, 0x20)])
        );
        assert_eq!(parse(b"m 1 -", 3), Some(RawRecord::ClearModules));
        assert_eq!(parse(b"m -", 2), Some(RawRecord::ClearModules));
        assert_eq!(parse(b"m 1 x", 3), None);
    }

    #[test]
    fn events() {
        let allocation = RawRecord::Allocation {
            size: 64,
            trace: 2,
            pointer: 0x5500,
        };
        assert_eq!(parse(b"+ 40 2 5500", 3), Some(allocation));
        assert_eq!(parse(b"+ 40 2", 3), None);
        assert_eq!(parse(b"? what", 3), Some(RawRecord::Unknown));
    }
}
