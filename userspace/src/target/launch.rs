//! Starts a program stopped: the child exists, so that probes can be scoped to it, but has not
//! replaced itself by the program yet. It waits for a byte on a pipe; when we die instead of
//! sending it, the child ends without having run anything.

use std::{
    ffi::{OsStr, OsString},
    io::{self, PipeReader, PipeWriter, Read, Write},
    os::unix::process::CommandExt,
    process::{Child, Command},
    thread::{self, JoinHandle},
};

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};

use super::Identity;

/// What to start, and as whom.
#[derive(Clone, Debug)]
pub struct Program {
    /// Name or path; a name is looked up in `PATH`.
    pub name: OsString,
    /// Its arguments, without the name.
    pub arguments: Vec<OsString>,
    /// As whom, if not as ourselves.
    pub identity: Option<Identity>,
    /// Signals that are to be blocked in the program.
    pub blocked_signals: SigSet,
}

/// Why a program did not start.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is no such program.
    #[error("{program:?}: no such program")]
    NotFound {
        /// As it was asked for.
        program: OsString,
    },
    /// The program was found and did not start.
    #[error("{program:?} cannot be executed")]
    NotExecutable {
        /// As it was asked for.
        program: OsString,
        /// Why.
        source: io::Error,
    },
    /// Something went wrong before the program was looked for.
    #[error("cannot start a process")]
    Process(#[from] io::Error),
}

impl LaunchError {
    /// Exit status as that of env(1).
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Process(_) => 125,
        }
    }
}

/// A child that waits to become the program.
#[derive(Debug)]
pub struct Stopped {
    pid: u32,
    program: OsString,
    go: PipeWriter,
    starter: JoinHandle<io::Result<Child>>,
}

impl Program {
    /// The command line as the user wrote it.
    pub fn command_line(&self) -> impl Iterator<Item = &OsStr> {
        std::iter::once(&self.name)
            .chain(&self.arguments)
            .map(OsString::as_os_str)
    }

    /// Makes the child.
    ///
    /// # Errors
    /// When there can be no further process.
    pub fn start_stopped(&self) -> Result<Stopped, LaunchError> {
        let (mut tells_pid, pid_writer) = io::pipe()?;
        let (waits, go) = io::pipe()?;
        let mut command = Command::new(&self.name);
        command.args(&self.arguments);
        if let Some(identity) = &self.identity {
            command.envs(identity.variables());
        }
        self.stop_before_exec(&mut command, pid_writer, waits, &go)?;
        // `spawn` returns only when the program runs or has failed to, so it gets a thread.
        let starter = thread::Builder::new()
            .name("starter".to_owned())
            .spawn(move || command.spawn())?;
        let mut pid = [0; 4];
        if tells_pid.read_exact(&mut pid).is_err() {
            return Err(Self::failed_early(starter));
        }
        let pid = u32::from_ne_bytes(pid);
        Ok(Stopped {
            pid,
            program: self.name.clone(),
            go,
            starter,
        })
    }

    /// Makes the child tell its process id, then wait, then become another user if it has to.
    fn stop_before_exec(
        &self,
        command: &mut Command,
        mut pid_writer: PipeWriter,
        mut waits: PipeReader,
        go: &PipeWriter,
    ) -> io::Result<()> {
        let blocked = self.blocked_signals;
        let identity = self.identity.clone();
        // The child inherits this end; it must go there, or the pipe never breaks.
        let inherited = std::os::fd::AsRawFd::as_raw_fd(go);
        let before_exec = move || {
            // SAFETY: the child has its own descriptor table, and nothing in it uses this one.
            unsafe { libc::close(inherited) };
            pid_writer.write_all(&std::process::id().to_ne_bytes())?;
            waits.read_exact(&mut [0])?;
            if let Some(identity) = &identity {
                identity.assume()?;
            }
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&blocked), None)?;
            Ok(())
        };
        // SAFETY: between fork and exec only system calls are made, on what was prepared before;
        // nothing allocates unless it fails, and then the child ends.
        unsafe { command.pre_exec(before_exec) };
        Ok(())
    }

    /// The starter's error, when the child ended before it could tell its process id.
    fn failed_early(starter: JoinHandle<io::Result<Child>>) -> LaunchError {
        let error = match starter.join() {
            Ok(Err(error)) => error,
            _ => io::Error::other("the child ended before the program could start"),
        };
        LaunchError::Process(error)
    }
}

impl Stopped {
    /// Process id of the child, which will be the program's.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the child become the program.
    ///
    /// # Errors
    /// When the program does not exist or cannot be executed.
    pub fn resume(mut self) -> Result<Child, LaunchError> {
        self.go.write_all(&[1])?;
        let spawned = self
            .starter
            .join()
            .map_err(|_| io::Error::other("the starter died"))?;
        spawned.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => LaunchError::NotFound {
                program: self.program,
            },
            _ => LaunchError::NotExecutable {
                program: self.program,
                source,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, arguments: &[&str]) -> Program {
        Program {
            name: name.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            identity: None,
            blocked_signals: SigSet::empty(),
        }
    }

    #[test]
    fn nothing_runs_before_it_is_told_to() {
        let stopped = program("sh", &["-c", "exit 7"]).start_stopped().unwrap();
        let pid = stopped.pid();
        let own = std::fs::read_link("/proc/self/exe").unwrap();
        assert_eq!(std::fs::read_link(format!("/proc/{pid}/exe")).unwrap(), own);
        let mut child = stopped.resume().unwrap();
        assert_eq!(child.id(), pid);
        assert_eq!(child.wait().unwrap().code(), Some(7));
    }

    #[test]
    fn failures_have_the_statuses_of_env() {
        for (name, status) in [("/no/such/program", 127), ("/etc/passwd", 126)] {
            let error = program(name, &[])
                .start_stopped()
                .unwrap()
                .resume()
                .unwrap_err();
            assert_eq!(error.exit_status(), status, "{error}");
        }
    }

    #[test]
    fn a_child_that_is_not_resumed_ends() {
        let stopped = program("sh", &["-c", "exit 7"]).start_stopped().unwrap();
        let Stopped { go, starter, .. } = stopped;
        drop(go);
        assert!(starter.join().unwrap().is_err());
    }
}
