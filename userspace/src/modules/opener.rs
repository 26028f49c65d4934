//! The seam between the module table and the system: how a mapped file is got hold of.
//!
//! Two implementations exist: [`super::ProcOpener`] for a process, and hand-made ones in tests.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::maps::MapsEntry;

/// A mapping whose file is wanted.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest<'a> {
    /// The mapping.
    pub mapping: &'a MapsEntry,
    /// Where the first byte of the file is mapped, if it is: there the target's memory shows
    /// the ELF header of what is really mapped.
    pub image_base: Option<u64>,
}

/// How sure it is that an opened file is the mapped one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// The kernel handed out the mapped file itself.
    Kernel,
    /// Device and inode are those of the mapping.
    Inode,
    /// The build id is that in the target's memory.
    BuildId,
    /// Nothing speaks against it, but nothing proves it.
    Unverified,
}

/// A file that an opener got hold of.
#[derive(Clone, Debug)]
pub struct OpenedFile {
    /// The file, open for reading.
    pub file: Arc<File>,
    /// Its path as the target sees it.
    pub path: PathBuf,
    /// How sure it is that this is the mapped file.
    pub verification: Verification,
}

/// Why a mapped file could not be had.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused.
    #[error("cannot open {path}: {source}")]
    Io {
        /// The path that was tried last.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What is there now is another file than the mapped one.
    #[error("{path} has been replaced since the target mapped it")]
    Replaced {
        /// The path, as the target sees it.
        path: PathBuf,
    },
    /// The mapping is of no regular file.
    #[error("{path} is not a regular file")]
    NotRegular {
        /// The path, as the target sees it.
        path: PathBuf,
    },
    /// The mapping has no file.
    #[error("the mapping has no file")]
    NoFile,
}

/// Opens the files of one target's mappings and reads its memory.
pub trait ModuleOpener: Send + Sync {
    /// Opens the file behind a mapping.
    ///
    /// # Errors
    /// When the file cannot be had, or what can be had is not the mapped one.
    fn open(&self, request: OpenRequest<'_>) -> Result<OpenedFile, OpenError>;

    /// Reads the target's memory; returns how many bytes from the beginning of `buffer` were read.
    ///
    /// # Errors
    /// When not even the first byte can be read.
    fn read_memory(&self, address: u64, buffer: &mut [u8]) -> io::Result<usize>;
}
