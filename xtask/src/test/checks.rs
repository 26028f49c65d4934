//! The list of what is checked, in the order in which it is cheapest to fail.

use std::process::Command;

use anyhow::{Result, bail};

use crate::command::{cargo, command, find_program, is_root, run, shown, watch};
use crate::progress::{nothing_to_do, step};
use crate::workspace::Workspace;

/// One command that must succeed.
#[derive(Debug)]
pub(super) struct Check {
    what: String,
    command: Command,
}

impl Check {
    fn new(what: impl Into<String>, command: Command) -> Self {
        Self {
            what: what.into(),
            command,
        }
    }

    /// Runs it as one step.
    pub(super) fn run(self) -> Result<()> {
        let Self { what, mut command } = self;
        step(what, || run(&mut command))
    }

    /// The same for a test suite, whose every line of output `see` is shown.
    pub(super) fn watch(self, see: impl FnMut(&str)) -> Result<()> {
        let Self { what, mut command } = self;
        step(what, || {
            let status = watch(&mut command, see)?;
            if !status.success() {
                bail!("`{}`: {status}", shown(&command));
            }
            Ok(())
        })
    }
}

/// Everything but the tests.
pub(super) fn all(workspace: &Workspace) -> Vec<Check> {
    let mut checks = vec![
        Check::new("format", cargo_in(workspace, &["fmt", "--all", "--check"])),
        Check::new(
            "lints",
            cargo_in(
                workspace,
                &[
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--quiet",
                    "--",
                    "--deny=warnings",
                ],
            ),
        ),
    ];
    checks.extend(optional(workspace));
    checks
}

/// Tools that take minutes to compile: used where they are installed, so that the tests of a fresh
/// machine need not wait for them.
fn optional(workspace: &Workspace) -> Vec<Check> {
    let deny = ["deny", "--offline", "check", "bans", "licenses", "sources"];
    let mut typos = command("typos");
    typos.current_dir(&workspace.root);
    let tools = [
        (
            "cargo-deny",
            "licences and sources of dependencies",
            cargo_in(workspace, &deny),
        ),
        ("typos", "spelling", typos),
    ];
    let mut checks = Vec::new();
    for (program, what, command) in tools {
        if find_program(program).is_some() {
            checks.push(Check::new(what, command));
        } else {
            nothing_to_do(
                what,
                format_args!("not checked, `{program}` is not installed"),
            );
        }
    }
    checks
}

/// The tests: first those of the crates, which need no privileges, then those end to end.
pub(super) fn suites(workspace: &Workspace, strict: bool) -> Vec<Check> {
    let test = ["test", "--no-fail-fast"];
    let mut units = cargo_in(workspace, &test);
    units.args(["--workspace", "--exclude", "htrace-tests"]);
    let mut whole = cargo_in(workspace, &test);
    whole
        .args(["--package", "htrace-tests", "--"])
        // A target that loads a module keeps a CPU while its recorder looks at it. Several at
        // once would leave a small machine no CPU for the recorders.
        .arg("--test-threads=1")
        .env("HTRACE_BPF_BIN", workspace.binary(true));
    if !is_root() && find_program("sudo").is_some() {
        // Built as the user, run as root.
        whole.env(
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
            "sudo --preserve-env",
        );
    }
    if strict {
        units.env("CI", "true");
        whole.env("CI", "true");
    }
    let fuzz = cargo_in(workspace, &["test", "--manifest-path", "fuzz/Cargo.toml"]);
    vec![
        Check::new("tests of the crates", units),
        Check::new("fuzz targets on their seeds", fuzz),
        Check::new("tests end to end", whole),
    ]
}

fn cargo_in(workspace: &Workspace, words: &[&str]) -> Command {
    let mut cargo = cargo();
    cargo.current_dir(&workspace.root).args(words);
    cargo
}
