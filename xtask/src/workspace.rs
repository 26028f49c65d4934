//! Where things lie: the checkout, cargo's target directory, and what the tasks leave in them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The places of this checkout. All paths are absolute.
#[derive(Debug, Clone)]
pub(crate) struct Workspace {
    /// The directory of the workspace's Cargo.toml.
    pub(crate) root: PathBuf,
    /// Where cargo puts what it builds for the host.
    pub(crate) target: PathBuf,
}

impl Workspace {
    /// Finds the checkout through cargo's environment and the target directory through the place of
    /// this very executable (`TARGET/debug/xtask`), which is right whichever way it was configured.
    pub(crate) fn locate() -> Result<Self> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .parent()
            .context("the crate xtask has no directory above it")?;
        let executable = std::env::current_exe().context("finding the xtask executable")?;
        let target = executable
            .ancestors()
            .nth(2)
            .context("xtask lies outside of a target")?;
        Ok(Self {
            root: root.to_owned(),
            target: target.to_owned(),
        })
    }

    /// Cargo's target directory of the BPF build. Always inside the checkout, since the build
    /// script of `userspace` looks for the object there.
    pub(crate) fn bpf_target(&self) -> PathBuf {
        self.root.join("target/bpf")
    }

    /// The finished BPF object, which `userspace` embeds.
    pub(crate) fn bpf_object(&self) -> PathBuf {
        self.bpf_target().join("htrace-probes.o")
    }

    /// Where setup installs tools of its own, so that nothing of the user's is changed.
    pub(crate) fn tools(&self) -> PathBuf {
        self.root.join("target/tools")
    }

    /// The built `htrace-bpf`.
    pub(crate) fn binary(&self, release: bool) -> PathBuf {
        let profile = if release { "release" } else { "debug" };
        self.target.join(profile).join("htrace-bpf")
    }

    /// `path` as the user would type it from the checkout.
    pub(crate) fn display<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }
}
