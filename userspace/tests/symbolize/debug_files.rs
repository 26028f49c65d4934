//! Stripped programs: separate debug files, packed symbol tables, exported names.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use htrace_bpf::modules::{Module, ModuleId};
use htrace_bpf::symbolize::elf_sections::ElfSections;

use crate::fixture::{Traced, compile, run};

/// A stripped program, and beside it `p.debug`, its debug file.
struct Split {
    directory: tempfile::TempDir,
    program: PathBuf,
    debug: PathBuf,
}

impl Split {
    fn new(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let full = compile(directory.path(), "symbolize.cpp", "full", options);
        let program = directory.path().join("p");
        let debug = directory.path().join("p.debug");
        run("objcopy", [Path::new("--only-keep-debug"), &full, &debug]);
        run("objcopy", [Path::new("--strip-all"), &full, &program]);
        std::fs::remove_file(full).unwrap();
        Self {
            directory,
            program,
            debug,
        }
    }

    fn add_debug_link(&self) {
        let mut option = std::ffi::OsString::from("--add-gnu-debuglink=");
        option.push(&self.debug);
        run("objcopy", [option.as_os_str(), self.program.as_os_str()]);
    }

    fn move_debug(&self, place: &Path) {
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::rename(&self.debug, place).unwrap();
    }

    fn build_id(&self) -> String {
        let module = Module::of_path(ModuleId(0), &self.program).unwrap();
        module.image().build_id.as_ref().unwrap().to_string()
    }
}

fn assert_full(traced: &mut Traced) {
    let line = traced.line("static");
    let expected = (
        Some("(anonymous namespace)::hidden(int)".to_owned()),
        Some(line),
    );
    assert_eq!(traced.innermost("static"), expected);
    assert_eq!(traced.frames("inlined").len(), 3);
}

const OPTIONS: &[&str] = &["-O2", "-g"];

#[test]
fn without_its_debug_file_a_stripped_program_has_only_exported_names() {
    let split = Split::new(&["-O2", "-g", "-rdynamic"]);
    std::fs::remove_file(&split.debug).unwrap();
    let mut traced = Traced::start(&split.program);
    assert_eq!(traced.innermost("c"), (Some("f".to_owned()), None));
    let constructor = Some("outer::Thing::Thing(int)".to_owned());
    assert_eq!(traced.innermost("constructor"), (constructor, None));
    assert_eq!(traced.innermost("static"), (None, None));
}

#[test]
fn a_debug_link_is_followed_beside_the_program_below_it_and_in_the_debug_directory() {
    for place in ["p.debug", ".debug/p.debug"] {
        let split = Split::new(OPTIONS);
        split.add_debug_link();
        split.move_debug(&split.directory.path().join(place));
        assert_full(&mut Traced::start(&split.program));
    }
    let split = Split::new(OPTIONS);
    split.add_debug_link();
    let root = tempfile::tempdir().unwrap();
    let below = split.directory.path().strip_prefix("/").unwrap();
    split.move_debug(
        &root
            .path()
            .join("usr/lib/debug")
            .join(below)
            .join("p.debug"),
    );
    let mut traced = Traced::start(&split.program);
    traced.set_root(root.path());
    assert_full(&mut traced);
}

#[test]
fn a_debug_file_with_other_contents_is_not_taken() {
    let split = Split::new(OPTIONS);
    split.add_debug_link();
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(&split.debug)
        .unwrap();
    file.write_all(b"x").unwrap();
    let mut traced = Traced::start(&split.program);
    assert_eq!(traced.innermost("static"), (None, None));
}

#[test]
fn a_debug_file_is_found_by_build_id_and_only_with_the_right_one() {
    let split = Split::new(OPTIONS);
    let root = tempfile::tempdir().unwrap();
    let id = split.build_id();
    let place = root.path().join("usr/lib/debug/.build-id").join(&id[..2]);
    split.move_debug(&place.join(format!("{}.debug", &id[2..])));
    let mut traced = Traced::start(&split.program);
    traced.set_root(root.path());
    assert_full(&mut traced);

    // Another build under that name.
    let other = Split::new(&["-O1", "-g"]);
    assert_ne!(other.build_id(), id);
    other.move_debug(&place.join(format!("{}.debug", &id[2..])));
    let mut traced = Traced::start(&split.program);
    traced.set_root(root.path());
    assert_eq!(traced.innermost("static"), (None, None));
}

#[test]
fn a_packed_symbol_table_gives_names_without_lines() {
    let split = Split::new(OPTIONS);
    let symbols = split.directory.path().join("symbols");
    run(
        "objcopy",
        [Path::new("--strip-debug"), &split.debug, &symbols],
    );
    let packed = split.directory.path().join("symbols.xz");
    let options = lzma_rust2::XzOptions::with_preset(6);
    let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    writer.write_all(&std::fs::read(&symbols).unwrap()).unwrap();
    std::fs::write(&packed, writer.finish().unwrap()).unwrap();
    let option = format!("--add-section=.gnu_debugdata={}", packed.display());
    run("objcopy", [option.as_ref(), split.program.as_os_str()]);
    std::fs::remove_file(&split.debug).unwrap();
    let mut traced = Traced::start(&split.program);
    let (name, line) = traced.innermost("static");
    // The symbol is perhaps of a copy of the function.
    assert!(
        name.unwrap()
            .starts_with("(anonymous namespace)::hidden(int)")
    );
    assert_eq!(line, None);
}

#[test]
fn a_broken_packed_symbol_table_leaves_the_exported_names() {
    let split = Split::new(&["-O2", "-g", "-rdynamic"]);
    std::fs::write(&split.debug, b"\xfd7zXZ\0 this does not unpack").unwrap();
    let option = format!("--add-section=.gnu_debugdata={}", split.debug.display());
    run("objcopy", [option.as_ref(), split.program.as_os_str()]);
    let mut traced = Traced::start(&split.program);
    assert_eq!(traced.innermost("c"), (Some("f".to_owned()), None));
}

/// `dwz` moves what two debug files share into a third, to which they link by path and build id.
#[test]
fn debug_information_shared_between_files_is_found_and_missed_without_harm() {
    if Command::new("dwz").arg("--version").output().is_err() {
        eprintln!("skipped: dwz is not installed");
        return;
    }
    let split = Split::new(OPTIONS);
    let other = Split::new(&["-O1", "-g"]);
    let root = tempfile::tempdir().unwrap();
    let debug_directory = root.path().join("usr/lib/debug");
    let id = split.build_id();
    let place = debug_directory.join(".build-id").join(&id[..2]);
    split.move_debug(&place.join(format!("{}.debug", &id[2..])));
    let main = place.join(format!("{}.debug", &id[2..]));
    let common = debug_directory.join("common");
    let name = Path::new("/usr/lib/debug/common");
    let options = [
        Path::new("-m"),
        &common,
        Path::new("-M"),
        name,
        &main,
        &other.debug,
    ];
    run("dwz", options);
    let sections = ElfSections::parse(std::fs::read(&main).unwrap().as_slice());
    assert_eq!(sections.alternate_link.unwrap().path, name);

    let mut traced = Traced::start(&split.program);
    traced.set_root(root.path());
    assert_full(&mut traced);
    let names = traced
        .frames("inlined")
        .into_iter()
        .filter_map(|frame| frame.function);
    let expected = [
        "outer::innermost()",
        "outer::middle(long)",
        "outer::physical(int)",
    ];
    assert_eq!(names.collect::<Vec<_>>(), expected);

    std::fs::remove_file(common).unwrap();
    traced.set_root(root.path());
    let (name, _) = traced.innermost("static");
    assert_eq!(name.as_deref(), Some("(anonymous namespace)::hidden(int)"));
}
