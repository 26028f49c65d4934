//! C libraries and allocators of other suites, on which tests check where probes are placed.

use anyhow::Result;

use super::apt::is_debian;
use super::private_apt::PrivateApt;
use crate::progress::{nothing_to_do, step};
use crate::workspace::Workspace;

/// What is taken of a suite of Debian.
struct Libraries {
    suite: &'static str,
    packages: &'static [&'static str],
    /// A file of each package that tests look for, below the root.
    files: &'static [&'static str],
}

/// Programs that are linked here run on newer libraries; for an older one there is what to link
/// them with. From trixie on Debian's packages, but for glibc, are built for control-flow
/// enforcement: their functions begin with `endbr64`.
const LIBRARIES: [Libraries; 3] = [
    Libraries {
        suite: "bullseye",
        packages: &["libc6", "libc6-dev", "linux-libc-dev"],
        files: &[
            "lib/x86_64-linux-gnu/libc.so.6",
            "usr/lib/x86_64-linux-gnu/crt1.o",
            "usr/include/linux/errno.h",
        ],
    },
    Libraries {
        suite: "trixie",
        packages: &[
            "libc6",
            "libgcc-s1",
            "libjemalloc2",
            "libstdc++6",
            "libtcmalloc-minimal4t64",
            "musl",
        ],
        files: &[
            "usr/lib/x86_64-linux-gnu/libc.so.6",
            "usr/lib/x86_64-linux-gnu/libgcc_s.so.1",
            "usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
            "usr/lib/x86_64-linux-gnu/libstdc++.so.6",
            "usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
            "usr/lib/x86_64-linux-musl/libc.so",
        ],
    },
    Libraries {
        suite: "sid",
        packages: &["libc6"],
        files: &["usr/lib/x86_64-linux-gnu/libc.so.6"],
    },
];

/// Makes sure that the libraries lie in `target/libc/SUITE/root`. Elsewhere than on Debian there
/// are none.
pub(super) fn ensure(workspace: &Workspace) -> Result<()> {
    if !is_debian() {
        return Ok(());
    }
    for Libraries {
        suite,
        packages,
        files,
    } in LIBRARIES
    {
        let dir = workspace.target.join("libc").join(suite);
        let root = dir.join("root");
        if files.iter().all(|file| root.join(file).exists()) {
            nothing_to_do(format_args!("C libraries of {suite}"), "they are there");
            continue;
        }
        step(format_args!("C libraries of Debian's {suite}"), || {
            let apt = PrivateApt::new(&dir, suite)?;
            apt.update()?;
            apt.unpack(packages, &root)
        })?;
    }
    Ok(())
}
