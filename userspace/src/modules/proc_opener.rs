//! Opens the files of a running process through `/proc`.
//!
//! Never looks a path up in our own mount namespace: the target may live in another one, where the
//! same path is another file. Ways, best first: `map_files`, which hands out the mapped inode
//! itself but needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE (proc(5)); `exe`, which works for a
//! deleted program; the path under `root`, if device and inode, or the build id in the target's
//! memory, say that it is the mapped file.

use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::image::{BuildId, ElfImage};
use super::maps::{Device, MappedName, MapsEntry};
use super::opened::OpenedFiles;
use super::opener::{ModuleOpener, OpenError, OpenRequest, OpenedFile, Verification};
use super::root::{FileRoot, open_regular};

/// How much of a mapped ELF file is read to find its build id: header, program headers and the
/// notes that linkers put right behind them.
const HEADER_BYTES: usize = 8192;

/// Opens what one process has mapped.
#[derive(Debug)]
pub struct ProcOpener {
    /// `/proc/PID`, or the same under another mount point of procfs.
    process: PathBuf,
    root: Option<Arc<FileRoot>>,
    /// The target's root directory as we see it; in front of every path in maps when the target
    /// has changed its root inside of our mount namespace.
    root_path: PathBuf,
    opened: OpenedFiles,
}

impl ProcOpener {
    /// An opener for a process; `proc` is where procfs is mounted, as a rule `/proc`.
    ///
    /// The root directory is opened now and kept, so that look-ups work when the process is gone.
    #[must_use]
    pub fn new(proc: &Path, pid: u32) -> Self {
        let process = proc.join(pid.to_string());
        let link = process.join("root");
        let root = FileRoot::open_directory(&link).map(Arc::new).ok();
        let root_path = std::fs::read_link(link).unwrap_or_else(|_| PathBuf::from("/"));
        Self {
            process,
            root,
            root_path,
            opened: OpenedFiles::default(),
        }
    }

    /// The target's root directory, for looking up other files as the target would; `None` when
    /// the target may not be traced or was gone already.
    #[must_use]
    pub fn root(&self) -> Option<Arc<FileRoot>> {
        self.root.clone()
    }

    /// The path of a mapped file as the target sees it.
    fn visible_path(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.root_path) {
            Ok(rest) => Path::new("/").join(rest),
            Err(_) => path.to_owned(),
        }
    }

    fn open_map_file(&self, mapping: &MapsEntry) -> io::Result<File> {
        let range = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
        open_regular(&self.process.join(range))
    }

    fn open_executable(&self, mapping: &MapsEntry) -> Option<File> {
        let file = open_regular(&self.process.join("exe")).ok()?;
        is_inode_of(&file, mapping).then_some(file)
    }

    fn open_in_root(
        &self,
        request: OpenRequest<'_>,
        path: &Path,
        deleted: bool,
    ) -> Result<(File, Verification), OpenError> {
        let root = self.root.as_ref().ok_or_else(|| OpenError::Io {
            path: self.process.join("root"),
            source: io::ErrorKind::PermissionDenied.into(),
        })?;
        let file = root.open(path).map_err(|source| OpenError::Io {
            path: path.to_owned(),
            source,
        })?;
        let verification = self.verify(request, &file, deleted);
        match verification {
            Some(verification) => Ok((file, verification)),
            None => Err(OpenError::Replaced {
                path: path.to_owned(),
            }),
        }
    }

    /// Decides whether a file found by its path is the mapped one.
    fn verify(&self, request: OpenRequest<'_>, file: &File, deleted: bool) -> Option<Verification> {
        if is_inode_of(file, request.mapping) {
            return Some(Verification::Inode);
        }
        let mapped = request
            .image_base
            .and_then(|base| self.mapped_build_id(base));
        let found = file
            .try_clone()
            .ok()
            .and_then(|f| ElfImage::of_file(&Arc::new(f)).build_id);
        match (mapped, found) {
            (Some(mapped), Some(found)) => (mapped == found).then_some(Verification::BuildId),
            (Some(_), None) => None,
            // There is no build id to compare. On btrfs and overlayfs maps and stat differ in the device
            // alone; a file that the kernel calls deleted is certainly not the one at its path.
            _ if !deleted && has_inode_number(file, request.mapping) => {
                Some(Verification::Unverified)
            }
            _ => None,
        }
    }

    /// Opens the file that is mapped there right now.
    fn open_now(&self, request: OpenRequest<'_>) -> Result<OpenedFile, OpenError> {
        let MappedName::File { path, deleted } = &request.mapping.name else {
            return Err(OpenError::NoFile);
        };
        let visible = self.visible_path(path);
        let opened = |file: File, verification| OpenedFile {
            file: Arc::new(file),
            path: visible.clone(),
            verification,
        };
        match self.open_map_file(request.mapping) {
            Ok(file) => return Ok(opened(file, Verification::Kernel)),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(OpenError::NotRegular { path: visible });
            }
            Err(_) => {}
        }
        if let Some(file) = self.open_executable(request.mapping) {
            return Ok(opened(file, Verification::Inode));
        }
        if *deleted {
            // The file may really have that ending.
            let literal = PathBuf::from(std::ffi::OsString::from_vec(
                [visible.as_os_str().as_bytes(), b" (deleted)"].concat(),
            ));
            if let Ok((file, Verification::Inode)) = self.open_in_root(request, &literal, true) {
                let file = Arc::new(file);
                return Ok(OpenedFile {
                    file,
                    path: literal,
                    verification: Verification::Inode,
                });
            }
        }
        let (file, verification) = self.open_in_root(request, &visible, *deleted)?;
        Ok(opened(file, verification))
    }

    fn mapped_build_id(&self, base: u64) -> Option<BuildId> {
        let mut header = vec![0; HEADER_BYTES];
        let count = self.read_memory(base, &mut header).ok()?;
        ElfImage::of_bytes(header.get(..count)?).build_id
    }
}

impl ModuleOpener for ProcOpener {
    fn open(&self, request: OpenRequest<'_>) -> Result<OpenedFile, OpenError> {
        if let Some(known) = self.opened.get(request.mapping) {
            return Ok(known);
        }
        let file = self.open_now(request)?;
        self.opened.insert(request.mapping, &file);
        Ok(file)
    }

    fn read_memory(&self, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
        // Opened each time: the descriptor is bound to one address space, and exec makes a new one.
        let memory = File::open(self.process.join("mem"))?;
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match memory.read_at(rest, address.wrapping_add(done as u64)) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}

fn has_inode_number(file: &File, mapping: &MapsEntry) -> bool {
    file.metadata()
        .is_ok_and(|metadata| metadata.ino() == mapping.inode)
}

fn is_inode_of(file: &File, mapping: &MapsEntry) -> bool {
    file.metadata().is_ok_and(|metadata| {
        let device = Device {
            major: rustix::fs::major(metadata.dev()),
            minor: rustix::fs::minor(metadata.dev()),
        };
        metadata.ino() == mapping.inode && device == mapping.device
    })
}
