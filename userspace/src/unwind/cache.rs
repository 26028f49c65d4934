//! Tables on disk, by build id.
//!
//! The directory is the user's own: one that belongs to somebody else, or that others may write
//! to, is not used. Its files are not trusted either: each is checked when it is read
//! ([`UnwindTable::from_bytes`]). Files are written under another name first and then renamed, so
//! that a reader sees a whole one or none. What fails here costs time, nothing else.

use std::{
    env, fs, io,
    io::Read,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use htrace_unwind_tables::UnwindTable;

/// All files together have at most so many bytes.
const MAX_BYTES: u64 = 256 << 20;
/// Larger files are not read.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Smaller tables are built faster than read.
const MIN_ROWS: usize = 4096;
const EXTENSION: &str = "unwind";

/// The directory, if there is a usable one.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: Option<PathBuf>,
}

impl Cache {
    /// The user's: `$XDG_CACHE_HOME/htrace-bpf`, or `~/.cache/htrace-bpf`.
    #[must_use]
    pub fn of_user() -> Self {
        let variable = |name| {
            env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let base = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
        match base {
            Some(base) => Self::at(&base.join("htrace-bpf")),
            None => Self::none(),
        }
    }

    /// A cache in that directory, which is made if need be.
    #[must_use]
    pub fn at(directory: &Path) -> Self {
        match own_directory(directory) {
            Ok(()) => Self {
                directory: Some(directory.to_owned()),
            },
            Err(error) => {
                tracing::debug!("{}: not used as a cache: {error}", directory.display());
                Self::none()
            }
        }
    }

    /// No cache.
    #[must_use]
    pub const fn none() -> Self {
        Self { directory: None }
    }

    /// The table of the image with that build id.
    #[must_use]
    pub fn load(&self, build_id: &[u8]) -> Option<UnwindTable> {
        let path = self.path(build_id)?;
        let mut bytes = Vec::new();
        let file = fs::File::open(&path).ok()?;
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        match UnwindTable::from_bytes(&bytes, build_id) {
            Ok(table) => Some(table),
            Err(error) => {
                tracing::debug!("{}: {error}", path.display());
                None
            }
        }
    }

    /// Keeps a table for later.
    pub fn store(&self, table: &UnwindTable) {
        if table.rows().len() < MIN_ROWS {
            return;
        }
        let Some(path) = self.path(table.build_id()) else {
            return;
        };
        if let Err(error) = write(&path, &table.to_bytes()).and_then(|()| self.shrink()) {
            tracing::debug!("{}: {error}", path.display());
        }
    }

    fn path(&self, build_id: &[u8]) -> Option<PathBuf> {
        /// Build ids are of 8 to 64 bytes; a shorter one is no one's own.
        const SHORTEST: usize = 8;
        let directory = self
            .directory
            .as_ref()
            .filter(|_| build_id.len() >= SHORTEST)?;
        let name: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(directory.join(name).with_extension(EXTENSION))
    }

    /// Removes the files that were written first until the rest has a bounded size.
    fn shrink(&self) -> io::Result<()> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        let mut files = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_file() {
                let written = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                files.push((written, metadata.len(), entry.path()));
            }
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(_, length, _)| length).sum();
        for (_, length, path) in files {
            if total <= MAX_BYTES {
                break;
            }
            fs::remove_file(path)?;
            total -= length;
        }
        Ok(())
    }
}

/// Makes the directory for us alone, or checks that it is ours alone.
fn own_directory(directory: &Path) -> io::Result<()> {
    const OTHERS_MAY_WRITE: u32 = 0o022;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let metadata = fs::symlink_metadata(directory)?;
    if !metadata.is_dir() || metadata.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::other("it is not a directory of ours"));
    }
    if metadata.mode() & OTHERS_MAY_WRITE != 0 {
        return Err(io::Error::other("others may write to it"));
    }
    Ok(())
}

/// Writes a file that is there whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    let written = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _not_there = fs::remove_file(&temporary);
    }
    written
}
