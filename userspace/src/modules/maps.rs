//! Parses `/proc/PID/maps`: text in, entries out.
//!
//! A line is `start-end perms offset major:minor inode name`, numbers in hexadecimal but the inode
//! (`Documentation/filesystems/proc.rst`). The kernel writes a newline in a name as `\012` and
//! escapes nothing else (`show_map_vma` in `fs/proc/task_mmu.c`); it appends ` (deleted)` to a file
//! whose directory entry is gone. The target chooses the names, so any byte may stand in one.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// The suffix that the kernel gives to a file without a directory entry.
const DELETED: &[u8] = b" (deleted)";

/// A block device number as maps prints it, which on btrfs and overlayfs is not what `stat` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// The four permission letters of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Permissions {
    /// `r`
    pub read: bool,
    /// `w`
    pub write: bool,
    /// `x`
    pub execute: bool,
    /// `s` rather than `p`
    pub shared: bool,
}

/// What stands behind a mapping, judged by its name alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MappedName {
    /// No name: anonymous memory.
    Anonymous,
    /// An absolute path, without the kernel's ` (deleted)`. Also what looks like a path and has no
    /// directory entry: `/memfd:name`, `/dev/zero`, `/SYSV00000000`, `/anon_hugepage`.
    File {
        /// The path, relative to the root directory of whoever reads maps.
        path: PathBuf,
        /// Whether the kernel says that the directory entry is gone. A file may really be called
        /// `x (deleted)`; whoever opens it has to try both.
        deleted: bool,
    },
    /// Everything else, brackets included: `[vdso]`, `[uprobes]`, `[anon:name]`, `anon_inode:…`.
    Special(String),
}

/// One line of maps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MapsEntry {
    /// First address.
    pub start: u64,
    /// First address behind the mapping; always greater than `start`.
    pub end: u64,
    /// Permissions at the time of reading.
    pub permissions: Permissions,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Device of the file.
    pub device: Device,
    /// Inode of the file, 0 for none.
    pub inode: u64,
    /// Name.
    pub name: MappedName,
}

/// A line that is not one of maps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the maps file: {field} is malformed")]
pub struct MapsError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The part that could not be read.
    pub field: &'static str,
}

/// Parses all of a maps file, one result a line; an empty line is skipped.
pub fn parse(text: &[u8]) -> impl Iterator<Item = Result<MapsEntry, MapsError>> + '_ {
    text.split(|&byte| byte == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| {
            parse_line(line).map_err(|field| MapsError {
                line: index + 1,
                field,
            })
        })
}

fn parse_line(line: &[u8]) -> Result<MapsEntry, &'static str> {
    let mut rest = line;
    let (start, end) = parse_range(next_field(&mut rest)).ok_or("address range")?;
    let permissions = parse_permissions(next_field(&mut rest)).ok_or("permissions")?;
    let offset = parse_hex(next_field(&mut rest)).ok_or("offset")?;
    let device = parse_device(next_field(&mut rest)).ok_or("device")?;
    let inode = parse_number(next_field(&mut rest), 10).ok_or("inode")?;
    let name = parse_name(trim_padding(rest));
    Ok(MapsEntry {
        start,
        end,
        permissions,
        offset,
        device,
        inode,
        name,
    })
}

/// Takes the bytes up to the next space, and that space, off the front.
fn next_field<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let line = *rest;
    let end = line
        .iter()
        .position(|&byte| byte == b' ')
        .unwrap_or(line.len());
    *rest = line.get(end + 1..).unwrap_or_default();
    line.get(..end).unwrap_or_default()
}

/// Spaces pad the name to a column; a name never begins with one, as paths begin with `/`.
fn trim_padding(padded: &[u8]) -> &[u8] {
    let start = padded
        .iter()
        .position(|&byte| byte != b' ')
        .unwrap_or(padded.len());
    padded.get(start..).unwrap_or_default()
}

fn parse_number(digits: &[u8], radix: u32) -> Option<u64> {
    // `from_str_radix` takes a sign, the kernel never writes one.
    if !digits.iter().all(u8::is_ascii_alphanumeric) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

fn parse_hex(digits: &[u8]) -> Option<u64> {
    parse_number(digits, 16)
}

/// Splits at the first `separator`.
fn split_once(field: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = field.iter().position(|&byte| byte == separator)?;
    Some((field.get(..at)?, field.get(at + 1..)?))
}

fn parse_range(field: &[u8]) -> Option<(u64, u64)> {
    let (start, end) = split_once(field, b'-')?;
    let (start, end) = (parse_hex(start)?, parse_hex(end)?);
    (start < end).then_some((start, end))
}

fn parse_permissions(field: &[u8]) -> Option<Permissions> {
    let &[read, write, execute, shared] = field else {
        return None;
    };
    Some(Permissions {
        read: read == b'r',
        write: write == b'w',
        execute: execute == b'x',
        shared: shared == b's',
    })
}

fn parse_device(field: &[u8]) -> Option<Device> {
    let (major, minor) = split_once(field, b':')?;
    Some(Device {
        major: u32::try_from(parse_hex(major)?).ok()?,
        minor: u32::try_from(parse_hex(minor)?).ok()?,
    })
}

fn parse_name(name: &[u8]) -> MappedName {
    if name.is_empty() {
        return MappedName::Anonymous;
    }
    if name.first() != Some(&b'/') {
        return MappedName::Special(String::from_utf8_lossy(name).into_owned());
    }
    let (name, deleted) = match name.strip_suffix(DELETED) {
        Some(stem) if !stem.is_empty() => (stem, true),
        _ => (name, false),
    };
    MappedName::File {
        path: PathBuf::from(OsString::from_vec(unescape(name))),
        deleted,
    }
}

/// Turns `\012` back into a newline. A file whose name holds these four letters is misread; the
/// kernel's text does not tell the two apart.
fn unescape(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(br"\012") {
            out.push(b'\n');
            rest = after;
        } else {
            out.push(first);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    fn one(line: &str) -> MapsEntry {
        let mut entries = parse(line.as_bytes());
        let entry = entries.next().unwrap().unwrap();
        assert!(entries.next().is_none());
        entry
    }

    fn name_of(name: &str) -> MappedName {
        one(&format!(
            "1000-2000 r-xp 00000000 fd:01 42                   {name}\n"
        ))
        .name
    }

    fn file(path: &str, deleted: bool) -> MappedName {
        MappedName::File {
            path: PathBuf::from(path),
            deleted,
        }
    }

    #[test]
    fn every_field_of_a_line_is_read() {
        let entry = one(
            "7f10aa000000-7f10ffffffff r-xs 00026000 103:02 18446744073709551615 /usr/lib/libc.so.6",
        );
        assert_eq!(
            (entry.start, entry.end),
            (0x7f10_aa00_0000, 0x7f10_ffff_ffff)
        );
        assert_eq!(
            entry.permissions,
            Permissions {
                read: true,
                write: false,
                execute: true,
                shared: true
            }
        );
        assert_eq!(entry.offset, 0x26000);
        assert_eq!(
            entry.device,
            Device {
                major: 0x103,
                minor: 2
            }
        );
        assert_eq!(entry.inode, u64::MAX);
        assert_eq!(entry.name, file("/usr/lib/libc.so.6", false));
    }

    #[test]
    fn names_of_every_form_are_told_apart() {
        assert_eq!(name_of(""), MappedName::Anonymous);
        assert_eq!(name_of("/opt/a b/c  d.so"), file("/opt/a b/c  d.so", false));
        assert_eq!(name_of("/tmp/x (deleted)"), file("/tmp/x", true));
        assert_eq!(
            name_of("/tmp/x (deleted) (deleted)"),
            file("/tmp/x (deleted)", true)
        );
        assert_eq!(name_of("/memfd:jit (deleted)"), file("/memfd:jit", true));
        assert_eq!(name_of("/dev/zero (deleted)"), file("/dev/zero", true));
        assert_eq!(
            name_of(r"/tmp/two\012lines"),
            file("/tmp/two\nlines", false)
        );
        assert_eq!(
            name_of(r"/tmp/back\slash\0"),
            file(r"/tmp/back\slash\0", false)
        );
        for special in [
            "[vdso]",
            "[uprobes]",
            "[heap]",
            "[anon:a b]",
            "anon_inode:[io_uring]",
        ] {
            assert_eq!(name_of(special), MappedName::Special(special.to_owned()));
        }
    }

    #[test]
    fn the_vsyscall_page_at_the_top_of_the_address_space_is_read() {
        let entry = one("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n");
        assert_eq!(entry.end, 0xffff_ffff_ff60_1000);
    }

    #[test]
    fn a_malformed_line_names_its_number_and_field_and_the_others_are_read() {
        let text = b"1000-2000 r-xp 0 0:0 0\n2000-2000 r-xp 0 0:0 0\n3000-4000 rx 0 0:0 0\n\
            4000-5000 r-xp +1 0:0 0\n5000-6000 r-xp 0 00 0\n6000-7000 r-xp 0 0:0 f\n7000-8000 r-xp 0 0:0 0 /a";
        let results: Vec<_> = parse(text).collect();
        let fields: Vec<_> = results.iter().filter_map(|r| r.as_ref().err()).collect();
        let expected = ["address range", "permissions", "offset", "device", "inode"];
        assert_eq!(fields.iter().map(|e| e.field).collect::<Vec<_>>(), expected);
        assert_eq!(
            fields.iter().map(|e| e.line).collect::<Vec<_>>(),
            [2, 3, 4, 5, 6]
        );
        assert_eq!(
            results.last().unwrap().as_ref().unwrap().name,
            file("/a", false)
        );
    }

    #[test]
    fn the_maps_of_this_process_parse_and_hold_this_function() {
        let text = std::fs::read("/proc/self/maps").unwrap();
        let entries: Vec<_> = parse(&text).collect::<Result<_, _>>().unwrap();
        let here = parse_line as *const () as u64;
        let entry = entries
            .iter()
            .find(|e| e.start <= here && here < e.end)
            .unwrap();
        assert!(entry.permissions.execute);
        let MappedName::File {
            path,
            deleted: false,
        } = &entry.name
        else {
            panic!("{entry:?}")
        };
        assert_eq!(path.as_path(), std::env::current_exe().unwrap().as_path());
        assert!(path.is_absolute() && path != Path::new("/"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            for entry in parse(&text).flatten() {
                prop_assert!(entry.start < entry.end);
            }
        }

        #[test]
        fn a_printed_line_comes_back(
            start in 0u64..u64::MAX, length in 1u64..1 << 40, offset: u64, major: u32, minor: u32,
            inode: u64, stem in "/[a-z \\\\(){}]{0,20}[a-z]", deleted: bool,
        ) {
            let end = start.saturating_add(length);
            let suffix = if deleted { " (deleted)" } else { "" };
            let line = format!(
                "{start:08x}-{end:08x} rw-p {offset:08x} {major:02x}:{minor:02x} {inode}    {stem}{suffix}"
            );
            let entry = one(&line);
            prop_assert_eq!((entry.start, entry.end, entry.offset), (start, end, offset));
            prop_assert_eq!(entry.device, Device { major, minor });
            prop_assert_eq!(entry.inode, inode);
            prop_assert_eq!(entry.name, file(&stem, deleted));
        }
    }
}
