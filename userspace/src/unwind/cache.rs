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
/// Smaller tables are built faster than read …
const MIN_ROWS: usize = 4096;
/// … unless they are of a larger image, all of which is read for that. The largest hold data, and a
/// table of a few rows.
const LARGE_IMAGE: usize = 1 << 20;
const EXTENSION: &str = "unwind";

/// Room that reading to the end wants when it is there, lest it doubles what it has.
const ROOM_FOR_END: usize = 1;

/// The directory, if there is a usable one.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: Option<PathBuf>,
    /// What all files may have together.
    max_bytes: u64,
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
                max_bytes: MAX_BYTES,
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
        Self {
            directory: None,
            max_bytes: MAX_BYTES,
        }
    }

    /// The table of the image with that build id.
    #[must_use]
    pub fn load(&self, build_id: &[u8]) -> Option<UnwindTable> {
        let path = self.path(build_id)?;
        let mut bytes = Vec::new();
        let file = fs::File::open(&path).ok()?;
        let length = file.metadata().ok()?.len().min(MAX_FILE_BYTES);
        bytes.reserve_exact(usize::try_from(length).ok()? + ROOM_FOR_END);
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        match UnwindTable::from_bytes(&bytes, build_id) {
            Ok(table) => Some(table),
            Err(error) => {
                tracing::debug!("{}: {error}", path.display());
                None
            }
        }
    }

    /// Keeps the table of an image of so many bytes for later.
    pub fn store(&self, table: &UnwindTable, image_bytes: usize) {
        if table.rows().len() < MIN_ROWS && image_bytes < LARGE_IMAGE {
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
            if total <= self.max_bytes {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, PermissionsExt};

    use tempfile::TempDir;

    use super::*;
    use crate::modules::maps::{self, MappedName};

    /// A table that is large enough to be kept.
    fn table() -> UnwindTable {
        let program = fs::read(env::current_exe().unwrap()).unwrap();
        let table = htrace_unwind_tables::build(&program).unwrap();
        assert!(table.rows().len() >= MIN_ROWS && table.build_id().len() >= 8);
        table
    }

    /// The table of the vdso.
    fn small_table() -> UnwindTable {
        let text = fs::read("/proc/self/maps").unwrap();
        let mut entries = maps::parse(&text).map(Result::unwrap);
        let vdso = entries
            .find(|entry| entry.name == MappedName::Special("[vdso]".to_owned()))
            .unwrap();
        let mut image = vec![0; (vdso.end - vdso.start) as usize];
        let memory = fs::File::open("/proc/self/mem").unwrap();
        memory.read_exact_at(&mut image, vdso.start).unwrap();
        let table = htrace_unwind_tables::build(&image).unwrap();
        assert!(table.rows().len() < MIN_ROWS && table.build_id().len() >= 8);
        table
    }

    fn cache(directory: &TempDir) -> Cache {
        let cache = Cache::at(&directory.path().join("tables"));
        assert!(cache.directory.is_some());
        cache
    }

    #[test]
    fn what_is_stored_is_found_by_its_build_id_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (cache, table) = (cache(&directory), table());
        assert_eq!(cache.load(table.build_id()), None);
        cache.store(&table, 0);
        assert_eq!(cache.load(table.build_id()), Some(table));
        assert_eq!(cache.load(&[7; 20]), None);
        assert_eq!(cache.load(b"short"), None);
    }

    #[test]
    fn a_small_table_is_kept_if_its_image_is_large() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(&directory);
        let table = small_table();
        cache.store(&table, LARGE_IMAGE - 1);
        assert_eq!(cache.load(table.build_id()), None);
        cache.store(&table, LARGE_IMAGE);
        assert_eq!(cache.load(table.build_id()), Some(table));
    }

    #[test]
    fn a_damaged_file_is_no_table() {
        let directory = tempfile::tempdir().unwrap();
        let (cache, table) = (cache(&directory), table());
        cache.store(&table, 0);
        let path = cache.path(table.build_id()).unwrap();
        let intact = fs::read(&path).unwrap();
        for (at, kept) in [(0, intact.len()), (40, intact.len()), (9, 100), (0, 0)] {
            let mut bytes = intact[..kept].to_vec();
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1;
            }
            fs::write(&path, bytes).unwrap();
            assert_eq!(cache.load(table.build_id()), None, "byte {at} of {kept}");
        }
        // The file of another build under this one's name.
        fs::write(cache.path(&[9; 20]).unwrap(), intact).unwrap();
        assert_eq!(cache.load(&[9; 20]), None);
        cache.store(&table, 0);
        assert_eq!(cache.load(table.build_id()), Some(table));
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        for mode in [0o777, 0o770, 0o702] {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
            let cache = Cache::at(directory.path());
            assert!(cache.directory.is_none(), "{mode:o}");
            cache.store(&table(), 0);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_link_to_a_directory_and_a_file_are_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let (link, file) = (directory.path().join("link"), directory.path().join("file"));
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        fs::write(&file, b"").unwrap();
        assert!(Cache::at(&link).directory.is_none());
        assert!(Cache::at(&file).directory.is_none());
    }

    #[test]
    fn the_oldest_files_go_first() {
        let directory = tempfile::tempdir().unwrap();
        let (mut cache, table) = (cache(&directory), table());
        cache.store(&table, 0);
        let path = cache.path(table.build_id()).unwrap();
        let length = fs::metadata(&path).unwrap().len();
        let old = [1_u8, 2, 3].map(|number| {
            let old = cache.path(&[number; 20]).unwrap();
            fs::write(&old, vec![0; length as usize]).unwrap();
            let written = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number.into());
            fs::File::options()
                .write(true)
                .open(&old)
                .unwrap()
                .set_modified(written)
                .unwrap();
            old
        });
        cache.max_bytes = 2 * length;
        cache.store(&table, 0);
        let left = old.map(|path| path.exists());
        assert_eq!((left, path.exists()), ([false, false, true], true));
    }

    #[test]
    fn no_cache_holds_nothing() {
        let (cache, table) = (Cache::none(), table());
        cache.store(&table, 0);
        assert_eq!(cache.load(table.build_id()), None);
    }
}
