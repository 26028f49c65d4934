//! The task `vm`: the end-to-end tests on another kernel.
//!
//! One of Debian's kernels is booted under qemu, in software, on a view of this machine's own file
//! system: the same binaries at the same paths, with nothing to copy and nothing to install in the guest. What
//! the guest writes stays in its memory.

mod initramfs;
mod kernel;
mod machine;
mod tests;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::command::is_root;
use crate::progress::{note, step};
use crate::setup;
use crate::workspace::Workspace;
pub(crate) use tests::suite;

/// What booting needs.
const PACKAGES: &[&str] = &["busybox-static", "kmod", "qemu-system-x86"];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The kernel: 5.10, 6.1, 6.12 or 7.2.
    #[arg(value_parser = kernel::parse)]
    kernel: kernel::Release,
    /// More words for the kernel's command line, such as `preempt=full`.
    #[arg(long, default_value = "")]
    append: String,
    /// After how many minutes a guest counts as hung.
    #[arg(long, default_value_t = 60)]
    minutes: u32,
    /// What to run in the guest, after `--`, by its shell. Nothing: the end-to-end tests.
    #[arg(last = true)]
    command: Vec<String>,
}

/// The task `vm`. The exit status is the command's.
pub(crate) fn vm(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let script = if options.command.is_empty() {
        setup::setup(workspace, true)?;
        crate::build::build(workspace, true)?;
        tests::script(workspace, &[])?
    } else {
        command_script(&options.command)
    };
    let guest = Guest {
        release: options.kernel,
        append: &options.append,
        minutes: options.minutes,
    };
    let status = guest.run(workspace, &script, |_| {})?;
    note(format_args!(
        "the command in the guest exited with {status}"
    ));
    Ok(ExitCode::from(status))
}

/// A shell script of the words given on the command line.
fn command_script(words: &[String]) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("export PATH='{path}' HOME=/root\n{}\n", words.join(" "))
}

/// A machine that can be booted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guest<'a> {
    pub(crate) release: kernel::Release,
    pub(crate) append: &'a str,
    pub(crate) minutes: u32,
}

impl Guest<'_> {
    /// Boots, runs `script`, and hands back its exit status. `see` is shown every line.
    pub(crate) fn run(
        self,
        workspace: &Workspace,
        script: &str,
        see: impl FnMut(&str),
    ) -> Result<u8> {
        if !is_root() {
            bail!("the guest sees this machine's files as root: run this as root");
        }
        setup::packages("programs that booting a guest needs", PACKAGES)?;
        let dir = workspace.target.join("vm").join(self.release.number);
        let kernel = kernel::fetch(self.release, &dir)?;
        let initramfs = initramfs::build(&dir, &kernel, script)?;
        step(format_args!("Linux {}", kernel.version), || {
            machine::boot(&dir, &kernel.image, &initramfs, self, see)
        })
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn the_command_is_for_the_guests_shell() {
        let script = command_script(&["uname".into(), "-r".into()]);
        assert!(script.ends_with("\nuname -r\n"), "{script}");
    }
}
