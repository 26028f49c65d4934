//! Tries a multi-uprobe link on a function of our own.

use std::{
    fs::{self, File},
    hint::black_box,
    io,
    os::fd::OwnedFd,
    thread,
};

use super::{
    attach_points::ProgramPoints,
    links::{self, LinkKind},
};

/// The function to be probed. It must stay a function of its own.
#[inline(never)]
extern "C" fn probed(value: u64) -> u64 {
    black_box(value).rotate_left(1)
}

/// Attaches `program` to a function of this process and calls that from another thread.
///
/// # Errors
/// When the kernel has no such links, or refuses.
pub(super) fn hit_from_another_thread(program: &OwnedFd) -> io::Result<()> {
    let address = probed as extern "C" fn(u64) -> u64 as usize as u64;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let offset = file_offset(&maps, address)
        .ok_or_else(|| io::Error::other("own code is not in own maps"))?;
    let executable = File::open("/proc/self/exe")?;
    let pid = std::process::id();
    let points = ProgramPoints {
        offsets: vec![offset],
        numbers: vec![0],
    };
    let _link = links::attach(LinkKind::Multi, program, &executable, &points, false, pid)?;
    thread::spawn(|| black_box(probed)(1))
        .join()
        .map_err(|_| io::Error::other("thread died"))?;
    Ok(())
}

/// Offset in its file of the byte at `address`.
fn file_offset(maps: &str, address: u64) -> Option<u64> {
    maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let hex = |digits| u64::from_str_radix(digits, 16).ok();
        let (start, end, offset) = (hex(start)?, hex(end)?, hex(fields.nth(1)?)?);
        (start..end)
            .contains(&address)
            .then(|| address - start + offset)
    })
}

#[cfg(test)]
mod tests {
    use super::file_offset;

    #[test]
    fn offsets_are_relative_to_the_file() {
        let maps = "1000-2000 r--p 00000000 08:01 7 /x\n2000-3000 r-xp 00001000 08:01 7 /x\n";
        assert_eq!(file_offset(maps, 0x2010), Some(0x1010));
        assert_eq!(file_offset(maps, 0x3000), None);
        assert_eq!(file_offset("garbage\n", 1), None);
    }
}
