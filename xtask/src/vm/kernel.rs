//! Debian's kernels: which there are, and fetching one without touching the machine's own packages.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::progress::{nothing_to_do, step};
use crate::setup::private_apt::PrivateApt;

/// A kernel that Debian has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    /// As the user names it.
    pub(crate) number: &'static str,
    /// The suite that holds it.
    suite: &'static str,
}

const RELEASES: &[Release] = &[
    Release {
        number: "5.10",
        suite: "bullseye",
    },
    Release {
        number: "6.1",
        suite: "bookworm",
    },
    Release {
        number: "6.12",
        suite: "trixie",
    },
    Release {
        number: "7.2",
        suite: "sid",
    },
];

/// The package that depends on the suite's newest kernel.
const PACKAGE: &str = "linux-image-cloud-amd64";

/// A kernel on disk.
#[derive(Debug)]
pub(super) struct Kernel {
    /// As `uname -r` prints it.
    pub(super) version: String,
    /// What qemu boots.
    pub(super) image: PathBuf,
    /// The directory that its packages are unpacked in.
    pub(super) root: PathBuf,
}

/// Reads the user's name of a kernel.
pub(crate) fn parse(number: &str) -> Result<Release, String> {
    let found = RELEASES
        .iter()
        .find(|release| release.number == number)
        .copied();
    found.ok_or_else(|| {
        let all = RELEASES
            .iter()
            .map(|release| release.number)
            .collect::<Vec<_>>();
        format!("there are {}", all.join(", "))
    })
}

/// The kernel as unpacked in `dir`; fetched if it is not there.
pub(super) fn fetch(release: Release, dir: &Path) -> Result<Kernel> {
    let root = dir.join("root");
    if let Ok(kernel) = unpacked(&root) {
        nothing_to_do(format_args!("kernel {}", release.number), &kernel.version);
        return Ok(kernel);
    }
    step(
        format_args!("kernel {} from Debian's {}", release.number, release.suite),
        || {
            let apt = PrivateApt::new(dir, release.suite)?;
            apt.update()?;
            let tree = apt.depends(PACKAGE)?;
            apt.unpack(&kernel_packages(&tree), &root)?;
            unpacked(&root)
        },
    )
}

/// Finds the kernel in an unpacked tree.
fn unpacked(root: &Path) -> Result<Kernel> {
    // Debian's /lib is a link to /usr/lib, and newer packages unpack to the latter.
    for modules in [root.join("usr/lib/modules"), root.join("lib/modules")] {
        for entry in std::fs::read_dir(&modules).into_iter().flatten() {
            let version = entry?.file_name().to_string_lossy().into_owned();
            let places = [
                modules.join(&version).join("vmlinuz"),
                root.join(format!("boot/vmlinuz-{version}")),
            ];
            if let Some(image) = places.into_iter().find(|image| image.is_file()) {
                return Ok(Kernel {
                    version,
                    image,
                    root: root.to_owned(),
                });
            }
        }
    }
    bail!("no kernel in {}", root.display())
}

/// The packages with a kernel's version in their names, of what `apt-cache depends` prints.
fn kernel_packages(tree: &str) -> Vec<&str> {
    let has_version = |name: &&str| {
        name.starts_with("linux-")
            && name
                .split('-')
                .any(|part| part.starts_with(|c: char| c.is_ascii_digit()))
    };
    tree.lines().filter(has_version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_named_by_number() {
        assert_eq!(parse("6.1").unwrap().suite, "bookworm");
        assert_eq!(parse("6.2").unwrap_err(), "there are 5.10, 6.1, 6.12, 7.2");
    }

    #[test]
    fn only_packages_of_one_version_are_fetched() {
        let tree = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-50-cloud-amd64\n\
                    linux-image-6.1.0-50-cloud-amd64\nlinux-base\n<linux-initramfs-tool>\n\
                    linux-modules-7.2.13+deb14-cloud-amd64\ninitramfs-tools\n";
        assert_eq!(
            kernel_packages(tree),
            [
                "linux-image-6.1.0-50-cloud-amd64",
                "linux-modules-7.2.13+deb14-cloud-amd64"
            ]
        );
    }
}
