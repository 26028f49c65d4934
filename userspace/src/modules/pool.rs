//! A bounded set of open files, shared by all modules that stand on the same file.
//!
//! Invariant: at most `limit` descriptors are held here. When one more is needed, the file that
//! was not used for the longest time and can be opened again by its path gives way; only when
//! there is none such does a deleted file.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

/// One content of one file. Size and times are in it because a file may be overwritten in place,
/// and because the system gives the inode of a deleted file to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileVersion {
    /// The version of an open file.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

#[derive(Debug)]
struct Held {
    file: Arc<File>,
    last_use: u64,
    reopenable: bool,
}

#[derive(Debug, Default)]
struct State {
    held: FxHashMap<FileVersion, Held>,
    uses: u64,
}

/// Open files by version.
#[derive(Debug)]
pub struct FilePool {
    limit: usize,
    state: Mutex<State>,
}

impl FilePool {
    /// A pool of at most `limit` files, at least one.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            state: Mutex::default(),
        }
    }

    /// The file of that version if it is open.
    #[must_use]
    pub fn get(&self, version: &FileVersion) -> Option<Arc<File>> {
        let state = &mut *self.lock();
        state.uses += 1;
        let held = state.held.get_mut(version)?;
        held.last_use = state.uses;
        Some(Arc::clone(&held.file))
    }

    /// Adds an open file, and returns the one that is held: an earlier descriptor of the same
    /// version stays, the new one is then closed. `reopenable` says that its path still leads to it.
    pub fn insert(&self, version: FileVersion, file: Arc<File>, reopenable: bool) -> Arc<File> {
        if let Some(held) = self.get(&version) {
            return held;
        }
        let state = &mut *self.lock();
        if state.held.len() >= self.limit {
            state.evict();
        }
        let held = Held {
            file: Arc::clone(&file),
            last_use: state.uses,
            reopenable,
        };
        state.held.insert(version, held);
        file
    }

    /// Notes that the path of a file no longer leads to it.
    pub fn set_deleted(&self, version: &FileVersion) {
        if let Some(held) = self.lock().held.get_mut(version) {
            held.reopenable = false;
        }
    }

    /// How many files are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().held.len()
    }

    /// Whether none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A panic while the lock was held leaves a map that is still whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn evict(&mut self) {
        let victim = self
            .held
            .iter()
            .min_by_key(|(_, held)| (!held.reopenable, held.last_use))
            .map(|(version, _)| *version);
        if let Some(version) = victim {
            self.held.remove(&version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(inode: u64) -> FileVersion {
        FileVersion {
            device: 1,
            inode,
            size: 0,
            modified: (0, 0),
        }
    }

    fn file() -> Arc<File> {
        Arc::new(File::open("/dev/null").unwrap())
    }

    #[test]
    fn the_longest_unused_file_that_can_be_reopened_gives_way() {
        let pool = FilePool::new(3);
        pool.insert(version(1), file(), false);
        pool.insert(version(2), file(), true);
        pool.insert(version(3), file(), true);
        assert!(pool.get(&version(2)).is_some());
        pool.insert(version(4), file(), true);
        assert_eq!(pool.len(), 3);
        assert!(pool.get(&version(3)).is_none());
        assert!(pool.get(&version(1)).is_some());
    }

    #[test]
    fn deleted_files_give_way_when_nothing_else_can() {
        let pool = FilePool::new(2);
        for inode in 0..5 {
            pool.insert(version(inode), file(), false);
        }
        assert_eq!(pool.len(), 2);
        assert!(pool.get(&version(4)).is_some());
    }

    #[test]
    fn one_version_is_held_once() {
        let pool = FilePool::new(8);
        let first = pool.insert(version(1), file(), true);
        let second = pool.insert(version(1), file(), true);
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(pool.len(), 1);
    }

    #[test]
    fn a_file_that_is_written_to_is_another_version() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lib.so");
        std::fs::write(&path, "one").unwrap();
        let before = FileVersion::of(&File::open(&path).unwrap()).unwrap();
        assert_eq!(
            before,
            FileVersion::of(&File::open(&path).unwrap()).unwrap()
        );
        std::fs::write(&path, "three").unwrap();
        assert_ne!(
            before,
            FileVersion::of(&File::open(&path).unwrap()).unwrap()
        );
    }
}
