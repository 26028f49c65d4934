//! Directories for one test's files, open to every user and removed at its end.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A directory under the system's temporary directory that anybody may write
/// to, since some tests run the tracer as an unprivileged user.
#[derive(Debug)]
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// Makes an empty directory of mode 0777.
    pub fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("htrace-test.")
            .tempdir()
            .expect("a temp dir");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777))
            .expect("open the temp dir to all");
        Self(dir)
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path below the directory.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Copies a program here, where every user can execute it.
    pub fn copy_program(&self, program: &Path) -> PathBuf {
        let copy = self.join(program.file_name().expect("a program has a name"));
        std::fs::copy(program, &copy).expect("copy a program");
        copy
    }

    /// The only file whose name ends in `suffix`.
    pub fn only_file(&self, suffix: &str) -> PathBuf {
        let files = self.files(suffix);
        assert_eq!(
            files.len(),
            1,
            "one file *{suffix} expected in {:?}: {files:?}",
            self.path()
        );
        files.into_iter().next().expect("just counted")
    }

    /// All files whose names end in `suffix`, sorted.
    pub fn files(&self, suffix: &str) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(self.path())
            .expect("list the temp dir")
            .map(|entry| entry.expect("read a directory entry").path())
            .filter(|path| path.to_string_lossy().ends_with(suffix))
            .collect();
        files.sort();
        files
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}
