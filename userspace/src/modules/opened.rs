//! Remembers the files that were opened for a target's mappings.
//!
//! A file is first opened while the target waits, when there is no doubt which one is mapped. Asked for
//! again, by then the target may have mapped another one in its place. A file that is open keeps its
//! inode number to itself, so what maps shows of it cannot come to mean another file.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::maps::{Device, MappedName, MapsEntry};
use super::opener::OpenedFile;

/// The oldest is forgotten when there are more. Each is a descriptor.
const MAX_FILES: usize = 128;

/// What maps shows of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    device: Device,
    inode: u64,
    path: PathBuf,
}

/// Files that were opened, with what maps shows of them.
#[derive(Debug, Default)]
pub(super) struct OpenedFiles(Mutex<VecDeque<(Key, OpenedFile)>>);

impl OpenedFiles {
    /// The file behind a mapping, if it was opened before.
    pub(super) fn get(&self, mapping: &MapsEntry) -> Option<OpenedFile> {
        let wanted = Key::of(mapping)?;
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = files.iter().find(|(key, _)| *key == wanted);
        known.map(|(_, file)| file.clone())
    }

    /// Remembers the file behind a mapping.
    pub(super) fn insert(&self, mapping: &MapsEntry, file: &OpenedFile) {
        let Some(key) = Key::of(mapping) else { return };
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if files.len() >= MAX_FILES {
            files.pop_front();
        }
        files.push_back((key, file.clone()));
    }
}

impl Key {
    fn of(mapping: &MapsEntry) -> Option<Self> {
        let MappedName::File { path, .. } = &mapping.name else {
            return None;
        };
        Some(Self {
            device: mapping.device,
            inode: mapping.inode,
            path: path.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use super::*;
    use crate::modules::opener::Verification;

    fn mapping(inode: u64) -> MapsEntry {
        let line = format!("1000-2000 r-xp 00000000 08:01 {inode} /lib/a.so");
        super::super::maps::parse(line.as_bytes())
            .next()
            .unwrap()
            .unwrap()
    }

    fn opened() -> OpenedFile {
        OpenedFile {
            file: Arc::new(File::open("/proc/self/exe").unwrap()),
            path: PathBuf::from("/lib/a.so"),
            verification: Verification::Kernel,
        }
    }

    #[test]
    fn a_file_is_known_by_what_maps_shows() {
        let files = OpenedFiles::default();
        let file = opened();
        files.insert(&mapping(1), &file);
        let again = files.get(&mapping(1)).unwrap();
        assert!(Arc::ptr_eq(&again.file, &file.file));
        assert!(files.get(&mapping(2)).is_none(), "another inode");
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let files = OpenedFiles::default();
        let file = opened();
        for inode in 0..=MAX_FILES as u64 {
            files.insert(&mapping(inode), &file);
        }
        assert!(files.get(&mapping(0)).is_none());
        assert!(files.get(&mapping(1)).is_some());
    }
}
