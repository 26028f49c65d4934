//! Makes the links by which programs are attached.

use std::{
    ffi::CString,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use crate::sys::{bpf, perf};

/// How probes are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkKind {
    /// All functions of a program by one link: Linux 6.6.
    Multi,
    /// One perf event a probe.
    Perf,
}

impl LinkKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Multi => "multi-uprobe links",
            Self::Perf => "one perf event a probe",
        }
    }

    /// The attach type that programs must be loaded with.
    pub(super) const fn attach_type(self) -> u32 {
        match self {
            Self::Multi => bpf::ATTACH_TYPE_UPROBE_MULTI,
            Self::Perf => 0,
        }
    }
}

/// Attaches a program to `offsets` of `file` in one process.
pub(super) fn attach(
    kind: LinkKind,
    program: &OwnedFd,
    file: &File,
    offsets: &[u64],
    on_return: bool,
    pid: u32,
) -> io::Result<Vec<OwnedFd>> {
    // The file may lie in another mount namespace or be deleted; the descriptor leads to it.
    let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let program = program.as_fd();
    match kind {
        LinkKind::Multi => {
            bpf::link_uprobes(program, &path, offsets, on_return, pid).map(|link| vec![link])
        }
        LinkKind::Perf => {
            let attach = |&offset| perf::attach_uprobe(program, &path, offset, on_return, pid);
            offsets.iter().map(attach).collect()
        }
    }
}

/// Attaches a program to a raw tracepoint.
pub(super) fn attach_tracepoint(program: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    bpf::open_raw_tracepoint(program.as_fd(), &CString::new(name)?)
}
