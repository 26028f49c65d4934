//! Builds the target programs of `tests/targets/`, each once, when first asked
//! for, beside the test binaries (`target/<profile>/test-targets/`).
//!
//! A program is rebuilt when its sources or its recipe are newer than it is. A
//! file lock keeps test processes that run at the same time apart.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// How one target comes to be.
struct Recipe {
    name: &'static str,
    source: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
}

/// Frame pointers, so that every kernel's stacks are whole; no builtins, because compilers drop
/// allocations that they see through.
const PLAIN: &[&str] = &[
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fno-builtin",
    "-pthread",
];

const RECIPES: &[Recipe] = &[
    c("busy", "busy.c"),
    c("chains", "chains.c"),
    c("counts", "counts.c"),
    c("deep", "deep.c"),
    c("ends", "ends.c"),
    c("enter_root", "enter_root.c"),
    c("exercise", "exercise.c"),
    c("forks", "forks.c"),
    c("handover", "handover.c"),
    c("longjmp", "longjmp.c"),
    c("mishaps", "mishaps.c"),
    c("pauses", "pauses.c"),
    c("plugins", "plugins.c"),
    c("remaps", "remaps.c"),
    c("sealed", "sealed.c"),
    c("sigcount", "sigcount.c"),
    c("signals", "signals.c"),
    c("stress", "stress.c"),
    c("threads", "threads.c"),
    c("wildstack", "wildstack.c"),
    c("vdso", "vdso.c"),
    c("worker", "worker.c"),
    cxx("exceptions", "exceptions.cpp"),
    cxx("framepointers", "framepointers.cpp"),
    cxx("operators", "operators.cpp"),
    plugin(
        "alpha.so",
        &["-shared", "-fPIC", "-DPLUGIN=alpha_allocates"],
    ),
    plugin("beta.so", &["-shared", "-fPIC", "-DPLUGIN=beta_allocates"]),
    Recipe {
        name: "small.code",
        source: "raw_code.c",
        compiler: "gcc",
        flags: &[
            "-DNAME=small_frame",
            "-DFRAME=1000",
            "-Wl,-e,small_frame",
            "-Wl,-z,noseparate-code",
            "-fomit-frame-pointer",
            "-fPIC",
            "-nostdlib",
            "-shared",
        ],
    },
    Recipe {
        name: "large.code",
        source: "raw_code.c",
        compiler: "gcc",
        flags: &[
            "-DNAME=large_frame",
            "-DFRAME=5000",
            "-Wl,-e,large_frame",
            "-Wl,-z,noseparate-code",
            "-fomit-frame-pointer",
            "-fPIC",
            "-nostdlib",
            "-shared",
        ],
    },
    // The same program under a build id that no other test's copy has.
    Recipe {
        name: "framepointers_apart",
        source: "framepointers.cpp",
        compiler: "g++",
        flags: &["-Wl,--build-id=0x68747261636562706674657374732d6170617274"],
    },
    // As people build programs: with all optimisation, and without frame pointers.
    Recipe {
        name: "shapes",
        source: "shapes.rs",
        compiler: "rustc",
        flags: &["-Copt-level=3", "-Cforce-frame-pointers=no", "-g"],
    },
    Recipe {
        name: "generated",
        source: "generated.c",
        compiler: "gcc",
        flags: &["-O2", "-g", "-fomit-frame-pointer"],
    },
    Recipe {
        name: "catalogue",
        source: "catalogue.cpp",
        compiler: "g++",
        flags: &["-O2", "-g", "-std=c++17", "-fomit-frame-pointer"],
    },
    Recipe {
        name: "suppressed",
        source: "suppressed.c",
        compiler: "gcc",
        flags: &["-rdynamic"],
    },
    Recipe {
        name: "static_asm",
        source: "static_asm.S",
        compiler: "gcc",
        flags: &["-nostdlib", "-static"],
    },
];

const fn c(name: &'static str, source: &'static str) -> Recipe {
    Recipe {
        name,
        source,
        compiler: "gcc",
        flags: &[],
    }
}

const fn cxx(name: &'static str, source: &'static str) -> Recipe {
    Recipe {
        name,
        source,
        compiler: "g++",
        flags: &[],
    }
}

const fn plugin(name: &'static str, flags: &'static [&'static str]) -> Recipe {
    Recipe {
        name,
        source: "plugin.c",
        compiler: "gcc",
        flags,
    }
}

/// The path of a target program, built if need be.
///
/// # Panics
/// When there is no such target, or when it does not compile.
pub fn target(name: &str) -> PathBuf {
    let recipe = RECIPES
        .iter()
        .find(|recipe| recipe.name == name)
        .unwrap_or_else(|| panic!("there is no target `{name}`"));
    let dir = target_dir();
    fs::create_dir_all(&dir).expect("make the directory of targets");
    let lock = File::create(dir.join(".lock")).expect("create the lock of the targets");
    lock.lock().expect("lock the targets");
    let program = dir.join(name);
    if !is_current(&program, recipe) {
        build(&program, recipe);
    }
    program
}

fn source_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("targets")
}

/// Test binaries are `<profile>/deps/NAME`.
fn target_dir() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test
        .ancestors()
        .nth(2)
        .expect("a test is in <profile>/deps");
    profile.join("test-targets")
}

fn is_current(program: &Path, recipe: &Recipe) -> bool {
    let Some(built) = modified(program) else {
        return false;
    };
    let sources = [
        source_dir().join(recipe.source),
        source_dir().join("truth.h"),
    ];
    let this_test = std::env::current_exe().expect("the path of this test");
    sources
        .iter()
        .chain([&this_test])
        .all(|source| modified(source).is_some_and(|changed| changed <= built))
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

fn build(program: &Path, recipe: &Recipe) {
    let unfinished = program.with_extension("unfinished");
    let plain: &[&str] = match recipe.name {
        "static_asm" | "shapes" | "catalogue" => &[],
        _ => PLAIN,
    };
    let output = Command::new(recipe.compiler)
        .args(plain)
        .args(recipe.flags)
        .arg(source_dir().join(recipe.source))
        .arg("-o")
        .arg(&unfinished)
        .output()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}", recipe.compiler));
    assert!(
        output.status.success(),
        "{} does not compile:\n{}",
        recipe.source,
        String::from_utf8_lossy(&output.stderr)
    );
    fs::rename(&unfinished, program).expect("put a target in place");
}
