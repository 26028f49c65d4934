//! The file in which batches wait when the recorder is behind.
//!
//! It has no name: it vanishes with the process, however that ends. It lies in the directory of
//! the trace file, where the user has provided for space.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, fallocate, openat, unlinkat};

use super::batch::Batch;

/// A file that is made when it is first needed.
#[derive(Debug)]
pub struct Spill {
    directory: OwnedFd,
    file: OnceLock<Option<File>>,
    /// Most bytes that may be in it.
    limit: u64,
    used: AtomicU64,
}

impl Spill {
    /// A file in the directory of `output`, with at most `limit` bytes in it.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub fn beside(output: &Path, limit: Option<u64>) -> io::Result<Self> {
        let directory = match output.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            directory: rustix::fs::open(directory, flags, Mode::empty())?,
            file: OnceLock::new(),
            limit: limit.unwrap_or(u64::MAX),
            used: AtomicU64::new(0),
        })
    }

    /// Writes a batch at `offset`; false if the file does not take it.
    pub(super) fn write(&self, offset: u64, batch: &Batch) -> bool {
        let length = batch.encoded_length() as u64;
        if self.used.load(Ordering::Relaxed).saturating_add(length) > self.limit {
            return false;
        }
        let Some(file) = self.file.get_or_init(|| self.make()) else {
            return false;
        };
        if let Err(error) = file.write_all_at(&batch.encode(), offset) {
            tracing::debug!("batches have to wait: {error}");
            return false;
        }
        self.used.fetch_add(length, Ordering::Relaxed);
        true
    }

    /// Reads the batch that lies at `offset`, and gives its space back. Until this returns nothing
    /// may be written there.
    pub(super) fn take(&self, offset: u64, length: usize) -> io::Result<Batch> {
        let missing = || io::Error::other("the file of waiting batches is gone");
        let file = self
            .file
            .get()
            .and_then(Option::as_ref)
            .ok_or_else(missing)?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset)?;
        // Where the file system cannot do it, the space is used again once the file is empty.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = fallocate(file, flags, offset, length as u64) {
            tracing::trace!("space of a batch is not given back: {error}");
        }
        self.used.fetch_sub(length as u64, Ordering::Relaxed);
        Batch::decode(&bytes).ok_or_else(|| io::Error::other("a waiting batch was damaged"))
    }

    fn make(&self) -> Option<File> {
        tracing::debug!("the recorder is behind: batches wait in a file");
        match self.unnamed().or_else(|_| self.unlinked()) {
            Ok(file) => Some(file.into()),
            Err(error) => {
                tracing::warn!("no file for what has to wait beside the trace: {error}");
                None
            }
        }
    }

    /// Linux 3.11, but not on all file systems.
    fn unnamed(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        openat(self.directory.as_fd(), ".", flags, OWN)
    }

    fn unlinked(&self) -> rustix::io::Result<OwnedFd> {
        let name = format!(".htrace-bpf.{}", std::process::id());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(self.directory.as_fd(), name.as_str(), flags, OWN)?;
        unlinkat(self.directory.as_fd(), name.as_str(), AtFlags::empty())?;
        Ok(file)
    }
}

const OWN: Mode = Mode::RUSR.union(Mode::WUSR);
