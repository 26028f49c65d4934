//! How files of a target are got hold of, with and without the capabilities for the best way.

use std::fs;
use std::path::Path;
use std::process::Command;

use htrace_bpf::modules::{MappedName, MapsEntry, ModuleOpener as _, OpenError, OpenRequest};
use htrace_bpf::modules::{OpenedFile, Verification, maps};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::fixture::{Running, Traced, compile};

/// Runs `action` in a thread that may not use `map_files`.
fn without_map_files<T: Send>(action: impl FnOnce() -> T + Send) -> T {
    let restricted = || {
        let mut sets = capabilities(None).unwrap();
        let taken = CapabilitySet::SYS_ADMIN | CapabilitySet::CHECKPOINT_RESTORE;
        sets.effective.remove(taken);
        set_capabilities(None, sets).unwrap();
        action()
    };
    std::thread::scope(|scope| scope.spawn(restricted).join().unwrap())
}

fn executable_mapping(running: &Running, name: &str) -> (MapsEntry, u64) {
    let entries: Vec<_> = maps::parse(&running.maps()).map(Result::unwrap).collect();
    let is_named = |entry: &&MapsEntry| match &entry.name {
        MappedName::File { path, .. } => path.ends_with(name),
        _ => false,
    };
    let base = entries.iter().find(is_named).unwrap().start;
    let entry = entries
        .iter()
        .filter(is_named)
        .find(|entry| entry.permissions.execute);
    (entry.unwrap().clone(), base)
}

fn open(running: &Running, name: &str) -> Result<OpenedFile, OpenError> {
    let (mapping, base) = executable_mapping(running, name);
    running.opener().open(OpenRequest {
        mapping: &mapping,
        image_base: Some(base),
    })
}

/// A running host program with a library that can be deleted, and their directory.
fn host_with_library() -> (tempfile::TempDir, Running) {
    let directory = tempfile::tempdir().unwrap();
    let code = directory.path().join("lib.c");
    fs::write(&code, "int place(void) { return 2; }\n").unwrap();
    let library = directory.path().join("lib.so");
    crate::fixture::run(
        "gcc",
        [Path::new("-shared"), Path::new("-o"), &library, &code],
    );
    let host = compile(directory.path(), "dlopen_host.c", "host", &["-O1", "-ldl"]);
    let mut running = Running::start(&mut Command::new(&host));
    running.send(library.to_str().unwrap());
    running.places();
    (directory, running)
}

#[test]
fn without_map_files_a_path_in_the_targets_root_is_taken_when_it_is_the_mapped_inode() {
    let (directory, running) = host_with_library();
    without_map_files(|| {
        let opened = open(&running, "lib.so").unwrap();
        assert_eq!(opened.verification, Verification::Inode);
        assert_eq!(opened.path, directory.path().join("lib.so"));
        // Another file under the same path is refused, whatever its contents.
        fs::copy(
            directory.path().join("lib.so"),
            directory.path().join("copy"),
        )
        .unwrap();
        fs::write(
            directory.path().join("lib.c"),
            "int other(void) { return 3; }\n",
        )
        .unwrap();
        fs::remove_file(directory.path().join("lib.so")).unwrap();
        let [library, code] = ["lib.so", "lib.c"].map(|name| directory.path().join(name));
        crate::fixture::run(
            "gcc",
            [Path::new("-shared"), Path::new("-o"), &library, &code],
        );
        assert!(matches!(
            open(&running, "lib.so"),
            Err(OpenError::Replaced { .. })
        ));
        // The same build in another inode, as overlayfs may show it, is known by its build id.
        fs::rename(directory.path().join("copy"), &library).unwrap();
        assert_eq!(
            open(&running, "lib.so").unwrap().verification,
            Verification::BuildId
        );
        fs::remove_file(&library).unwrap();
        assert!(matches!(
            open(&running, "lib.so"),
            Err(OpenError::Io { .. })
        ));
    });
}

#[test]
fn without_map_files_a_deleted_program_is_still_had() {
    let (directory, running) = host_with_library();
    fs::remove_file(directory.path().join("host")).unwrap();
    without_map_files(|| {
        let opened = open(&running, "host").unwrap();
        assert_eq!(opened.verification, Verification::Inode);
        assert_eq!(opened.path, directory.path().join("host"));
    });
}

#[test]
fn a_file_that_is_really_called_deleted_is_had() {
    let (directory, mut running) = host_with_library();
    let strange = directory.path().join("lib.so (deleted)");
    fs::copy(directory.path().join("lib.so"), &strange).unwrap();
    running.send(strange.to_str().unwrap());
    running.places();
    without_map_files(|| {
        let opened = open(&running, "lib.so").unwrap();
        assert_eq!(opened.verification, Verification::Inode);
        assert_eq!(opened.path, strange);
    });
}

#[test]
fn a_program_under_another_root_is_seen_by_its_own_path() {
    let directory = tempfile::tempdir().unwrap();
    compile(
        directory.path(),
        "symbolize.cpp",
        "p",
        &["-O2", "-g", "-static"],
    );
    let mut command = Command::new("chroot");
    command.arg(directory.path()).arg("/p");
    let allowed = Command::new("chroot").args(["/", "true"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no right to change the root directory");
        return;
    }
    for restricted in [false, true] {
        let mut check = || {
            let mut traced = Traced::start_command(&mut command);
            let line = traced.line("c");
            assert_eq!(traced.innermost("c"), (Some("f".to_owned()), Some(line)));
            let module = traced
                .table
                .locate(traced.places["c"].address)
                .unwrap()
                .module;
            assert_eq!(traced.table.module(module).unwrap().path(), Path::new("/p"));
        };
        if restricted {
            without_map_files(check)
        } else {
            check()
        }
    }
}

#[test]
fn a_program_and_debug_file_that_only_its_own_mount_namespace_has_are_found_there() {
    let unshare = Command::new("unshare").args(["--mount", "true"]).status();
    if !unshare.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no right to make a mount namespace");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let full = compile(directory.path(), "symbolize.cpp", "full", &["-O2", "-g"]);
    let hidden = directory.path().join("hidden");
    fs::create_dir(&hidden).unwrap();
    // In our namespace another program stands at the same path.
    fs::write(hidden.join("p"), "another file").unwrap();
    let script = "mount -t tmpfs none hidden && cd hidden && objcopy --only-keep-debug ../full \
        p.debug && objcopy --strip-all --add-gnu-debuglink=p.debug ../full p && exec $PWD/p";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script])
        .current_dir(directory.path());
    for restricted in [false, true] {
        let mut check = || {
            let mut traced = Traced::start_command(&mut command);
            let line = traced.line("static");
            let name = Some("(anonymous namespace)::hidden(int)".to_owned());
            assert_eq!(traced.innermost("static"), (name.clone(), Some(line)));
            let address = traced.places["static"].address;
            let module = traced.table.locate(address).unwrap().module;
            assert_eq!(
                traced.table.module(module).unwrap().path(),
                hidden.join("p")
            );
        };
        // The restriction is this process's own; a child of root has all capabilities again.
        if restricted {
            without_map_files(check)
        } else {
            check()
        }
    }
    assert!(full.exists());
}
