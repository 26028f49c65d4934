//! A root directory to look up paths in: the target's own, or ours.
//!
//! Holds a descriptor, so that it works on after the target has exited, and resolves symbolic
//! links inside of that root as the target would. What is opened is a regular file or nothing: a
//! pipe would hang and a device might act.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};

/// An open root directory.
#[derive(Debug)]
pub struct FileRoot {
    directory: OwnedFd,
}

impl FileRoot {
    /// Opens a directory that paths are to be looked up in, such as `/proc/PID/root` or `/`.
    ///
    /// # Errors
    /// When it cannot be opened; for `/proc/PID/root` that needs the right to trace the process.
    pub fn open_directory(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Self { directory })
    }

    /// Opens a regular file for reading by its path in this root.
    ///
    /// # Errors
    /// When there is none, when it is not a regular file, or when the system refuses.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        self.open_by(path, OFlags::empty())
    }

    /// As [`FileRoot::open`] for a path that must not end in a symbolic link.
    ///
    /// # Errors
    /// As there; a link is not a regular file.
    pub fn open_itself(&self, path: &Path) -> io::Result<File> {
        self.open_by(path, OFlags::NOFOLLOW)
    }

    fn open_by(&self, path: &Path, more: OFlags) -> io::Result<File> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | more;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let found = match rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), resolve)
        {
            // Kernels before 5.6 and some containers' system call filters lack openat2. Links
            // with absolute targets then lead out of the root; whoever asked verifies the file.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
                rustix::fs::openat(&self.directory, relative(path), flags, Mode::empty())
            }
            other => other,
        }?;
        reopen_for_reading(found.as_fd())
    }
}

fn relative(path: &Path) -> PathBuf {
    path.strip_prefix("/").unwrap_or(path).to_owned()
}

/// Opens whatever `path` leads to, magic links included, if it is a regular file.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    reopen_for_reading(found.as_fd())
}

/// Turns a descriptor that only names a file into one that reads it, after a look at its type.
fn reopen_for_reading(found: impl AsFd) -> io::Result<File> {
    let status = rustix::fs::fstat(&found)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    File::open(format!("/proc/self/fd/{}", found.as_fd().as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_stay_inside_of_the_root() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("etc")).unwrap();
        std::fs::write(directory.path().join("etc/passwd"), "inside").unwrap();
        symlink("/etc/passwd", directory.path().join("absolute")).unwrap();
        symlink("../../../../etc/passwd", directory.path().join("upwards")).unwrap();
        let root = FileRoot::open_directory(directory.path()).unwrap();
        for path in ["/etc/passwd", "etc/passwd", "/absolute", "/upwards"] {
            let mut text = String::new();
            root.open(Path::new(path))
                .unwrap()
                .read_to_string(&mut text)
                .unwrap();
            assert_eq!(text, "inside", "{path}");
        }
        assert!(root.open(Path::new("/proc/self/exe")).is_err());
    }

    #[test]
    fn pipes_devices_and_directories_are_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        let root = FileRoot::open_directory(directory.path()).unwrap();
        assert_eq!(
            root.open(Path::new("pipe")).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(
            root.open(Path::new("/")).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert!(open_regular(Path::new("/dev/zero")).is_err());
    }
}
