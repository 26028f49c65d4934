//! A target in its own user, mount and pid namespaces under another root, with
//! libraries of its own (copies, so that neither path nor inode is the host's).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Running;
use crate::scratch::Scratch;
use crate::targets::target;
use crate::truth::Truth;

/// A directory tree that a program can run under.
#[derive(Debug)]
pub struct NewRoot {
    tree: Scratch,
}

impl NewRoot {
    /// Copies a target to `/bin` of a new tree, and the libraries that it needs
    /// to where they are on the host.
    pub fn with(name: &str) -> Self {
        let tree = Scratch::new();
        let program = target(name);
        copy(&program, &tree.join("bin").join(name));
        for library in libraries(&program) {
            let inside = library
                .strip_prefix("/")
                .expect("ldd prints absolute paths");
            copy(&library, &tree.join(inside));
        }
        Self { tree }
    }

    /// Copies a program of the tree to another place in it, as whatever somebody might look for there.
    pub fn add_decoy(&self, name: &str, place: &str) {
        copy(&self.tree.join("bin").join(name), &self.tree.join(place));
    }

    /// Starts the program under the new root; returns it, and its process id as
    /// seen from outside, once it says "ready".
    pub fn start(&self, name: &str, args: &[&str]) -> (Running, u32) {
        let mut command = Command::new(target("enter_root"));
        command
            .arg(self.tree.path())
            .arg(format!("/bin/{name}"))
            .args(args);
        let mut running = Running::start(&mut command);
        let line = running.wait_for_line("pid=");
        running.wait_for_line("ready");
        let pid = Truth::parse(line.as_bytes()).get("pid");
        (running, u32::try_from(pid).expect("a process id"))
    }

    /// The tree as seen from outside.
    pub fn path(&self) -> &Path {
        self.tree.path()
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().expect("a path below the tree")).expect("make directories");
    std::fs::copy(from, to).unwrap_or_else(|e| panic!("cannot copy {from:?} to {to:?}: {e}"));
}

/// The absolute paths that `ldd` prints, the dynamic linker's among them.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("run ldd");
    String::from_utf8_lossy(&output.stdout)
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}
