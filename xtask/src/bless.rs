//! The task `bless`: writing the golden files anew.
//!
//! A golden file that is missing or differs fails its test; only under this variable does the test
//! write what it found. What changed is for a person to read before it is committed.

use anyhow::Result;

use crate::build;
use crate::command::{cargo, run};
use crate::progress::{note, step};
use crate::workspace::Workspace;

/// Tests that compare with golden files write them when this is `1`.
const VARIABLE: &str = "HTRACE_BLESS";

pub(crate) fn bless(workspace: &Workspace) -> Result<()> {
    build::build(workspace, true)?;
    step("tests, writing their golden files", || {
        run(cargo()
            .current_dir(&workspace.root)
            .args(["test", "--workspace", "--no-fail-fast"])
            .env(VARIABLE, "1"))
    })?;
    note("`git diff` shows what changed");
    Ok(())
}
