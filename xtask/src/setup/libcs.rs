//! C libraries of other suites, on which tests check where probes are placed.

use anyhow::Result;

use super::apt::is_debian;
use super::private_apt::PrivateApt;
use crate::progress::{nothing_to_do, step};
use crate::workspace::Workspace;

/// Newer than the machine's own: programs that are linked here run on them.
const SUITES: [&str; 2] = ["trixie", "sid"];

/// Makes sure that the libraries lie in `target/libc/SUITE/root`. Elsewhere than on Debian there
/// are none.
pub(super) fn ensure(workspace: &Workspace) -> Result<()> {
    if !is_debian() {
        return Ok(());
    }
    for suite in SUITES {
        let dir = workspace.target.join("libc").join(suite);
        let root = dir.join("root");
        if root.join("usr/lib/x86_64-linux-gnu/libc.so.6").exists() {
            nothing_to_do(format_args!("C library of {suite}"), "it is there");
            continue;
        }
        step(format_args!("C library of Debian's {suite}"), || {
            let apt = PrivateApt::new(&dir, suite)?;
            apt.update()?;
            apt.unpack(&["libc6"], &root)
        })?;
    }
    Ok(())
}
