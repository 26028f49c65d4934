//! Building: the BPF programs with their own compiler, and `htrace-bpf` with them inside.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command::{cargo, command, run};
use crate::environment::forget_toolchain;
use crate::progress::{note, step};
use crate::setup::{self, BPF_TARGET, BpfCompiler, Toolchain};
use crate::workspace::Workspace;

/// The task `build-ebpf`.
pub(crate) fn build_ebpf(workspace: &Workspace) -> Result<()> {
    let toolchain = setup::toolchain(workspace)?;
    step(
        format_args!("BPF programs, with {}", toolchain.compiler.name),
        || {
            let llvm = expose_llvm(workspace, &toolchain.compiler)?;
            run(&mut compile_bpf(workspace, &toolchain, &llvm))?;
            publish(workspace)
        },
    )
}

/// The task `build`: everything that `htrace-bpf` is made of.
pub(crate) fn build(workspace: &Workspace, release: bool) -> Result<()> {
    build_ebpf(workspace)?;
    let binary = workspace.binary(release);
    step(
        format_args!("htrace-bpf, to {}", workspace.display(&binary)),
        || {
            let mut build = cargo();
            build
                .current_dir(&workspace.root)
                .args(["build", "--package", "htrace-bpf"]);
            if release {
                build.arg("--release");
            }
            run(&mut build)
        },
    )
}

/// Makes a directory that holds the compiler's LLVM and no other: bpf-linker loads the first
/// `libLLVM*` that it sees in the directories of `LD_LIBRARY_PATH`.
fn expose_llvm(workspace: &Workspace, compiler: &BpfCompiler) -> Result<std::path::PathBuf> {
    let dir = workspace.tools().join("llvm");
    let link = dir.join("libLLVM.so");
    std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    if std::fs::read_link(&link).is_ok_and(|now| now == compiler.llvm) {
        return Ok(dir);
    }
    match std::fs::remove_file(&link) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("removing {}", link.display()));
        }
        _ => {}
    }
    std::os::unix::fs::symlink(&compiler.llvm, &link)
        .with_context(|| format!("linking {}", link.display()))?;
    Ok(dir)
}

/// The command line that compiles the BPF programs.
fn compile_bpf(workspace: &Workspace, toolchain: &Toolchain, llvm: &Path) -> Command {
    let mut cargo = toolchain
        .compiler
        .cargo
        .as_ref()
        .map_or_else(cargo, command);
    forget_toolchain(&mut cargo);
    cargo
        .current_dir(&workspace.root)
        .args([
            "build",
            "--release",
            "--package",
            "htrace-ebpf",
            "--bin",
            "htrace-probes",
        ])
        .args(["--features", "bpf", "--target", BPF_TARGET, "--target-dir"])
        .arg(workspace.bpf_target())
        .env("RUSTC", &toolchain.compiler.rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(&toolchain.linker))
        .env("LD_LIBRARY_PATH", llvm);
    // The profile `release` is made for the host: here the linker does the work of LTO.
    cargo
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "2")
        .env("CARGO_PROFILE_RELEASE_LTO", "off");
    if toolchain.compiler.build_core {
        cargo.args(["-Z", "build-std=core"]);
    }
    cargo
}

/// Flags in the form that allows blanks in paths.
fn rustflags(linker: &Path) -> String {
    let linker = format!("-Clinker={}", linker.display());
    [
        "--cfg=bpf_target_arch=\"x86_64\"",
        &linker,
        "-Clink-arg=--btf",
    ]
    .join("\x1f")
}

/// Copies the object to where `userspace` looks for it, unless the same bytes are there: a new time
/// stamp alone would rebuild `htrace-bpf`.
fn publish(workspace: &Workspace) -> Result<()> {
    let built = workspace
        .bpf_target()
        .join(BPF_TARGET)
        .join("release/htrace-probes");
    let bytes = std::fs::read(&built).with_context(|| format!("reading {}", built.display()))?;
    let object = workspace.bpf_object();
    let verdict = if write_if_changed(&object, &bytes)? {
        "written"
    } else {
        "unchanged"
    };
    note(format_args!(
        "{}: {verdict}, {} bytes",
        workspace.display(&object),
        bytes.len()
    ));
    Ok(())
}

/// Whether it was written. The file is replaced whole, so that no reader sees half of it.
fn write_if_changed(file: &Path, bytes: &[u8]) -> Result<bool> {
    if std::fs::read(file).is_ok_and(|now| now == bytes) {
        return Ok(false);
    }
    let new = file.with_extension("new");
    std::fs::write(&new, bytes).with_context(|| format!("writing {}", new.display()))?;
    std::fs::rename(&new, file).with_context(|| format!("writing {}", file.display()))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bytes_are_not_written_again() {
        let dir = std::env::temp_dir().join(format!("xtask-object-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("object.o");
        assert!(write_if_changed(&file, b"one").unwrap());
        let first = file.metadata().unwrap().modified().unwrap();
        assert!(!write_if_changed(&file, b"one").unwrap());
        assert_eq!(file.metadata().unwrap().modified().unwrap(), first);
        assert!(write_if_changed(&file, b"two").unwrap());
        assert_eq!(std::fs::read(&file).unwrap(), b"two");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn flags_survive_blanks() {
        let flags = rustflags(Path::new("/my tools/bpf-linker"));
        assert!(
            flags
                .split('\x1f')
                .any(|flag| flag == "-Clinker=/my tools/bpf-linker")
        );
    }
}
