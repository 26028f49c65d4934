//! The file in which batches wait when the recorder is behind.
//!
//! It has no name: it vanishes with the process, however that ends. It lies in the directory of
//! the trace file, where the user has provided for space.

use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, fallocate, open, openat, unlinkat};

use super::batch::Batch;

/// The file.
#[derive(Debug)]
pub struct Spill {
    /// None where none can be made.
    file: Option<File>,
    /// Most bytes that may be in it.
    limit: u64,
    used: AtomicU64,
    /// Bytes that ever were.
    total: AtomicU64,
}

/// A recorder that is farther behind than this will not catch up: then the program has to slow
/// down. It takes seconds to work off so much.
const MOST_BYTES: u64 = 128 << 20;

impl Spill {
    /// A file in the directory of `output`, with at most `limit` bytes in it, and not more than can
    /// be worked off in seconds. It is made at once,
    /// while we have the privileges and the directory is there. Where none can be made nothing can
    /// wait in it.
    #[must_use]
    pub fn beside(output: &Path, limit: Option<u64>) -> Self {
        let directory = match output.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let file = make_in(directory)
            .inspect_err(|error| {
                tracing::debug!(
                    "{}: no file for what has to wait: {error}",
                    directory.display()
                );
            })
            .ok();
        Self {
            file,
            limit: limit.unwrap_or(u64::MAX).min(MOST_BYTES),
            used: AtomicU64::new(0),
            total: AtomicU64::new(0),
        }
    }

    /// Writes a batch at `offset`; false if the file does not take it.
    pub(super) fn write(&self, offset: u64, batch: &Batch) -> bool {
        let length = batch.encoded_length() as u64;
        if self.used.load(Ordering::Relaxed).saturating_add(length) > self.limit {
            return false;
        }
        let Some(file) = &self.file else {
            return false;
        };
        if let Err(error) = file.write_all_at(&batch.encode(), offset) {
            tracing::debug!("batches have to wait: {error}");
            return false;
        }
        self.used.fetch_add(length, Ordering::Relaxed);
        self.total.fetch_add(length, Ordering::Relaxed);
        true
    }

    /// Reads the batch that lies at `offset`, and gives its space back. Until this returns nothing
    /// may be written there.
    pub(super) fn take(&self, offset: u64, length: usize) -> io::Result<Batch> {
        let missing = || io::Error::other("the file of waiting batches is gone");
        let file = self.file.as_ref().ok_or_else(missing)?;
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
}

impl Drop for Spill {
    fn drop(&mut self) {
        tracing::info!(
            "bytes that waited for the recorder in a file: {}",
            self.total.load(Ordering::Relaxed)
        );
    }
}

fn make_in(directory: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(directory, flags, Mode::empty())?;
    let file = unnamed(&directory).or_else(|_| unlinked(&directory))?;
    Ok(file.into())
}

/// Linux 3.11, but not on all file systems.
fn unnamed(directory: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    openat(directory, ".", flags, OWN)
}

fn unlinked(directory: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let name = format!(".htrace-bpf.{}", std::process::id());
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let file = openat(directory, name.as_str(), flags, OWN)?;
    unlinkat(directory, name.as_str(), AtFlags::empty())?;
    Ok(file)
}

const OWN: Mode = Mode::RUSR.union(Mode::WUSR);
