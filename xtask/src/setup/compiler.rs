//! The compiler of the BPF programs: a rustc that has, or can build, `core` for BPF.
//!
//! Two kinds will do. Debian's `rustc-web` has a ready-built `core`. A toolchain of rustup's builds it
//! from the component `rust-src`; a nightly is looked for first, but a stable one is as good, since
//! `RUSTC_BOOTSTRAP` lets it. Whichever it is, bpf-linker must load the LLVM of that very compiler
//! ([`BpfCompiler::llvm`]), since an older LLVM may not read the newer one's bitcode.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::apt;
use super::version::Version;
use crate::command::{capture, command, find_program, root_prefix};
use crate::environment::forget_toolchain;

/// Debian's packages of the compiler with BPF's `core`.
const PACKAGES: &[&str] = &["rustc-web", "libstd-rust-web-dev-bpf"];

/// The LLVM that bpf-linker 0.10.4 speaks to: its C interface differs between major versions.
const LLVM_MAJOR: u32 = 22;

/// Target triple of the BPF programs: little-endian, as x86-64 is.
pub(crate) const BPF_TARGET: &str = "bpfel-unknown-none";

/// A compiler for BPF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BpfCompiler {
    /// For people.
    pub(crate) name: String,
    pub(crate) rustc: PathBuf,
    /// The cargo that goes with it. `None`: the one that runs this task.
    pub(crate) cargo: Option<PathBuf>,
    /// The shared library of its LLVM.
    pub(crate) llvm: PathBuf,
    /// Whether cargo must build `core` (`-Z build-std`).
    pub(crate) build_core: bool,
}

/// Finds a compiler, or installs Debian's.
///
/// # Errors
/// Where neither can be done, the message holds the commands that would.
pub(crate) fn ensure() -> Result<BpfCompiler> {
    if let Some(compiler) = find() {
        return Ok(compiler);
    }
    if !apt::is_debian() || root_prefix().is_none() {
        bail!("{}", advice());
    }
    apt::ensure("BPF compiler (Debian's rustc-web)", PACKAGES).with_context(advice)?;
    debian().with_context(advice)
}

fn find() -> Option<BpfCompiler> {
    debian().ok().or_else(rustup)
}

/// What to do by hand where nothing could be found or installed.
fn advice() -> String {
    format!(
        "no Rust compiler for BPF; on Debian run as root `{}` (bookworm has them in its security \
         updates: is that suite among apt's sources?); \
         elsewhere run `rustup toolchain install nightly --profile minimal --component rust-src` \
         (or `rustup component add rust-src` for a stable one); its LLVM must be {LLVM_MAJOR}",
        apt::by_hand(PACKAGES)
    )
}

/// Debian's rustc, if its `core` for BPF is there.
fn debian() -> Result<BpfCompiler> {
    let rustc = PathBuf::from("/usr/bin/rustc");
    let core =
        capture(compiler_command(&rustc).args(["--print=target-libdir", "--target", BPF_TARGET]))?;
    if !Path::new(core.trim()).is_dir() {
        bail!("{} has no `core` for BPF", rustc.display());
    }
    inspect(rustc, None, "Debian's rustc", false)
}

/// A toolchain of rustup's that can build `core`: nightlies first.
fn rustup() -> Option<BpfCompiler> {
    find_program("rustup")?;
    let list = capture(command("rustup").args(["toolchain", "list", "--quiet"])).ok()?;
    in_order(&list)
        .into_iter()
        .find_map(|name| toolchain(name).ok())
}

/// The toolchains of `rustup toolchain list`, nightlies first.
fn in_order(list: &str) -> Vec<&str> {
    let mut names = list
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect::<Vec<_>>();
    names.retain(|name| !name.is_empty());
    names.sort_by_key(|name| !name.starts_with("nightly"));
    names
}

fn toolchain(name: &str) -> Result<BpfCompiler> {
    let rustc = capture(command("rustup").args(["which", "--toolchain", name, "rustc"]))?;
    let rustc = PathBuf::from(rustc.trim());
    let sysroot = rustc
        .ancestors()
        .nth(2)
        .context("rustc lies in no toolchain")?
        .to_owned();
    if !sysroot.join("lib/rustlib/src/rust/library/core").is_dir() {
        bail!("toolchain {name} has no rust-src");
    }
    inspect(
        rustc,
        Some(sysroot.join("bin/cargo")),
        &format!("rustup's {name}"),
        true,
    )
}

/// Completes and checks what is known of a compiler.
fn inspect(
    rustc: PathBuf,
    cargo: Option<PathBuf>,
    name: &str,
    build_core: bool,
) -> Result<BpfCompiler> {
    let words = capture(compiler_command(&rustc).arg("-vV"))?;
    let release = Version::of_key(&words, "release").context("rustc tells no release")?;
    let version = Version::of_key(&words, "LLVM version").context("rustc tells no LLVM version")?;
    if version.0 != LLVM_MAJOR {
        bail!("{name} has LLVM {version}, bpf-linker wants {LLVM_MAJOR}");
    }
    let libraries = capture(compiler_command("ldd").arg(&rustc))?;
    let llvm = llvm_of(&libraries).with_context(|| format!("{name} is linked with no LLVM"))?;
    Ok(BpfCompiler {
        name: format!("{name} {release}"),
        rustc,
        cargo,
        llvm,
        build_core,
    })
}

/// A command without the compiler choices of the cargo outside.
fn compiler_command(program: impl AsRef<std::ffi::OsStr>) -> std::process::Command {
    let mut command = command(program);
    forget_toolchain(&mut command);
    command
}

/// The path of libLLVM in the output of `ldd`.
fn llvm_of(libraries: &str) -> Option<PathBuf> {
    let line = libraries
        .lines()
        .find(|line| line.trim_start().starts_with("libLLVM"))?;
    let path = line.split("=>").nth(1)?.split_whitespace().next()?;
    path.starts_with('/').then(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_llvm_library_is_read_off_ldd() {
        let libraries = "\tlinux-vdso.so.1 (0x00007fa719641000)\n\
            \tlibLLVM.so.22.1 => /lib/x86_64-linux-gnu/libLLVM.so.22.1 (0x00007fa70a800000)\n";
        assert_eq!(
            llvm_of(libraries),
            Some("/lib/x86_64-linux-gnu/libLLVM.so.22.1".into())
        );
        assert_eq!(llvm_of("\tlibLLVM.so.22.1 => not found\n"), None);
        assert_eq!(llvm_of("\tlibc.so.6 => /lib/libc.so.6 (0x0)\n"), None);
    }

    #[test]
    fn nightlies_come_first() {
        let list = "stable-x86_64 (active, default)\nnightly-x86_64\n1.95.0-x86_64\n";
        assert_eq!(
            in_order(list),
            ["nightly-x86_64", "stable-x86_64", "1.95.0-x86_64"]
        );
        assert!(in_order("").is_empty());
    }
}
