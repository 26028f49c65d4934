//! The task `dist`: one archive with the stripped binary, its licences and its documentation.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::build;
use crate::command::{command, run};
use crate::progress::{note, step};
use crate::workspace::Workspace;

/// What goes beside the binary, from the root of the checkout.
const DOCUMENTS: &[&str] = &["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

pub(crate) fn dist(workspace: &Workspace) -> Result<()> {
    build::build(workspace, true)?;
    let name = concat!("htrace-bpf-", env!("CARGO_PKG_VERSION"), "-x86_64-linux");
    let all = workspace.target.join("dist");
    let dir = all.join(name);
    step(format_args!("archive {name}.tar.gz"), || {
        gather(workspace, &dir)?;
        pack(&all, name)?;
        note(workspace.display(&all.join(format!("{name}.tar.gz"))));
        Ok(())
    })
}

fn gather(workspace: &Workspace, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    for document in DOCUMENTS {
        std::fs::copy(workspace.root.join(document), dir.join(document))
            .with_context(|| format!("copying {document}"))?;
    }
    // The BPF object lies in the read-only data, which stripping does not touch.
    run(command("strip")
        .arg("-o")
        .arg(dir.join("htrace-bpf"))
        .arg(workspace.binary(true)))
}

/// Owners, order and times are fixed, so that the same binary makes the same archive.
fn pack(all: &Path, name: &str) -> Result<()> {
    run(command("tar")
        .current_dir(all)
        .args([
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--mtime=@0",
        ])
        .args([
            "--create",
            "--gzip",
            "--file",
            &format!("{name}.tar.gz"),
            name,
        ]))
}
