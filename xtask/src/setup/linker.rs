//! bpf-linker, which turns the bitcode of the BPF programs into one object.
//!
//! The version is pinned: 0.10.4 loads rustc's own LLVM at run time, later ones want an LLVM of the
//! system's to link with.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::version::Version;
use crate::command::{capture, cargo, command, find_program, run};
use crate::progress::{note, nothing_to_do, step};
use crate::workspace::Workspace;

const VERSION: Version = Version(0, 10, 4);

/// Finds bpf-linker in `target/tools` or in `PATH`, or compiles it into `target/tools`.
pub(crate) fn ensure(workspace: &Workspace) -> Result<PathBuf> {
    let own = workspace.tools().join("bin/bpf-linker");
    if let Some(linker) = find(&own) {
        let place = workspace.display(&linker).to_string();
        nothing_to_do(format_args!("bpf-linker {VERSION}"), place);
        return Ok(linker);
    }
    step(
        format_args!("bpf-linker {VERSION}: compiling it, about 2 minutes"),
        || install(workspace),
    )?;
    if !is_right(&own) {
        bail!("`cargo install` left no working {}", own.display());
    }
    Ok(own)
}

fn find(own: &Path) -> Option<PathBuf> {
    let candidates = [Some(own.to_owned()), find_program("bpf-linker")];
    candidates
        .into_iter()
        .flatten()
        .find(|linker| is_right(linker))
}

fn is_right(linker: &Path) -> bool {
    linker.is_file()
        && capture(command(linker).arg("--version"))
            .is_ok_and(|words| version(&words) == Some(VERSION))
}

/// The version in `bpf-linker 0.10.4`.
fn version(words: &str) -> Option<Version> {
    Version::parse(words.trim().strip_prefix("bpf-linker ")?)
}

fn install(workspace: &Workspace) -> Result<()> {
    note(format_args!(
        "into {}",
        workspace.display(&workspace.tools())
    ));
    let mut install = cargo();
    crate::environment::forget_flags(&mut install);
    install
        .args([
            "install",
            "bpf-linker",
            "--locked",
            "--force",
            "--version",
            &VERSION.to_string(),
        ])
        .arg("--root")
        .arg(workspace.tools())
        .arg("--target-dir")
        .arg(workspace.tools().join("build"));
    run(&mut install)?;
    // What was compiled on the way is 200 MB that no later build uses.
    let _ = std::fs::remove_dir_all(workspace.tools().join("build"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linker_tells_its_version() {
        assert_eq!(version("bpf-linker 0.10.4\n"), Some(VERSION));
        assert_ne!(version("bpf-linker 0.11.0\n"), Some(VERSION));
        assert_eq!(version("ld 2.40\n"), None);
    }
}
