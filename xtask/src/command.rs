//! Running other programs: with the user's own environment, and with an error that repeats the
//! command line.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};

use anyhow::{Context as _, Result, bail};

use crate::environment;

/// A command in the environment that the user had before cargo started this task.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    environment::restore(&mut command);
    command
}

/// The cargo that runs this task, for the host's toolchain.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs to the end; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("`{}`: {status}", shown(command));
    }
    Ok(())
}

/// Runs to the end and hands back how it went.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus> {
    command
        .status()
        .with_context(|| format!("starting `{}`", shown(command)))
}

/// Runs to the end and hands back standard output; anything but success is an error with what was
/// written to standard error.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting `{}`", shown(command)))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("`{}`: {}: {}", shown(command), output.status, words.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("output of `{}`", shown(command)))
}

/// Runs to the end, passes both outputs on as they come, and calls `see` with every line of them.
pub(crate) fn watch(command: &mut Command, mut see: impl FnMut(&str)) -> Result<ExitStatus> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting `{}`", shown(command)))?;
    let (lines, seen) = channel();
    let stdout = child.stdout.take().context("no standard output")?;
    let stderr = child.stderr.take().context("no standard error")?;
    let other = lines.clone();
    std::thread::spawn(move || pass_on(stderr, std::io::stderr(), &other));
    std::thread::spawn(move || pass_on(stdout, std::io::stdout(), &lines));
    for line in seen {
        see(&line);
    }
    child
        .wait()
        .with_context(|| format!("waiting for `{}`", shown(command)))
}

/// Copies `from` to `to`, and each line to `lines`, until its end.
fn pass_on(from: impl Read, mut to: impl Write, lines: &Sender<String>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while matches!(from.read_until(b'\n', &mut line), Ok(length) if length > 0) {
        // A closed terminal must not end the tests; nobody is left to be told.
        let _ = to.write_all(&line);
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if lines.send(text).is_err() {
            return;
        }
        line.clear();
    }
}

/// The command line, for messages.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The first executable file of that name in `PATH`; a name with a slash is looked up as a path.
pub(crate) fn find_program(name: impl AsRef<Path>) -> Option<PathBuf> {
    let name = name.as_ref();
    if name.components().count() > 1 {
        return is_executable(name).then(|| name.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Whether this process is root (its /proc entry belongs to its effective user).
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|data| data.uid() == 0)
}

/// The words that must precede a command line to run it as root: none for root, `sudo` where there
/// is one. `None`: there is no way.
pub(crate) fn root_prefix() -> Option<&'static [&'static str]> {
    if is_root() {
        Some(&[])
    } else if find_program("sudo").is_some() {
        Some(&["sudo"])
    } else {
        None
    }
}

/// `words` as root, see [`root_prefix`].
pub(crate) fn as_root<S: AsRef<OsStr>>(words: &[S]) -> Option<Command> {
    let prefix = root_prefix()?.iter().map(OsStr::new);
    let mut all = prefix.chain(words.iter().map(AsRef::as_ref));
    let mut command = command(all.next()?);
    command.args(all);
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_repeats_the_command_line_and_its_words() {
        let error = capture(command("sh").args(["-c", "echo broken >&2; exit 3"])).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("echo broken"), "{message}");
        assert!(message.ends_with("exit status: 3: broken"), "{message}");
    }

    #[test]
    fn both_outputs_are_watched() {
        let mut lines = Vec::new();
        let mut script = command("sh");
        script.args(["-c", "echo out; echo err >&2; exit 7"]);
        let status = watch(&mut script, |line| lines.push(line.to_owned())).unwrap();
        lines.sort();
        assert_eq!(lines, ["err", "out"]);
        assert_eq!(status.code(), Some(7));
    }

    #[test]
    fn programs_are_found_by_name_and_by_path() {
        let shell = find_program("sh").unwrap();
        assert!(shell.is_absolute());
        assert_eq!(find_program(&shell), Some(shell));
        assert_eq!(find_program("no-such-program-here"), None);
        assert_eq!(find_program("/etc/passwd"), None);
    }
}
