//! Where a benchmark's files lie, and how its programs are compiled.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::command::{command, run};
use crate::workspace::Workspace;

/// A directory below cargo's target directory, and the program that is measured.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) dir: PathBuf,
    pub(super) htrace: PathBuf,
}

impl Place {
    /// Makes the directory.
    pub(super) fn make(workspace: &Workspace, directory: &str) -> Result<Self> {
        let dir = workspace.target.join(directory);
        std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        Ok(Self {
            dir,
            htrace: workspace.binary(true),
        })
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Where a program writes what it has measured.
    pub(super) fn result(&self) -> PathBuf {
        self.file("result")
    }

    /// Compiles a source of the directory `xtask/bench` to a program of the same name.
    pub(super) fn compile(
        &self,
        workspace: &Workspace,
        compiler: &str,
        source: &str,
        options: &[&str],
    ) -> Result<()> {
        let source = workspace.root.join("xtask/bench").join(source);
        let name = source.file_stem().context("a source without a name")?;
        run(command(compiler)
            .args(["-O2", "-Wall"])
            .args(options)
            .arg("-o")
            .arg(self.dir.join(name))
            .arg(&source))
    }
}
