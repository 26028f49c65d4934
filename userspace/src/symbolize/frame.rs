//! What is told about an address, and the one form in which source paths are given.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// One function at an address: the function that the code is in, or one inlined there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Demangled name, C++ functions with their argument lists, Rust functions without hash.
    pub function: Option<String>,
    /// Source file: absolute where the debug information says so, `.` and `..` worked out.
    pub file: Option<String>,
    /// Line of the instruction, in the outer frames of the call that was inlined. From 1.
    pub line: Option<u32>,
}

/// Joins what debug information gives in two parts, and works out `.` and `..`, so that a file
/// has one name however the compiler was called. Symbolic links are not followed: the file need
/// not exist here.
#[must_use]
pub fn source_path(directory: Option<&Path>, file: &OsStr) -> String {
    let joined = directory.unwrap_or(Path::new("")).join(file);
    let mut path = PathBuf::new();
    for component in joined.components() {
        match component {
            Component::ParentDir => go_up(&mut path),
            other => path.push(other),
        }
    }
    path.to_string_lossy().into_owned()
}

fn go_up(path: &mut PathBuf) {
    match path.components().next_back() {
        Some(Component::Normal(_)) => {
            path.pop();
        }
        // Above the root is the root.
        Some(Component::RootDir) => {}
        _ => path.push(".."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_take_one_form() {
        let path =
            |directory: &str, file: &str| source_path(Some(Path::new(directory)), OsStr::new(file));
        assert_eq!(path("/src/build", "main.c"), "/src/build/main.c");
        assert_eq!(path("/src/build", "../lib/./a.c"), "/src/lib/a.c");
        assert_eq!(
            path("/src/build", "/usr/include/c++/12/vector"),
            "/usr/include/c++/12/vector"
        );
        assert_eq!(path("/", "../../x.c"), "/x.c");
        assert_eq!(path("./malloc", "malloc.c"), "./malloc/malloc.c");
        assert_eq!(path("../a", "../b.c"), "../b.c");
        assert_eq!(path("..", "../b.c"), "../../b.c");
        assert_eq!(source_path(None, OsStr::new("a.c")), "a.c");
    }
}
