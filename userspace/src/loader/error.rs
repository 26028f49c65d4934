//! Why programs could not be loaded or attached, each with what to do about it.

use std::io;

use super::privileges::{self, Missing};

/// Why programs could not be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// This binary was built without the BPF object.
    #[error("this binary was built without its BPF programs; build it with `cargo xtask build`")]
    NoObject,
    /// The BPF object lacks something, or has it in another form.
    #[error("the BPF object has no usable {name}; rebuild with `cargo xtask build`")]
    MissingPart {
        /// The program, map or variable.
        name: String,
    },
    /// The BPF object cannot be read.
    #[error("the BPF object cannot be used: {0}; rebuild with `cargo xtask build`")]
    Object(String),
    /// The kernel lacks what is needed.
    #[error("Linux {needed} or later is needed; this is {running}")]
    KernelTooOld {
        /// First version that will do.
        needed: &'static str,
        /// Version that runs.
        running: String,
    },
    /// The kernel does not tell where its structures have their fields.
    #[error("unwind tables cannot be used: {0}")]
    NoTypes(String),
    /// Capabilities are missing.
    #[error("{action}: permission denied. {missing}")]
    Permission {
        /// What was tried.
        action: String,
        /// What is missing.
        missing: Missing,
    },
    /// There is no memory for a map.
    #[error(
        "there is not enough memory for the BPF map {map} (a limit of the control group counts, \
         too); a smaller --ring-size takes less"
    )]
    NoMemory {
        /// Name of the map.
        map: String,
    },
    /// The limit of locked memory is too low: before Linux 5.11.
    #[error(
        "BPF maps need more locked memory than the limit of {bytes} bytes: run `ulimit -l unlimited`, \
         or as root (sudo), or with CAP_SYS_RESOURCE"
    )]
    LockedMemory {
        /// The limit.
        bytes: u64,
    },
    /// The verifier refused a program.
    #[error("the kernel refuses the BPF program {program}; its verifier says:\n{log}\n")]
    Verifier {
        /// Name of the program.
        program: String,
        /// The last lines that the verifier wrote.
        log: String,
        /// Its errno.
        source: io::Error,
    },
    /// Anything else that the kernel did not want to do.
    #[error("{action}")]
    System {
        /// What was tried.
        action: String,
        /// Its errno.
        source: io::Error,
    },
}

impl LoadError {
    /// An error of `action`, which needs privileges.
    pub(super) fn system(action: impl Into<String>, source: io::Error) -> Self {
        let action = action.into();
        let denied = matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES));
        match privileges::missing() {
            Some(missing) if denied => Self::Permission { action, missing },
            _ => Self::System { action, source },
        }
    }

    /// An error of attaching a program.
    pub(super) fn attach(program: &str, source: io::Error) -> Self {
        Self::system(format!("cannot attach the probe {program}"), source)
    }

    /// An error of using a map.
    pub(super) fn map(error: aya::maps::MapError) -> Self {
        let source = match error {
            aya::maps::MapError::CreateError { io_error, .. }
            | aya::maps::MapError::IoError(io_error) => io_error,
            aya::maps::MapError::SyscallError(error) => error.io_error,
            other => return Self::Object(other.to_string()),
        };
        Self::system("cannot use a BPF map", source)
    }
}
