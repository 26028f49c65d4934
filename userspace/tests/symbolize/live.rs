//! What is told about addresses in running and exited programs.

use std::path::Path;
use std::sync::Arc;

use htrace_bpf::modules::{ModuleKind, ModuleTable, ProcOpener};
use htrace_bpf::symbolize::Symbolizer;
use htrace_bpf::symbolize::elf_sections::ElfSections;

use crate::fixture::{Running, Traced, compile, source};

const OPTIMISED: &[&str] = &["-O2", "-g"];

fn some(name: &str) -> Option<String> {
    Some(name.to_owned())
}

#[test]
fn inlined_functions_come_innermost_first_with_the_lines_of_their_calls() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "symbolize.cpp", "p", OPTIMISED);
    let mut traced = Traced::start(&program);
    let line = traced.line("inlined");
    let frames = traced.frames("inlined");
    let told: Vec<_> = frames
        .iter()
        .map(|f| (f.function.as_deref(), f.line))
        .collect();
    let expected = [
        (Some("outer::innermost()"), Some(line)),
        (Some("outer::middle(long)"), Some(line + 6)),
        (Some("outer::physical(int)"), Some(line + 11)),
    ];
    assert_eq!(told, expected);
    let file = source("symbolize.cpp").to_string_lossy().into_owned();
    assert!(
        frames
            .iter()
            .all(|frame| frame.file.as_ref() == Some(&file)),
        "{frames:?}"
    );
}

/// The line is the call's even where the return address belongs to the next function.
fn check_every_kind(traced: &mut Traced) {
    for (kind, function) in [
        ("constructor", "outer::Thing::Thing(int)"),
        (
            "template",
            "outer::Box<std::pair<int, char const*> >::put(std::pair<int, char const*>, int)",
        ),
        ("static", "(anonymous namespace)::hidden(int)"),
        ("c", "f"),
        ("noreturn", "noreturn_caller"),
    ] {
        let line = traced.line(kind);
        assert_eq!(
            traced.innermost(kind),
            (some(function), Some(line)),
            "{kind}"
        );
    }
}

#[test]
fn functions_of_every_kind_have_their_full_names_however_they_are_compiled() {
    let directory = tempfile::tempdir().unwrap();
    for (name, options) in [
        ("optimised", &["-O2", "-g"][..]),
        ("plain", &["-O0", "-g"]),
        ("no-pie", &["-O1", "-g", "-no-pie"]),
        ("dwarf-4", &["-O2", "-gdwarf-4"]),
        ("packed", &["-O2", "-g", "-gz=zlib"]),
        (
            "sectioned",
            &["-O2", "-g", "-ffunction-sections", "-Wl,-z,noseparate-code"],
        ),
    ] {
        let program = compile(directory.path(), "symbolize.cpp", name, options);
        check_every_kind(&mut Traced::start(&program));
    }
}

#[test]
fn a_relative_source_path_is_made_absolute() {
    let directory = tempfile::tempdir().unwrap();
    let below = directory.path().join("below");
    std::fs::create_dir(&below).unwrap();
    std::fs::copy(
        source("symbolize.cpp"),
        directory.path().join("symbolize.cpp"),
    )
    .unwrap();
    let status = std::process::Command::new("g++")
        .args(["-O2", "-g", "../symbolize.cpp", "-o", "p"])
        .current_dir(&below)
        .status()
        .unwrap();
    assert!(status.success());
    let mut traced = Traced::start(&below.join("p"));
    let expected = directory
        .path()
        .canonicalize()
        .unwrap()
        .join("symbolize.cpp");
    assert_eq!(traced.frames("c")[0].file, some(expected.to_str().unwrap()));
}

#[test]
fn rust_functions_have_no_hash() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["-g", "-Copt-level=1", "--edition=2021"];
    let program = compile(directory.path(), "symbolize.rs", "p", &options);
    let mut traced = Traced::start(&program);
    let line = traced.line("generic");
    let expected = some("symbolize::Holder<T>::generic_method");
    assert_eq!(traced.innermost("generic"), (expected, Some(line)));
}

#[test]
fn names_and_lines_are_there_when_the_program_has_exited_and_its_file_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "symbolize.cpp", "p", OPTIMISED);
    let mut traced = Traced::start(&program);
    traced.running.kill();
    std::fs::write(directory.path().join("q"), "another file").unwrap();
    std::fs::rename(directory.path().join("q"), &program).unwrap();
    check_every_kind(&mut traced);
}

#[test]
fn a_file_that_was_deleted_before_we_looked_is_read_through_its_mapping() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "symbolize.cpp", "p", OPTIMISED);
    let mut running = Running::start(&mut std::process::Command::new(&program));
    let places = running.places();
    std::fs::remove_file(&program).unwrap();
    let opener = Arc::new(running.opener());
    let mut table = ModuleTable::new(opener, 64);
    table.update(&running.maps());
    let location = table.locate(places["c"].address - 1).unwrap();
    let module = Arc::clone(table.module(location.module).unwrap());
    assert_eq!(module.name(), program.to_str().unwrap());
    let mut traced = Traced {
        running,
        places,
        table,
        symbolizer: Symbolizer::new(None),
    };
    check_every_kind(&mut traced);
}

#[test]
fn two_libraries_at_one_address_keep_their_own_names() {
    let directory = tempfile::tempdir().unwrap();
    let library = |name: &str| {
        let code = directory.path().join(format!("{name}.c"));
        std::fs::write(
            &code,
            format!("int {name}_only(void) {{ return 1; }}\nint place(void) {{ return 2; }}\n"),
        )
        .unwrap();
        let library = directory.path().join(format!("{name}.so"));
        crate::fixture::run(
            "gcc",
            [
                Path::new("-g"),
                Path::new("-shared"),
                Path::new("-o"),
                &library,
                &code,
            ],
        );
        library
    };
    let (first, second) = (library("first"), library("second"));
    let host = compile(directory.path(), "dlopen_host.c", "host", &["-O1", "-ldl"]);
    let mut running = Running::start(&mut std::process::Command::new(&host));
    let opener = Arc::new(running.opener());
    let mut table = ModuleTable::new(opener, 64);
    let mut symbolizer = Symbolizer::new(None);
    let mut found = Vec::new();
    for path in [&first, &second, &first] {
        running.send(path.to_str().unwrap());
        let address = running.places()["loaded"].address;
        table.update(&running.maps());
        let location = table.locate(address).unwrap();
        found.push((address, location));
    }
    running.kill();
    std::fs::remove_file(&first).unwrap();
    let addresses: Vec<_> = found.iter().map(|(address, _)| *address).collect();
    assert_eq!(
        addresses[0], addresses[1],
        "the system put the second library elsewhere"
    );
    assert_eq!(found[0].1.module, found[2].1.module);
    assert_ne!(found[0].1.mapping, found[2].1.mapping);
    for ((_, location), name) in found.iter().zip(["first.c", "second.c", "first.c"]) {
        let module = Arc::clone(table.module(location.module).unwrap());
        let frames = symbolizer.symbolize(&module, location.virtual_address.unwrap());
        assert_eq!(frames[0].function.as_deref(), Some("place"));
        assert_eq!(frames[0].line, Some(2));
        assert!(
            frames[0].file.as_ref().unwrap().ends_with(name),
            "{frames:?}"
        );
    }
}

#[test]
fn the_vdso_is_named() {
    let opener = Arc::new(ProcOpener::new(Path::new("/proc"), std::process::id()));
    let mut table = ModuleTable::new(opener, 64);
    table.update(&std::fs::read("/proc/self/maps").unwrap());
    let vdso = table
        .modules()
        .iter()
        .find(|module| module.kind() == ModuleKind::Vdso);
    let vdso = Arc::clone(vdso.expect("this process has a vdso"));
    let bias = table.load_bias(vdso.id()).unwrap();
    let symbols = ElfSections::read(&vdso.content().unwrap()).dynamic_symbols;
    let function = symbols
        .address_of("clock_gettime")
        .expect("clock_gettime is in the vdso");
    let location = table.locate(bias + function + 1).unwrap();
    assert_eq!(location.module, vdso.id());
    let frames = Symbolizer::new(None).symbolize(&vdso, location.virtual_address.unwrap());
    assert_eq!(frames[0].function.as_deref(), Some("clock_gettime"));
}
