//! The guest's first file system: busybox, a few kernel modules, and the script to run.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::kernel::Kernel;
use crate::command::{capture, command, find_program, run};

/// What mounting the host's file system needs; modprobe knows what these need in turn.
const MODULES: &[&str] = &["virtio_pci", "virtiofs", "overlay"];

/// Builds `dir/initramfs`.
pub(super) fn build(dir: &Path, kernel: &Kernel, script: &str) -> Result<PathBuf> {
    let tree = dir.join("tree");
    for part in ["bin", "modules"] {
        let part = tree.join(part);
        std::fs::create_dir_all(&part).with_context(|| format!("making {}", part.display()))?;
    }
    let busybox = find_program("busybox").context("no busybox")?;
    std::fs::copy(busybox, tree.join("bin/busybox")).context("copying busybox")?;
    add_modules(&tree.join("modules"), kernel)?;
    std::fs::write(tree.join("command"), script).context("writing the script")?;
    let init = tree.join("init");
    std::fs::write(&init, include_str!("../../vm/init.sh")).context("writing init")?;
    std::fs::set_permissions(&init, std::fs::Permissions::from_mode(0o755))?;
    pack(&tree, &dir.join("initramfs"))
}

/// Copies the modules, uncompressed, and writes the order in which they are to be loaded.
fn add_modules(to: &Path, kernel: &Kernel) -> Result<()> {
    let root = base(kernel);
    run(command("depmod")
        .arg("--basedir")
        .arg(&root)
        .arg(&kernel.version))?;
    let list = capture(
        command("modprobe")
            .arg("--dirname")
            .arg(&root)
            .args(["--set-version", &kernel.version, "--show-depends", "--all"])
            .args(MODULES),
    )?;
    let mut order = String::new();
    for file in in_order(&list) {
        order.push_str(&copy_module(file, to)?);
        order.push('\n');
    }
    std::fs::write(to.join("order"), order).context("writing the modules' order")
}

/// The directory whose `lib/modules` holds the kernel's modules.
fn base(kernel: &Kernel) -> PathBuf {
    let usr = kernel.root.join("usr");
    if usr.join("lib/modules").is_dir() {
        usr
    } else {
        kernel.root.clone()
    }
}

/// The files in the lines `insmod FILE` of `modprobe --show-depends`, each once. Built-in modules have
/// no such line.
fn in_order(list: &str) -> Vec<&Path> {
    let mut files = Vec::new();
    for line in list.lines() {
        let file = line
            .strip_prefix("insmod ")
            .map(|file| Path::new(file.trim()));
        if let Some(file) = file.filter(|file| !files.contains(file)) {
            files.push(file);
        }
    }
    files
}

/// Copies one module and hands back the name of the copy.
fn copy_module(file: &Path, to: &Path) -> Result<String> {
    let name = file
        .file_name()
        .context("a module without a name")?
        .to_string_lossy();
    let Some(plain) = name.strip_suffix(".xz") else {
        std::fs::copy(file, to.join(&*name)).with_context(|| format!("copying {name}"))?;
        return Ok(name.into_owned());
    };
    let copy = std::fs::File::create(to.join(plain)).with_context(|| format!("making {plain}"))?;
    run(command("xz")
        .args(["--decompress", "--stdout"])
        .arg(file)
        .stdout(copy))?;
    Ok(plain.to_owned())
}

/// Packs `tree` as the kernel wants it. Uncompressed: it is read once, from memory.
fn pack(tree: &Path, to: &Path) -> Result<PathBuf> {
    let archive = std::fs::File::create(to).with_context(|| format!("making {}", to.display()))?;
    run(command("sh")
        .current_dir(tree)
        .args(["-c", "find . | busybox cpio -o -H newc 2>/dev/null"])
        .stdout(archive))?;
    Ok(to.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_loaded_once_and_in_order() {
        let list = "insmod /k/virtio.ko \ninsmod /k/virtio_pci.ko \nbuiltin fuse\n\
                    insmod /k/virtio.ko \ninsmod /k/virtiofs.ko \n";
        let files = ["/k/virtio.ko", "/k/virtio_pci.ko", "/k/virtiofs.ko"].map(Path::new);
        assert_eq!(in_order(list), files);
    }
}
