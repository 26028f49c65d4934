//! The check that dependencies point only the way that ARCHITECTURE.md draws them.
//!
//! Two looks: at the dependencies that the manifests name ([`packages`]), and at which modules of
//! `userspace` name `aya` ([`sources`]). Dependencies for tests and build scripts count too.

mod packages;
mod sources;

use anyhow::{Context as _, Result, bail};

use crate::command::{capture, cargo};
use crate::progress::{note, step};
use crate::workspace::Workspace;

/// The task `check-arrows`.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    step("dependency arrows", || {
        let mut faults = packages::faults(&metadata(workspace)?)?;
        faults.extend(sources::faults(&workspace.root.join("userspace/src"))?);
        for fault in &faults {
            note(fault);
        }
        if !faults.is_empty() {
            bail!("{} against ARCHITECTURE.md", faults.len());
        }
        Ok(())
    })
}

fn metadata(workspace: &Workspace) -> Result<serde_json::Value> {
    let text = capture(cargo().current_dir(&workspace.root).args([
        "metadata",
        "--no-deps",
        "--format-version=1",
        "--offline",
    ]))?;
    serde_json::from_str(&text).context("reading `cargo metadata`")
}
