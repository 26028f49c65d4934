//! A running process: whether it can be attached to, and how it ends.

use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::{
            fs::MetadataExt,
            net::{SocketAddr, UnixListener},
            process::ExitStatusExt,
        },
    },
    process::ExitStatus,
};

/// Why a process cannot be attached to.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// It does not exist.
    #[error("there is no process {pid}; `ps -e` lists those there are")]
    NoSuchProcess {
        /// As it was asked for.
        pid: u32,
    },
    /// It is a thread of the kernel.
    #[error("process {pid} ({name}) is a thread of the kernel, which has no heap to trace")]
    KernelThread {
        /// As it was asked for.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// It has ended, and its parent has not noticed.
    #[error("process {pid} ({name}) has ended already and waits for its parent (a zombie)")]
    Zombie {
        /// As it was asked for.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// It is the id of a thread.
    #[error("{pid} is a thread of process {process}; use --pid {process}")]
    Thread {
        /// As it was asked for.
        pid: u32,
        /// The process of that thread.
        process: u32,
    },
    /// Another recorder records it.
    #[error("process {pid} is already being recorded by another htrace-bpf; end that one first")]
    AlreadyTraced {
        /// As it was asked for.
        pid: u32,
    },
    /// It belongs to somebody else.
    #[error(
        "no permission to look into process {pid} ({name}): run as root (sudo), or as its user \
         with the capabilities that it has"
    )]
    Permission {
        /// As it was asked for.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// It has no allocator that we know of.
    #[error(
        "process {pid} ({name}) has loaded no file that exports malloc: neither a C library nor \
         another allocator with that name"
    )]
    NoAllocator {
        /// As it was asked for.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// Anything else.
    #[error("cannot attach to process {pid}")]
    System {
        /// As it was asked for.
        pid: u32,
        /// Why.
        source: io::Error,
    },
}

/// A process, held by a descriptor that does not pass to another one of the same id.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    descriptor: OwnedFd,
}

impl Process {
    /// Gets hold of a process.
    ///
    /// # Errors
    /// When there is none, or nothing that could be traced.
    pub fn open(pid: u32) -> Result<Self, AttachError> {
        let descriptor = open_descriptor(pid).map_err(|source| explain(pid, source))?;
        let process = Self { pid, descriptor };
        process.check()?;
        Ok(process)
    }

    /// Gets hold of a child of ours, whatever state it is in.
    ///
    /// # Errors
    /// When the kernel has no such descriptors (before Linux 5.3).
    pub fn of_child(pid: u32) -> io::Result<Self> {
        Ok(Self {
            pid,
            descriptor: open_descriptor(pid)?,
        })
    }

    /// Its id in our pid namespace.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Its name, as in `comm` (15 bytes at most).
    #[must_use]
    pub fn name(&self) -> String {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        name.trim_end_matches('\n').to_owned()
    }

    /// Its command line, argument by argument; empty when it cannot be read.
    #[must_use]
    pub fn command_line(&self) -> Vec<Vec<u8>> {
        words(&fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default())
    }

    /// True if it filters its system calls: return probes make one of their own since Linux 6.11,
    /// and a filter that does not know it ends the process.
    #[must_use]
    pub fn filters_system_calls(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        field(&status, "Seccomp:") == Some("2")
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it is gone, or it is not ours to signal.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let descriptor = self.descriptor.as_raw_fd();
        let no_info: *const libc::siginfo_t = std::ptr::null();
        // SAFETY: the call takes integers and a null pointer.
        let result =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, descriptor, signal, no_info, 0) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Refuses what is no process with a heap of its own.
    fn check(&self) -> Result<(), AttachError> {
        let pid = self.pid;
        let path = format!("/proc/{pid}/status");
        let status = fs::read_to_string(path).map_err(|source| explain(pid, source))?;
        let name = field(&status, "Name:").unwrap_or_default().to_owned();
        match field(&status, "Tgid:").and_then(|id| id.parse().ok()) {
            Some(process) if process != pid => return Err(AttachError::Thread { pid, process }),
            _ => {}
        }
        if field(&status, "State:").is_some_and(|state| state.starts_with(['Z', 'X'])) {
            return Err(AttachError::Zombie { pid, name });
        }
        // Only what has memory of its own has a size.
        if field(&status, "VmSize:").is_none() {
            return Err(AttachError::KernelThread { pid, name });
        }
        match fs::read(format!("/proc/{pid}/maps")) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(AttachError::Permission { pid, name })
            }
            Err(source) => Err(explain(pid, source)),
        }
    }
}

impl AsFd for Process {
    /// Readable once the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn open_descriptor(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match libc::c_int::try_from(fd) {
        // SAFETY: the kernel has just opened it for us.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The kernel says EINVAL for threads, ESRCH and ENOENT for what does not exist.
fn explain(pid: u32, source: io::Error) -> AttachError {
    match source.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => AttachError::NoSuchProcess { pid },
        Some(libc::EINVAL) => thread_of(pid).unwrap_or(AttachError::NoSuchProcess { pid }),
        _ => AttachError::System { pid, source },
    }
}

fn thread_of(pid: u32) -> Option<AttachError> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let process = field(&status, "Tgid:")?.parse().ok()?;
    (process != pid).then_some(AttachError::Thread { pid, process })
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// How a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// What a shell would call it.
    #[must_use]
    pub fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or(0)),
        }
    }

    /// Exit status by which a shell, and we, pass it on.
    #[must_use]
    pub fn status(self) -> u8 {
        const KILLED: i32 = 128;
        let status = match self {
            Self::Code(code) => code,
            Self::Signal(signal) => KILLED + signal,
        };
        u8::try_from(status & 0xff).unwrap_or(u8::MAX)
    }
}

/// The right to record a process, which one recorder has at a time: a socket with a name of its
/// own in the abstract namespace, which ends with its owner however that ends (unix(7)).
#[derive(Debug)]
pub struct Claim(#[expect(dead_code, reason = "held, never used")] UnixListener);

impl Claim {
    /// Takes the right to record `pid`.
    ///
    /// # Errors
    /// When another recorder has it.
    pub fn on(pid: u32) -> Result<Self, AttachError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => AttachError::AlreadyTraced { pid },
            _ => AttachError::System { pid, source },
        };
        let name = format!(
            "htrace-bpf/{}/{pid}/{}",
            pid_namespace(pid),
            start_time(pid)
        );
        let address = SocketAddr::from_abstract_name(name).map_err(failed)?;
        UnixListener::bind_addr(&address).map(Self).map_err(failed)
    }
}

/// Tells processes of the same id in different pid namespaces apart.
fn pid_namespace(pid: u32) -> u64 {
    fs::metadata(format!("/proc/{pid}/ns/pid")).map_or(0, |namespace| namespace.ino())
}

/// Tells processes of the same id apart that lived one after the other: field 22 of
/// `/proc/PID/stat`, counted behind the name, which may hold anything.
fn start_time(pid: u32) -> String {
    const AFTER_NAME: usize = 19;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields
        .split_ascii_whitespace()
        .nth(AFTER_NAME)
        .unwrap_or_default()
        .to_owned()
}

/// The arguments in the text of `/proc/PID/cmdline` (proc(5)). A process that writes a title over
/// them fills what is left with zeros or blanks: these are none.
fn words(command_line: &[u8]) -> Vec<Vec<u8>> {
    let is_filling = |byte: &u8| *byte == 0 || *byte == b' ';
    let end = command_line.iter().rposition(|byte| !is_filling(byte));
    let Some(text) = end.and_then(|end| command_line.get(..=end)) else {
        return Vec::new();
    };
    text.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_a_title_leaves_of_the_arguments_is_not_told() {
        assert_eq!(words(b"a\0b c\0\0d\0"), [&b"a"[..], b"b c", b"", b"d"]);
        assert_eq!(
            words(b"redis-server *:6379\0\0\0\0"),
            [b"redis-server *:6379"]
        );
        assert_eq!(words(b"sendmail: idle   \0"), [b"sendmail: idle"]);
        assert!(words(b"").is_empty() && words(b"\0\0").is_empty());
    }

    #[test]
    fn what_cannot_be_traced_is_told_apart() {
        let error = Process::open(u32::MAX / 4).unwrap_err();
        assert!(
            matches!(error, AttachError::NoSuchProcess { .. }),
            "{error}"
        );
        let kernel = Process::open(2);
        if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
            let error = kernel.unwrap_err();
            assert!(matches!(error, AttachError::KernelThread { .. }), "{error}");
        }
    }

    #[test]
    fn a_zombie_and_a_thread_are_named() {
        let mut child = Command::new("true").stdout(Stdio::null()).spawn().unwrap();
        let process = Process::of_child(child.id()).unwrap();
        let mut waits = [nix::poll::PollFd::new(
            process.as_fd(),
            nix::poll::PollFlags::POLLIN,
        )];
        nix::poll::poll(&mut waits, nix::poll::PollTimeout::NONE).unwrap();
        let error = Process::open(child.id()).unwrap_err();
        assert!(matches!(error, AttachError::Zombie { .. }), "{error}");
        child.wait().unwrap();

        let thread = std::thread::spawn(|| nix::unistd::gettid().as_raw())
            .join()
            .unwrap();
        // The thread is gone, or its id is seen to be one.
        let error = Process::open(thread.cast_unsigned()).unwrap_err();
        let expected = matches!(
            error,
            AttachError::NoSuchProcess { .. } | AttachError::Thread { .. }
        );
        assert!(expected, "{error}");
    }

    #[test]
    fn one_recorder_at_a_time() {
        let pid = std::process::id();
        let claim = Claim::on(pid).unwrap();
        assert!(matches!(
            Claim::on(pid),
            Err(AttachError::AlreadyTraced { .. })
        ));
        drop(claim);
        assert!(Claim::on(pid).is_ok());
    }

    #[test]
    fn statuses_are_passed_on_as_a_shell_does() {
        assert_eq!(Exit::Code(7).status(), 7);
        assert_eq!(Exit::Signal(9).status(), 137);
    }

    #[test]
    fn the_command_line_is_split() {
        let own = Process::of_child(std::process::id()).unwrap();
        let expected: Vec<Vec<u8>> = std::env::args().map(String::into_bytes).collect();
        assert_eq!(own.command_line(), expected);
    }
}
