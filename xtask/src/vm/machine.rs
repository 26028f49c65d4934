//! Running qemu, and the daemon that shows the guest this machine's files.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::Guest;
use crate::command::{command, find_program, watch};

/// Boots and hands back the status that the guest's script exited with.
pub(super) fn boot(
    dir: &Path,
    image: &Path,
    initramfs: &Path,
    guest: Guest<'_>,
    mut see: impl FnMut(&str),
) -> Result<u8> {
    let files = FileDaemon::start(dir)?;
    let mut exit = None;
    let mut qemu = qemu(&files.socket, image, initramfs, guest);
    let status = watch(qemu.stdin(Stdio::null()), |line| {
        exit = exit.or_else(|| exit_status(line));
        see(line);
    })?;
    match exit {
        Some(exit) => Ok(exit),
        // Of coreutils' timeout.
        None if status.code() == Some(124) => bail!("no end after {} minutes", guest.minutes),
        None => bail!("the guest died before its script ended ({status})"),
    }
}

/// The status in the line that the guest's init prints last. The serial console may put control
/// characters before it.
fn exit_status(line: &str) -> Option<u8> {
    line.split_once("vm-exit: ")?.1.trim().parse().ok()
}

fn qemu(socket: &Path, image: &Path, initramfs: &Path, guest: Guest<'_>) -> Command {
    let mut qemu = command("timeout");
    qemu.arg(format!("{}m", guest.minutes))
        .arg("qemu-system-x86_64");
    qemu.args(["-accel", "tcg,thread=multi", "-smp", "2", "-m", "2G"]);
    // The file daemon reads and writes the guest's memory.
    qemu.args(["-object", "memory-backend-memfd,id=memory,size=2G,share=on"]);
    qemu.args(["-machine", "q35,memory-backend=memory"]);
    qemu.arg("-chardev")
        .arg(format!("socket,id=files,path={}", socket.display()));
    qemu.args(["-device", "vhost-user-fs-pci,chardev=files,tag=host"]);
    qemu.args([
        "-nodefaults",
        "-display",
        "none",
        "-no-reboot",
        "-serial",
        "stdio",
    ]);
    qemu.arg("-kernel").arg(image).arg("-initrd").arg(initramfs);
    // `panic=-1` with `-no-reboot`: a guest that panics ends qemu at once.
    qemu.arg("-append")
        .arg(format!("console=ttyS0 quiet panic=-1 {}", guest.append));
    qemu
}

/// virtiofsd, ended with this value.
#[derive(Debug)]
struct FileDaemon {
    process: Child,
    socket: PathBuf,
}

impl FileDaemon {
    fn start(dir: &Path) -> Result<Self> {
        let socket = dir.join("files.socket");
        let _ = std::fs::remove_file(&socket); // of an earlier run
        let log = std::fs::File::create(dir.join("virtiofsd.log")).context("making a log")?;
        let process = command(virtiofsd()?)
            .arg(format!("--socket-path={}", socket.display()))
            .args([
                "-o",
                "source=/",
                "-o",
                "cache=always",
                "-o",
                "sandbox=chroot",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("starting virtiofsd")?;
        let mut daemon = Self { process, socket };
        daemon.wait_for_socket()?;
        Ok(daemon)
    }

    /// virtiofsd has no other way to say that it listens.
    fn wait_for_socket(&mut self) -> Result<()> {
        for _ in 0..200 {
            if self.socket.exists() {
                return Ok(());
            }
            if let Some(status) = self.process.try_wait()? {
                bail!("virtiofsd: {status}; see virtiofsd.log beside the kernel");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("virtiofsd does not listen")
    }
}

impl Drop for FileDaemon {
    fn drop(&mut self) {
        // It ends by itself when qemu does; this is for the errors before that.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The daemon is no command for users, so it lies outside of `PATH`.
fn virtiofsd() -> Result<PathBuf> {
    let places = [
        "/usr/libexec/virtiofsd",
        "/usr/lib/qemu/virtiofsd",
        "virtiofsd",
    ];
    places
        .iter()
        .find_map(find_program)
        .context("no virtiofsd (Debian 13 and later: apt-get install virtiofsd)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_tells_its_exit_status() {
        assert_eq!(exit_status("vm-exit: 0"), Some(0));
        assert_eq!(exit_status("\u{1b}[2Jvm-exit: 101\r"), Some(101));
        assert_eq!(exit_status("vm-exit: "), None);
        assert_eq!(exit_status("exit: 3"), None);
    }
}
