//! Makes the links by which programs are attached.

use std::{
    collections::BTreeMap,
    ffi::CString,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use super::attach_points::ProgramPoints;
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

    /// The points of a program in groups that are attached at once: where links do not tell a
    /// program which function it is on, each number has a program of its own.
    pub(super) fn attached_together(self, points: ProgramPoints) -> Vec<ProgramPoints> {
        if self == Self::Multi {
            return vec![points];
        }
        let mut groups: BTreeMap<u64, ProgramPoints> = BTreeMap::new();
        for (offset, number) in points.offsets.into_iter().zip(points.numbers) {
            let group = groups.entry(number).or_default();
            group.offsets.push(offset);
            group.numbers.push(number);
        }
        groups.into_values().collect()
    }

    /// The attach type that programs must be loaded with.
    pub(super) const fn attach_type(self) -> u32 {
        match self {
            Self::Multi => bpf::ATTACH_TYPE_UPROBE_MULTI,
            Self::Perf => 0,
        }
    }
}

/// Attaches a program to points of `file` in one process. Only multi-uprobe links tell it the
/// points' numbers.
pub(super) fn attach(
    kind: LinkKind,
    program: &OwnedFd,
    file: &File,
    points: &ProgramPoints,
    on_return: bool,
    pid: u32,
) -> io::Result<Vec<OwnedFd>> {
    // The file may lie in another mount namespace or be deleted; the descriptor leads to it.
    let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let program = program.as_fd();
    match kind {
        LinkKind::Multi => {
            let ProgramPoints { offsets, numbers } = points;
            bpf::link_uprobes(program, &path, offsets, numbers, on_return, pid)
                .map(|link| vec![link])
        }
        LinkKind::Perf => {
            let attach = |&offset| perf::attach_uprobe(program, &path, offset, on_return, pid);
            points.offsets.iter().map(attach).collect()
        }
    }
}

/// Attaches a program to a raw tracepoint.
pub(super) fn attach_tracepoint(program: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    bpf::open_raw_tracepoint(program.as_fd(), &CString::new(name)?)
}

/// Threads that take links away at once.
const AT_ONCE: usize = 16;

/// Takes links away side by side: the kernel makes each wait until no thread is inside any program.
pub(super) fn take_away(links: Vec<OwnedFd>) {
    let mut links = links.into_iter();
    let each = links.len().div_ceil(AT_ONCE).max(1);
    std::thread::scope(|scope| {
        while links.len() > 0 {
            let some: Vec<OwnedFd> = links.by_ref().take(each).collect();
            // Without a thread they go when the closure does, which is at once.
            let _started = std::thread::Builder::new().spawn_scoped(scope, move || drop(some));
        }
    });
}
