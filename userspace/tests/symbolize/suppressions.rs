//! Suppressions in programs as compilers make them.

use std::process::Command;

use htrace_bpf::modules::{Module, ModuleId, ModuleTable};
use htrace_bpf::symbolize::{RunningTarget, embedded_suppressions};
use std::sync::Arc;

use crate::fixture::{Running, compile, run};

const LITERAL: [&str; 3] = ["leak:first_function", "leak:second.so", "# a comment"];

fn compiled(form: u32, options: &[&str]) -> (tempfile::TempDir, Module) {
    let directory = tempfile::tempdir().unwrap();
    let form = format!("-DFORM={form}");
    let options = [&[form.as_str()], options].concat();
    let program = compile(directory.path(), "suppressions.c", "p", &options);
    let module = Module::of_path(ModuleId(0), &program).unwrap();
    (directory, module)
}

#[test]
fn a_literal_is_read_whatever_the_options() {
    for options in [
        &["-O0"][..],
        &["-O2"],
        &["-O0", "-no-pie", "-fno-pie"],
        &["-O2", "-no-pie", "-fno-pie"],
        &["-O2", "-fcf-protection=full"],
        &["-O0", "-fcf-protection=full", "-rdynamic"],
        &["-Os", "-mcmodel=large", "-no-pie", "-fno-pie"],
        &["-O2", "-fno-omit-frame-pointer"],
        &["-O2", "-fPIC", "-static"],
    ] {
        let (_directory, module) = compiled(1, options);
        assert_eq!(embedded_suppressions(&module, None), LITERAL, "{options:?}");
    }
}

#[test]
fn a_stripped_program_that_exports_the_function_has_them() {
    let (directory, _) = compiled(1, &["-O2", "-rdynamic"]);
    let program = directory.path().join("p");
    run("strip", [&program]);
    let module = Module::of_path(ModuleId(0), &program).unwrap();
    assert_eq!(embedded_suppressions(&module, None), LITERAL);
}

#[test]
fn what_would_need_running_code_has_none() {
    let (_directory, module) = compiled(3, &["-O2"]);
    assert_eq!(embedded_suppressions(&module, None), [""; 0]);
}

#[test]
fn a_variable_is_read_from_the_running_program() {
    let (directory, module) = compiled(2, &["-O2"]);
    assert_eq!(embedded_suppressions(&module, None), [""; 0]);
    let mut running = Running::start(&mut Command::new(directory.path().join("p")));
    running.places();
    let opener = Arc::new(running.opener());
    let mut table = ModuleTable::new(Arc::clone(&opener) as Arc<_>, 64);
    table.update(&running.maps());
    let module = table
        .modules()
        .iter()
        .find(|module| module.path().ends_with("p"))
        .unwrap();
    let target = RunningTarget {
        opener: &*opener,
        load_bias: table.load_bias(module.id()).unwrap(),
    };
    assert_eq!(
        embedded_suppressions(module, Some(target)),
        ["leak:from_variable"]
    );
}
