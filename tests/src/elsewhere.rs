//! The target program `counts`, linked with other C libraries and allocators than this machine's.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::features::unpacked;
use crate::scratch::Scratch;

/// What `counts` is linked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libraries {
    /// glibc 2.31, whose `malloc` calls a hook.
    Glibc231,
    /// glibc of a newer suite of Debian than this machine's.
    Newer(&'static str),
    /// musl as Debian builds it here.
    Musl,
    /// The same, in the program itself.
    MuslStatic,
    /// musl of trixie, built for control-flow enforcement.
    MuslEnforced,
    /// glibc of trixie with an allocator of that suite, built for control-flow enforcement.
    Allocator(&'static str),
    /// The allocator `own_allocator.c`, built for control-flow enforcement, with a flag.
    OwnAllocator(&'static str),
}

impl Libraries {
    /// True for allocators that do all that heaptrack's recorder does not see as glibc does it.
    pub const fn are_like_a_c_library(self) -> bool {
        !matches!(self, Self::Allocator(_))
    }

    /// Compiles `counts` for them.
    ///
    /// # Panics
    /// When the compiler fails.
    pub fn counts(self, scratch: &Scratch) -> PathBuf {
        let source = source("counts.c");
        match self {
            Self::Glibc231 => on_glibc_2_31(scratch, &source),
            Self::Newer(suite) => {
                let libraries = unpacked(suite).join(GNU);
                let newer = running_on(&libraries, &[&libraries]);
                compiled("gcc", scratch, "counts_elsewhere", &source, &newer)
            }
            Self::Musl => compiled::<&str>("musl-gcc", scratch, "counts_musl", &source, &[]),
            Self::MuslStatic => {
                compiled("musl-gcc", scratch, "counts_static", &source, &["-static"])
            }
            Self::MuslEnforced => {
                let linker = unpacked("trixie").join("usr/lib/x86_64-linux-musl/libc.so");
                let linker = option("-Wl,-dynamic-linker=", &linker);
                compiled("musl-gcc", scratch, "counts_enforced", &source, &[linker])
            }
            Self::Allocator(name) => {
                let libraries = unpacked("trixie").join(GNU);
                let mut args = running_on(&libraries, &[&libraries]);
                // Its own libraries need a newer glibc than the one that it is linked with.
                args.push("-Wl,--allow-shlib-undefined".into());
                args.push(libraries.join(name).into());
                compiled("gcc", scratch, "counts_allocator", &source, &args)
            }
            Self::OwnAllocator(flag) => with_own_allocator(scratch, &source, flag),
        }
    }
}

const GNU: &str = "usr/lib/x86_64-linux-gnu";

fn source(name: &str) -> PathBuf {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("targets");
    targets.join(name)
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}

/// Options for a program that is run by the dynamic linker in `libraries`, and finds its own
/// libraries and theirs in `paths`.
fn running_on(libraries: &Path, paths: &[&Path]) -> Vec<OsString> {
    let linker = libraries.join("ld-linux-x86-64.so.2");
    let mut options = vec![
        option("-Wl,-dynamic-linker=", &linker),
        "-Wl,--disable-new-dtags".into(),
        "-Wl,--no-as-needed".into(),
    ];
    options.extend(paths.iter().map(|path| option("-Wl,-rpath=", path)));
    options
}

/// Programs that are linked with a newer glibc do not run on this one: it is linked with its own.
fn on_glibc_2_31(scratch: &Scratch, source: &Path) -> PathBuf {
    let root = unpacked("bullseye");
    let (libraries, objects) = (root.join("lib/x86_64-linux-gnu"), root.join(GNU));
    let mut args = running_on(&libraries, &[&libraries]);
    args.push("-nostdlib".into());
    for headers in ["usr/include", "usr/include/x86_64-linux-gnu"] {
        args.push("-isystem".into());
        args.push(root.join(headers).into());
    }
    args.extend(["crt1.o", "crti.o"].map(|object| objects.join(object).into()));
    args.extend(["libc.so.6", "libpthread.so.0"].map(|name| libraries.join(name).into()));
    args.extend(["libc_nonshared.a", "crtn.o"].map(|object| objects.join(object).into()));
    compiled("gcc", scratch, "counts_2_31", source, &args)
}

fn with_own_allocator(scratch: &Scratch, counts: &Path, flag: &str) -> PathBuf {
    let args = [
        "-shared",
        "-fPIC",
        "-O2",
        "-fcf-protection=full",
        "-w",
        flag,
    ];
    let own = source("own_allocator.c");
    let library = compiled("gcc", scratch, "own_allocator.so", &own, &args);
    compiled("gcc", scratch, "counts_own", counts, &[library])
}

/// Frame pointers, so that every kernel's stacks are whole; no builtins, because compilers drop
/// allocations that they see through.
const PLAIN: [&str; 5] = [
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fno-builtin",
    "-pthread",
];

fn compiled<A: AsRef<OsStr>>(
    compiler: &str,
    scratch: &Scratch,
    name: &str,
    source: &Path,
    args: &[A],
) -> PathBuf {
    let program = scratch.join(name);
    let output = Command::new(compiler)
        .args(PLAIN)
        .arg(source)
        .args(args)
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap_or_else(|error| panic!("cannot run {compiler}: {error}"));
    assert!(
        output.status.success(),
        "{compiler} makes no {name}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}
