//! Reads a process's `/tmp/perf-PID.map` while the process writes it.
//!
//! The directory is everybody's, so the file may be anybody's. It is read if it is a regular file,
//! no link, of the process's own user, of root or of us: perf asks for as much. What is wrong with
//! it costs names and is said once.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::PathBuf,
    sync::Arc,
};

use nix::unistd::geteuid;

use super::perf_map::PerfMap;
use crate::modules::FileRoot;

/// Bytes of the file that are read at most.
const MOST_BYTES: u64 = 64 << 20;

/// Bytes that are read at once; a longer line is skipped.
const CHUNK: usize = 1 << 20;

/// The names that a process tells of its generated code.
#[derive(Debug)]
pub struct PerfMapFile {
    /// The root directory of the process; `None` once there is nothing to be had.
    root: Option<Arc<FileRoot>>,
    /// The process in our procfs.
    process: PathBuf,
    /// In its root directory.
    path: PathBuf,
    owner: Option<u32>,
    file: Option<File>,
    /// Bytes of whole lines that are read.
    read: u64,
    map: PerfMap,
}

/// What `/proc/PID/status` tells (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status {
    /// The process id in the innermost namespace, which is what the process takes for its own.
    own_pid: u32,
    /// The effective user.
    user: u32,
}

impl PerfMapFile {
    /// The file of the process `pid`, whose root directory is `root`. Nothing is read yet.
    #[must_use]
    pub fn new(pid: u32, root: Option<Arc<FileRoot>>) -> Self {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let status = Status::of(&process);
        let own_pid = status.map_or(pid, |status| status.own_pid);
        Self {
            root,
            process,
            path: format!("/tmp/perf-{own_pid}.map").into(),
            owner: status.map(|status| status.user),
            file: None,
            read: 0,
            map: PerfMap::default(),
        }
    }

    /// The name of the function at an address, as of now.
    pub fn name(&mut self, address: u64) -> Option<&str> {
        if let Err(error) = self.refresh() {
            tracing::warn!(
                "{}: {error}; generated code has no names from it",
                self.path.display()
            );
            self.root = None;
            self.file = None;
        }
        self.map.name(address)
    }

    /// Reads what was added since the last time. That there is no file is no error.
    fn refresh(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = self.open()?;
        }
        let Some(file) = &self.file else {
            return Ok(());
        };
        let size = file.metadata()?.len();
        if size < self.read {
            // Another program has begun it anew.
            self.map = PerfMap::default();
            self.read = 0;
        }
        let mut chunk = vec![0; CHUNK.min(usize::try_from(size - self.read).unwrap_or(CHUNK))];
        while self.read < MOST_BYTES {
            let filled = read_at(file, &mut chunk, self.read)?;
            let lines = whole_lines(chunk.get(..filled).unwrap_or_default());
            if lines.is_empty() && filled < CHUNK {
                break;
            }
            self.map.add_lines(lines);
            let skipped = if lines.is_empty() {
                filled
            } else {
                lines.len()
            };
            self.read += skipped as u64;
        }
        Ok(())
    }

    fn open(&mut self) -> io::Result<Option<File>> {
        let Some(root) = &self.root else {
            return Ok(None);
        };
        let file = match root.open_itself(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        // The program may have become another user since it was started.
        let owner = Status::of(&self.process).map(|status| status.user);
        let trusted = [owner, self.owner, Some(0), Some(geteuid().as_raw())];
        if !trusted.contains(&Some(file.metadata()?.uid())) {
            return Err(io::Error::other("it is of another user"));
        }
        Ok(Some(file))
    }
}

fn read_at(file: &File, room: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(room, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// The text up to the last line feed.
fn whole_lines(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte == b'\n');
    end.and_then(|end| text.get(..=end)).unwrap_or_default()
}

impl Status {
    fn of(process: &std::path::Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(process.join("status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let words = |name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.split_whitespace())
        };
        Some(Self {
            own_pid: words("NSpid:")?.next_back()?.parse().ok()?,
            user: words("Uid:")?.nth(1)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::fs::symlink, path::Path};

    use super::*;

    fn map_in(root: &Path) -> PerfMapFile {
        fs::create_dir(root.join("tmp")).unwrap();
        let root = FileRoot::open_directory(root).unwrap();
        PerfMapFile::new(std::process::id(), Some(Arc::new(root)))
    }

    fn own_name() -> String {
        format!("tmp/perf-{}.map", std::process::id())
    }

    #[test]
    fn what_is_added_is_found_once_its_line_is_whole() {
        let root = tempfile::tempdir().unwrap();
        let mut map = map_in(root.path());
        assert_eq!(map.name(0x10), None, "no file yet");
        let mut file = File::create(root.path().join(own_name())).unwrap();
        file.write_all(b"10 8 one\n20 8 tw").unwrap();
        assert_eq!(map.name(0x10), Some("one"));
        assert_eq!(map.name(0x20), None);
        file.write_all(b"o\n10 8 other\n").unwrap();
        assert_eq!(map.name(0x20), Some("two"));
        assert_eq!(map.name(0x10), Some("other"));
        file.set_len(0).unwrap();
        assert_eq!(map.name(0x20), None, "begun anew");
    }

    #[test]
    fn links_pipes_and_endless_lines_give_no_names() {
        let root = tempfile::tempdir().unwrap();
        let mut map = map_in(root.path());
        fs::write(root.path().join("elsewhere"), "10 8 one\n").unwrap();
        symlink("/elsewhere", root.path().join(own_name())).unwrap();
        assert_eq!(map.name(0x10), None);
        fs::remove_file(root.path().join(own_name())).unwrap();
        fs::write(root.path().join(own_name()), "10 8 one\n").unwrap();
        assert_eq!(map.name(0x10), None, "given up");

        let root = tempfile::tempdir().unwrap();
        let mut map = map_in(root.path());
        let mut text = vec![b'1'; 2 * CHUNK + 5];
        text.extend(b"\n10 8 one\n");
        fs::write(root.path().join(own_name()), text).unwrap();
        assert_eq!(map.name(0x10), Some("one"), "behind a line that is none");
        assert_eq!(map.name(0x1111_1111), None);
    }

    #[test]
    fn a_file_without_end_is_read_so_far() {
        let root = tempfile::tempdir().unwrap();
        let mut map = map_in(root.path());
        let file = File::create(root.path().join(own_name())).unwrap();
        file.set_len(1 << 40).unwrap();
        assert_eq!(map.name(0x10), None);
        assert!(map.read <= MOST_BYTES, "{}", map.read);
    }

    #[test]
    fn the_process_knows_itself_by_its_innermost_id() {
        let status = "Name:\tx\nUid:\t1\t2\t3\t4\nNSpid:\t4711\t12\t3\n";
        let expected = Status {
            own_pid: 3,
            user: 2,
        };
        assert_eq!(Status::parse(status), Some(expected));
        assert_eq!(Status::parse("Name:\tx\n"), None);
    }
}
