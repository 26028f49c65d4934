//! The task `unwind-check`: compares a program's stacks, call by call, with libgcc's unwinder.

use std::ffi::OsString;

use anyhow::{Context as _, Result};

use crate::build;
use crate::command::{cargo, run};
use crate::progress::step;
use crate::workspace::Workspace;

/// The test reads its program from here, one argument a line.
const VARIABLE: &str = "UNWIND_CHECK";

pub(crate) fn unwind_check(workspace: &Workspace, program: &[OsString]) -> Result<()> {
    build::build_ebpf(workspace)?;
    let words: Vec<&str> = program.iter().map_while(|word| word.to_str()).collect();
    anyhow::ensure!(words.len() == program.len(), "arguments must be UTF-8");
    step("comparing stacks", || {
        run(cargo()
            .current_dir(&workspace.root)
            .args(["test", "--package", "htrace-bpf", "--test", "unwind_check"])
            .args(["--", "--nocapture", "a_program_on_request"])
            .env(VARIABLE, words.join("\n")))
    })
    .context("stacks differ, or could not be compared")
}
