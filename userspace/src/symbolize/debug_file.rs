//! Finds separate debug files, in the target's root directory first and then in ours.
//!
//! Where they may be is GDB's convention (manual, 'Separate Debug Files'). A file counts only when
//! its build id, or for a debug link the CRC-32 of its contents, says that it belongs: another
//! container's file of the same name is worse than none.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::elf_sections::{AlternateLink, DebugLink};
use crate::modules::positioned::PositionedFile;
use crate::modules::{BuildId, ElfImage, FileRoot};

/// Where distributions put debug files.
const DEBUG_DIRECTORY: &str = "/usr/lib/debug";
/// Shorter build ids are in no file's name.
const MIN_BUILD_ID: usize = 2;

/// What a file has to show to be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// This build id.
    BuildId(BuildId),
    /// Contents with this CRC-32.
    Crc(u32),
}

/// A place to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Absolute path.
    pub path: PathBuf,
    /// What the file has to show.
    pub proof: Proof,
}

/// A debug file that belongs.
#[derive(Clone, Debug)]
pub struct DebugFile {
    /// Its path, in whichever root.
    pub path: PathBuf,
    /// The open file.
    pub file: Arc<File>,
}

/// Where the debug file of a module may be, best first.
#[must_use]
pub fn candidates(
    module: &Path,
    build_id: Option<&BuildId>,
    link: Option<&DebugLink>,
) -> Vec<Candidate> {
    let by_build_id = build_id.and_then(build_id_candidate);
    by_build_id
        .into_iter()
        .chain(link.into_iter().flat_map(|l| link_candidates(module, l)))
        .collect()
}

/// Where a `dwz` file may be, best first; `linker` is the file that has the link.
#[must_use]
pub fn alternate_candidates(linker: &Path, link: &AlternateLink) -> Vec<Candidate> {
    let directory = linker.parent().unwrap_or(Path::new("/"));
    let literal = Candidate {
        path: directory.join(&link.path),
        proof: Proof::BuildId(link.build_id.clone()),
    };
    [literal]
        .into_iter()
        .chain(build_id_candidate(&link.build_id))
        .collect()
}

fn build_id_candidate(build_id: &BuildId) -> Option<Candidate> {
    let name = build_id.to_string();
    if build_id.as_bytes().len() < MIN_BUILD_ID {
        return None;
    }
    let (first, rest) = name.split_at_checked(2)?;
    let path = Path::new(DEBUG_DIRECTORY).join(format!(".build-id/{first}/{rest}.debug"));
    Some(Candidate {
        path,
        proof: Proof::BuildId(build_id.clone()),
    })
}

fn link_candidates(module: &Path, link: &DebugLink) -> Vec<Candidate> {
    let directory = module.parent().unwrap_or(Path::new("/"));
    let below = directory.strip_prefix("/").unwrap_or(directory);
    [
        directory.to_owned(),
        directory.join(".debug"),
        Path::new(DEBUG_DIRECTORY).join(below),
    ]
    .into_iter()
    .map(|place| Candidate {
        path: place.join(&link.name),
        proof: Proof::Crc(link.crc),
    })
    .filter(|candidate| candidate.path != module)
    .collect()
}

/// Looks for debug files in some root directories.
#[derive(Debug, Default)]
pub struct DebugFileFinder {
    roots: Vec<Arc<FileRoot>>,
}

impl DebugFileFinder {
    /// A finder for these roots, in this order.
    #[must_use]
    pub fn new(roots: Vec<Arc<FileRoot>>) -> Self {
        Self { roots }
    }

    /// The first candidate that belongs. Files that are there and do not belong are added to
    /// `mismatches`.
    pub fn find(
        &self,
        candidates: &[Candidate],
        mismatches: &mut Vec<PathBuf>,
    ) -> Option<DebugFile> {
        for root in &self.roots {
            for Candidate { path, proof } in candidates {
                let Ok(file) = root.open(path) else { continue };
                let file = Arc::new(file);
                if proof.is_given_by(&file) {
                    return Some(DebugFile {
                        path: path.clone(),
                        file,
                    });
                }
                mismatches.push(path.clone());
            }
        }
        None
    }
}

impl Proof {
    fn is_given_by(&self, file: &Arc<File>) -> bool {
        match self {
            Self::BuildId(expected) => ElfImage::of_file(file).build_id.as_ref() == Some(expected),
            Self::Crc(expected) => crc_of(file).is_ok_and(|crc| crc == *expected),
        }
    }
}

fn crc_of(file: &Arc<File>) -> io::Result<u32> {
    let mut reader = PositionedFile::new(Arc::clone(file));
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        let count = reader.read(&mut buffer)?;
        match buffer.get(..count) {
            Some(read) if !read.is_empty() => hasher.update(read),
            _ => return Ok(hasher.finalize()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(candidates: &[Candidate]) -> Vec<&str> {
        candidates
            .iter()
            .map(|candidate| candidate.path.to_str().unwrap())
            .collect()
    }

    #[test]
    fn debug_files_are_looked_for_where_gdb_looks() {
        let build_id = BuildId::new(&[0xab, 0xcd, 0xef]).unwrap();
        let link = DebugLink {
            name: "x.debug".into(),
            crc: 7,
        };
        let found = candidates(Path::new("/opt/bin/x"), Some(&build_id), Some(&link));
        assert_eq!(
            paths(&found),
            [
                "/usr/lib/debug/.build-id/ab/cdef.debug",
                "/opt/bin/x.debug",
                "/opt/bin/.debug/x.debug",
                "/usr/lib/debug/opt/bin/x.debug",
            ]
        );
        assert_eq!(found[0].proof, Proof::BuildId(build_id));
        assert_eq!(found[3].proof, Proof::Crc(7));
    }

    #[test]
    fn a_link_to_the_module_itself_is_left_out() {
        let link = DebugLink {
            name: "x".into(),
            crc: 7,
        };
        let found = candidates(Path::new("/opt/x"), None, Some(&link));
        assert_eq!(paths(&found), ["/opt/.debug/x", "/usr/lib/debug/opt/x"]);
    }

    #[test]
    fn a_relative_alternate_link_starts_at_the_file_that_has_it() {
        let build_id = BuildId::new(&[1, 2]).unwrap();
        let link = AlternateLink {
            path: "../../.dwz/x".into(),
            build_id,
        };
        let found = alternate_candidates(Path::new("/usr/lib/debug/.build-id/ab/c.debug"), &link);
        assert_eq!(
            paths(&found),
            [
                "/usr/lib/debug/.build-id/ab/../../.dwz/x",
                "/usr/lib/debug/.build-id/01/02.debug",
            ]
        );
    }

    #[test]
    fn only_a_file_with_the_right_contents_is_taken_and_the_first_root_wins() {
        let roots: Vec<_> = ["wrong", "right", "right"]
            .map(|text| {
                let directory = tempfile::tempdir().unwrap();
                std::fs::write(directory.path().join("x.debug"), text).unwrap();
                directory
            })
            .into();
        let open = |index: usize| {
            let root: &tempfile::TempDir = &roots[index];
            Arc::new(FileRoot::open_directory(root.path()).unwrap())
        };
        let finder = DebugFileFinder::new(vec![open(0), open(1), open(2)]);
        let link = DebugLink {
            name: "x.debug".into(),
            crc: crc32fast::hash(b"right"),
        };
        let mut mismatches = Vec::new();
        let found = finder.find(
            &candidates(Path::new("/x"), None, Some(&link)),
            &mut mismatches,
        );
        let opened = FileVersion::of(&found.unwrap().file).unwrap();
        let second = File::open(roots[1].path().join("x.debug")).unwrap();
        assert_eq!(opened, FileVersion::of(&second).unwrap());
        assert_eq!(mismatches, [PathBuf::from("/x.debug")]);
    }

    use crate::modules::pool::FileVersion;
}
