//! The task `run`: from a fresh checkout to the report of one recorded program.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result};

use crate::build;
use crate::command::{command, find_program, is_root, run as run_command, shown, status};
use crate::progress::{note, nothing_to_do};
use crate::workspace::Workspace;

/// Builds, records `program` and prints the report to standard error. The exit status is the
/// program's.
pub(crate) fn run(workspace: &Workspace, program: &[OsString]) -> Result<ExitCode> {
    build::build(workspace, true)?;
    survive_ctrl_c()?;
    let binary = workspace.binary(true);
    let file = trace_file(program.first().context("no program")?);
    let status = record(&binary, &file, program)?;
    if file.is_file() {
        report(&binary, &file)?;
    } else {
        note("nothing was recorded");
    }
    Ok(exit_code(status))
}

/// Ctrl-C goes to the whole foreground group: the recorded program ends by it (or not), this process
/// must not. The handler is not inherited by the programs that are started from here.
fn survive_ctrl_c() -> Result<()> {
    signal_hook::flag::register(
        signal_hook::consts::SIGINT,
        Arc::new(AtomicBool::new(false)),
    )
    .context("catching Ctrl-C")?;
    Ok(())
}

/// heaptrack's pattern, in the current directory. The number is this process's: the program's is not
/// known before it starts.
fn trace_file(program: &OsStr) -> PathBuf {
    let name = Path::new(program)
        .file_name()
        .unwrap_or(program)
        .to_string_lossy()
        .into_owned();
    PathBuf::from(format!("heaptrack.{name}.{}.zst", std::process::id()))
}

fn record(binary: &Path, file: &Path, program: &[OsString]) -> Result<ExitStatus> {
    let mut record = privileged(binary);
    record.arg("-o").arg(file).arg("--").args(program);
    nothing_to_do("recording", shown(&record));
    status(&mut record)
}

/// `binary` with the right to load BPF programs: under sudo, in the user's environment, unless the user
/// is root. Without sudo it is started as it is; it says what it lacks.
fn privileged(binary: &Path) -> Command {
    if is_root() || find_program("sudo").is_none() {
        return command(binary);
    }
    let mut sudo = command("sudo");
    sudo.arg("--preserve-env").arg("env");
    // sudo replaces PATH and the linker's variables even where it preserves the rest.
    for name in ["PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"] {
        let set = sudo
            .get_envs()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value);
        let value = match set {
            Some(value) => value.map(OsStr::to_owned),
            None => std::env::var_os(name),
        };
        if let Some(value) = value {
            let mut assignment = OsString::from(name);
            assignment.push("=");
            assignment.push(value);
            sudo.arg(assignment);
        }
    }
    sudo.arg(binary);
    sudo
}

fn report(binary: &Path, file: &Path) -> Result<()> {
    let mut report = command(binary);
    report.arg("report").arg(file).stdout(std::io::stderr());
    nothing_to_do("report", shown(&report));
    run_command(&mut report)
}

/// The status as a shell tells it: 128 + signal for a program that was killed.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| Some(128 + status.signal()?))
        .unwrap_or(1);
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_is_named_after_the_program() {
        let file = trace_file(OsStr::new("/usr/bin/ls"))
            .to_string_lossy()
            .into_owned();
        assert_eq!(file, format!("heaptrack.ls.{}.zst", std::process::id()));
    }

    #[test]
    fn a_killed_program_exits_as_in_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(9)), ExitCode::from(137));
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), ExitCode::from(3));
    }
}
