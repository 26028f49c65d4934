//! Tries a multi-uprobe link on a function of our own.
//!
//! It takes tens of milliseconds, in which the kernel waits for all CPUs and we for nothing but it.
//! So it begins before all else, on threads of its own, with a program of its own.

use std::{
    fs::{self, File},
    hint::black_box,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::mpsc::{self, Receiver, SyncSender},
    thread,
};

use super::{
    attach_points::ProgramPoints,
    links::{self, LinkKind},
};
use crate::sys::{
    bpf::{self, ProgramLoad},
    shared_words::SharedWords,
};

/// A test that has begun.
#[derive(Debug)]
pub struct LinkTest(Receiver<bool>);

impl LinkTest {
    /// Begins.
    #[must_use]
    pub fn start() -> Self {
        let (send, result) = mpsc::sync_channel(1);
        let test = move || {
            if let Err(error) = try_link(&send) {
                tracing::debug!("self test of multi-uprobe links: {error}");
            }
        };
        // Without a thread nobody sends.
        let _started = thread::Builder::new()
            .name("link test".to_owned())
            .spawn(test);
        Self(result)
    }

    /// True if a multi-uprobe link sees all threads of the process that it is scoped to: the first
    /// releases that had such links saw the main thread alone. Waits for the result.
    pub(super) fn succeeds(self) -> bool {
        self.0.recv().unwrap_or(false)
    }
}

/// The function to be probed. It must stay a function of its own.
#[inline(never)]
extern "C" fn probed(value: u64) -> u64 {
    black_box(value).rotate_left(1)
}

/// Attaches a program to a function of this process, calls that from another thread and tells
/// whether it was seen. Only then it takes the link away, which nobody has to wait for.
fn try_link(result: &SyncSender<bool>) -> io::Result<()> {
    let word = bpf::create_word()?;
    let hits = SharedWords::map(word.as_fd(), 1)?;
    let program = load_counter_of_hits(word.as_fd())?;
    let _link = attach(&program)?;
    thread::spawn(|| black_box(probed)(1))
        .join()
        .map_err(|_| io::Error::other("thread died"))?;
    // Nobody may want to know.
    let _unheard = result.send(hits.get(0) > 0);
    Ok(())
}

/// Attaches a program to the function in this process.
fn attach(program: &OwnedFd) -> io::Result<Vec<OwnedFd>> {
    let address = probed as extern "C" fn(u64) -> u64 as usize as u64;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let offset = file_offset(&maps, address)
        .ok_or_else(|| io::Error::other("own code is not in own maps"))?;
    let executable = File::open("/proc/self/exe")?;
    let points = ProgramPoints {
        offsets: vec![offset],
        numbers: vec![0],
    };
    let pid = std::process::id();
    links::attach(LinkKind::Multi, program, &executable, &points, false, pid)
}

/// A program that adds 1 to the word of a map and returns 0.
fn load_counter_of_hits(word: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// Operation, registers (source in the upper half), and a number; `linux/bpf.h`.
    const fn instruction(code: u8, registers: u8, number: i32) -> [u8; 8] {
        let [a, b, c, d] = number.to_ne_bytes();
        [code, registers, 0, 0, a, b, c, d]
    }
    let instructions = [
        // Register 1 is the address of the word: `BPF_PSEUDO_MAP_VALUE`, Linux 5.2.
        instruction(0x18, 0x21, word.as_raw_fd()),
        instruction(0, 0, 0),
        instruction(0xb7, 0x02, 1), // r2 = 1
        instruction(0xdb, 0x21, 0), // lock *(u64 *)(r1 + 0) += r2
        instruction(0xb7, 0x00, 0), // r0 = 0
        instruction(0x95, 0x00, 0), // exit
    ];
    let load = ProgramLoad {
        name: "link_test",
        program_type: bpf::PROGRAM_TYPE_KPROBE,
        expected_attach_type: LinkKind::Multi.attach_type(),
        instructions: instructions.as_flattened(),
        license: c"Dual MIT/GPL",
        ..ProgramLoad::default()
    };
    bpf::load_program(&load, &mut [])
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
