//! Where names and lines come from: files that are gone, separate debug files,
//! and nobody else's servers.

use std::path::{Path, PathBuf};
use std::process::Command;

use htrace_tests::process::{Running, run};
use htrace_tests::trace_file::Trace;
use htrace_tests::truth::Truth;
use htrace_tests::{Attached, Feature, Launch, Scratch, require, target};

const ARGS: [&str; 2] = ["2", "20"];

/// The busiest function is named, with its line.
fn assert_named(trace: &Trace, truth: &Truth) {
    let stacks = trace.stacks();
    let (calls, stack) = &stacks[0];
    assert_eq!(*calls, truth.get("parse_record_calls"), "{stack:?}");
    assert_eq!(stack[0].function, "shop::parse_record(long)", "{stack:?}");
    assert_eq!(stack[0].line, truth.get("parse_record_line"), "{stack:?}");
}

#[test]
fn a_program_whose_file_was_deleted() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.copy_program(&target("framepointers"));
    let mut running = Running::start(Command::new(&program).args(ARGS).arg("wait"));
    running.wait_for_line("ready");
    std::fs::remove_file(&program).expect("delete the running program");
    let tracer = Attached::to(running.pid());
    running.say(b"g");
    let truth = Truth::parse(&running.finish().stdout);
    assert_named(&tracer.finish().trace(), &truth);
}

fn objcopy(args: &[&str], files: &[&Path]) {
    let ended = run(Command::new("objcopy").args(args).args(files), b"");
    assert!(ended.status.success(), "objcopy {args:?}: {}", ended.stderr);
}

/// A stripped copy of a program, and its debug file at `debug`.
fn split(name: &str, scratch: &Scratch, debug: &Path) -> PathBuf {
    let program = scratch.copy_program(&target(name));
    objcopy(&["--only-keep-debug"], &[&program, debug]);
    objcopy(&["--strip-all"], &[&program]);
    program
}

#[test]
fn a_debug_file_by_debug_link() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let debug = scratch.join(".debug/framepointers.debug");
    std::fs::create_dir(scratch.join(".debug")).expect("make .debug");
    let program = split("framepointers", &scratch, &debug);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&[&link], &[&program]);
    let recorded = Launch::new().run(&program, &ARGS);
    assert_named(&recorded.trace(), &recorded.truth());
}

/// A file that is removed again whatever happens.
struct Installed(PathBuf);

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_debug_file_by_build_id() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let debug = scratch.join("all.debug");
    let program = split("framepointers_apart", &scratch, &debug);
    let id = build_id(&program);
    let dir = Path::new("/usr/lib/debug/.build-id").join(&id[..2]);
    std::fs::create_dir_all(&dir).expect("make the directory of debug files");
    let installed = Installed(dir.join(format!("{}.debug", &id[2..])));
    std::fs::copy(&debug, &installed.0).expect("install the debug file");
    let recorded = Launch::new().run(&program, &ARGS);
    assert_named(&recorded.trace(), &recorded.truth());
}

fn build_id(program: &Path) -> String {
    let ended = run(Command::new("readelf").arg("-n").arg(program), b"");
    let notes = String::from_utf8_lossy(&ended.stdout).into_owned();
    let id = notes
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "));
    assert!(id.is_some_and(|id| id.len() == 40), "no build id:\n{notes}");
    id.unwrap_or_default().to_owned()
}

#[test]
fn a_stripped_program_still_names_modules_and_library_functions() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    let program = split("framepointers", &scratch, &scratch.join("elsewhere"));
    let recorded = Launch::new().run(&program, &ARGS);
    let trace = recorded.trace();
    let (calls, stack) = &trace.stacks()[0];
    assert_eq!(
        *calls,
        recorded.truth().get("parse_record_calls"),
        "{stack:?}"
    );
    assert_eq!(Path::new(&stack[0].module), program, "{stack:?}");
    // A wrong name is worse than none.
    assert!(!stack[0].function.contains("shop"), "{stack:?}");
}

#[test]
fn nobody_is_asked_for_debug_files() {
    if !require(Feature::Root) {
        return;
    }
    // An address that never answers; asking it would hang until the watchdog.
    let launch = Launch::new().env("DEBUGINFOD_URLS", "http://192.0.2.1:9");
    let recorded = launch.run(target("framepointers"), &ARGS);
    assert_named(&recorded.trace(), &recorded.truth());
}
