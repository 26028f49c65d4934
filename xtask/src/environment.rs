//! The user's environment, without what cargo and rustup add to it for the program that they run.
//!
//! A task starts other cargos (with other compilers), and programs whose behaviour must be their
//! own. Left in, `RUSTUP_TOOLCHAIN` would choose the compiler, `CARGO_PKG_*` would make build
//! scripts rerun, and `LD_LIBRARY_PATH` would change what a recorded program loads.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// Variables that cargo sets for `cargo run`, beside the families in [`is_cargos`].
const SET_BY_CARGO: &[&str] = &[
    "CARGO",
    "CARGO_BIN_NAME",
    "CARGO_CRATE_NAME",
    "CARGO_PRIMARY_PACKAGE",
    "OUT_DIR",
];

/// Takes away what cargo set for this process. What may be the user's (`RUSTFLAGS`,
/// `CARGO_TARGET_DIR`, `CARGO_HOME`, `RUSTUP_TOOLCHAIN`) stays: a `cargo +1.95 xtask` builds all with
/// that toolchain.
pub(crate) fn restore(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if is_cargos(&name) {
            command.env_remove(name);
        }
    }
    if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
        let executable = std::env::current_exe().unwrap_or_default();
        match users_library_path(
            &path,
            executable.ancestors().nth(2).unwrap_or(Path::new("/")),
        ) {
            Some(path) => command.env("LD_LIBRARY_PATH", path),
            None => command.env_remove("LD_LIBRARY_PATH"),
        };
    }
}

/// Takes away what would change how a tool from elsewhere is compiled, but keeps the toolchain.
pub(crate) fn forget_flags(command: &mut Command) {
    for name in [
        "CARGO_BUILD_TARGET",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "RUSTFLAGS",
    ] {
        command.env_remove(name);
    }
}

/// Takes away every choice of compiler too, for a build that makes its own.
pub(crate) fn forget_toolchain(command: &mut Command) {
    const CHOICES: &[&str] = &[
        "CARGO_BUILD_RUSTC",
        "CARGO_BUILD_RUSTC_WRAPPER",
        "CARGO_BUILD_TARGET",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_INCREMENTAL",
        "CARGO_TARGET_DIR",
        "LD_LIBRARY_PATH",
        "RUSTC",
        "RUSTC_BOOTSTRAP",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "RUSTDOC",
        "RUSTFLAGS",
        "RUSTUP_TOOLCHAIN",
    ];
    for name in CHOICES {
        command.env_remove(name);
    }
}

fn is_cargos(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    SET_BY_CARGO.contains(&&*name)
        || name.starts_with("CARGO_MANIFEST_")
        || name.starts_with("CARGO_PKG_")
}

/// The library path without the directories of the target directory and of a Rust toolchain.
/// `None` if nothing is left.
fn users_library_path(path: &OsStr, target: &Path) -> Option<OsString> {
    let is_rusts = |dir: &Path| dir.starts_with(target) || is_toolchain(dir);
    let left = std::env::split_paths(path)
        .filter(|dir| !dir.as_os_str().is_empty() && !is_rusts(dir))
        .collect::<Vec<_>>();
    if left.is_empty() {
        None
    } else {
        std::env::join_paths(left).ok()
    }
}

/// Whether `dir` is the `lib` of a toolchain, or lies in its `lib/rustlib`.
fn is_toolchain(dir: &Path) -> bool {
    dir.components().any(|part| part.as_os_str() == "rustlib")
        || dir.join("rustlib").is_dir() && !dir.starts_with("/usr")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cargo_set_is_taken_away() {
        for name in ["CARGO", "CARGO_PKG_NAME", "CARGO_MANIFEST_DIR", "OUT_DIR"] {
            assert!(is_cargos(OsStr::new(name)), "{name}");
        }
        for name in [
            "CARGO_HOME",
            "CARGO_TARGET_DIR",
            "RUSTFLAGS",
            "PATH",
            "CARGOES",
        ] {
            assert!(!is_cargos(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn the_users_libraries_stay() {
        let path = OsStr::new("/w/target/debug/deps:/opt/mine:/r/lib/rustlib/x86/lib:/w/target");
        let left = users_library_path(path, Path::new("/w/target"));
        assert_eq!(left, Some("/opt/mine".into()));
        assert_eq!(
            users_library_path(OsStr::new("/w/target/debug"), Path::new("/w/target")),
            None
        );
    }
}
