//! Packages of any of Debian's suites, without touching the machine's own: apt works on lists and a
//! cache of our own, with the mirror and keys that the machine is configured for, and packages are
//! unpacked, not installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command::{capture, command, run};

/// apt with lists and a cache of its own.
#[derive(Debug)]
pub(crate) struct PrivateApt {
    dir: PathBuf,
}

impl PrivateApt {
    /// Works below `dir`.
    pub(crate) fn new(dir: &Path, suite: &str) -> Result<Self> {
        let dir = dir.join("apt");
        for part in ["lists/partial", "cache/archives/partial", "packages"] {
            std::fs::create_dir_all(dir.join(part))
                .with_context(|| format!("making {}", dir.join(part).display()))?;
        }
        let mirror = mirror()?;
        std::fs::write(dir.join("status"), "")?;
        std::fs::write(
            dir.join("sources.list"),
            format!(
                "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
                 {mirror} {suite} main\n"
            ),
        )?;
        Ok(Self { dir })
    }

    fn command(&self, program: &str) -> Command {
        let mut apt = command(program);
        let dir = self.dir.display();
        for option in [
            format!("Dir::State::lists={dir}/lists"),
            format!("Dir::State::status={dir}/status"),
            format!("Dir::Etc::sourcelist={dir}/sources.list"),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::Cache={dir}/cache"),
            "Acquire::Languages=none".to_owned(),
            "APT::Sandbox::User=root".to_owned(),
        ] {
            apt.args(["-o", &option]);
        }
        apt
    }

    /// Fetches the list of packages.
    pub(crate) fn update(&self) -> Result<()> {
        run(self
            .command("apt-get")
            .args(["update", "--quiet"])
            .stdout(std::io::stderr()))
    }

    /// What `apt-cache depends` prints of a package and all that it needs.
    pub(crate) fn depends(&self, package: &str) -> Result<String> {
        capture(self.command("apt-cache").args([
            "depends",
            "--recurse",
            "--no-recommends",
            "--no-suggests",
            "--no-conflicts",
            "--no-breaks",
            "--no-replaces",
            "--no-enhances",
            package,
        ]))
    }

    /// Downloads packages and unpacks them below `root`.
    pub(crate) fn unpack(&self, names: &[&str], root: &Path) -> Result<()> {
        let packages = self.dir.join("packages");
        let mut download = self.command("apt-get");
        download.current_dir(&packages).arg("download").args(names);
        run(download.stdout(std::io::stderr()))?;
        for package in std::fs::read_dir(&packages)? {
            run(command("dpkg")
                .arg("--extract")
                .arg(package?.path())
                .arg(root))?;
        }
        Ok(())
    }
}

/// The mirror that this machine installs from.
fn mirror() -> Result<String> {
    let addresses = capture(command("apt-get").args(["update", "--print-uris"]))?;
    first_mirror(&addresses).context("apt is configured for no mirror of Debian")
}

/// The first address in apt's list, up to its `/dists/`; not that of security updates, which holds no
/// whole suite.
fn first_mirror(addresses: &str) -> Option<String> {
    let site = |line: &str| Some(line.strip_prefix('\'')?.split_once("/dists/")?.0.to_owned());
    addresses
        .lines()
        .filter_map(site)
        .find(|site| !site.contains("security"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_first_that_holds_suites() {
        let addresses = "'http://a.example/debian-security/dists/x/InRelease' file 0\n\
                         'http://b.example/debian/dists/x/InRelease' file 0\n";
        assert_eq!(
            first_mirror(addresses).as_deref(),
            Some("http://b.example/debian")
        );
        assert_eq!(first_mirror(""), None);
    }
}
