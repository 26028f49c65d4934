//! What the BPF programs log, for debugging them.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use aya_log::EbpfLogger;
use log::Log;

/// Log messages of the programs, passed on to the `log` facade and from there to `tracing`.
pub struct ProgramLog(EbpfLogger<&'static dyn Log>);

impl ProgramLog {
    /// Finds the log through the id of a program that writes to it.
    pub(super) fn of_program(program: &OwnedFd) -> io::Result<Self> {
        let path = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
        let info = fs::read_to_string(path)?;
        let id = info
            .lines()
            .find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok());
        let id = id.ok_or_else(|| io::Error::other("the kernel does not tell program ids"))?;
        EbpfLogger::init_from_id(id)
            .map(Self)
            .map_err(io::Error::other)
    }

    /// Passes on what has been logged since the last call.
    pub fn flush(&mut self) {
        self.0.flush();
    }
}

impl AsFd for ProgramLog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::fmt::Debug for ProgramLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProgramLog").finish_non_exhaustive()
    }
}
