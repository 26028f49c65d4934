//! Tells whether any file of a directory tree is executed, by whomever, as the kernel sees it.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};

/// Watches the files that were in a tree when it began. Needs root.
#[derive(Debug)]
pub struct Executions {
    events: Fanotify,
    /// Files that are watched.
    pub files: usize,
}

impl Executions {
    /// Begins to watch all files below `tree`.
    ///
    /// # Panics
    /// When a file cannot be watched.
    pub fn below(tree: &Path) -> Self {
        let flags = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        let events = Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC)
            .expect("a fanotify group");
        let files = files_below(tree);
        for file in &files {
            // Marks are on the file itself, whatever mounts it is reached by (fanotify_mark(2));
            // the dynamic linker counts, when a program names it.
            let (add, executed) = (MarkFlags::FAN_MARK_ADD, MaskFlags::FAN_OPEN_EXEC);
            events
                .mark(add, executed, AT_FDCWD, Some(file))
                .unwrap_or_else(|e| panic!("cannot watch {file:?}: {e}"));
        }
        let files = files.len();
        Self { events, files }
    }

    /// Process ids of all who have executed one of the files, since this was asked last.
    ///
    /// # Panics
    /// When the kernel does not tell.
    pub fn so_far(&self) -> Vec<i32> {
        let mut pids = Vec::new();
        loop {
            match self.events.read_events() {
                Ok(events) => pids.extend(events.iter().map(|event| event.pid())),
                Err(Errno::EAGAIN) => return pids,
                Err(error) => panic!("cannot read who executed what: {error}"),
            }
        }
    }
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).expect("list a directory") {
        let path = entry.expect("a directory's entry").path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}
