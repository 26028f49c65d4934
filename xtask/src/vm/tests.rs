//! The end-to-end tests as a script for a guest: the binaries that `cargo test` would run.

use anyhow::{Result, bail};
use serde_json::Value;

use super::{Guest, kernel};
use crate::command::{capture, cargo};
use crate::progress::step;
use crate::workspace::Workspace;

/// Boots kernel `number` with options, and runs the test binaries called `names` (none: all) in it.
pub(crate) fn suite(
    workspace: &Workspace,
    (number, options): (&str, &str),
    names: &[&str],
    see: impl FnMut(&str),
) -> Result<()> {
    let release = kernel::parse(number).map_err(anyhow::Error::msg)?;
    let script = script(workspace, names)?;
    let guest = Guest {
        release,
        append: options,
        minutes: 30,
    };
    match guest.run(workspace, &script, see)? {
        0 => Ok(()),
        status => bail!("tests end to end on kernel {number}: exit status {status}"),
    }
}

/// Builds the tests and writes the script.
pub(super) fn script(workspace: &Workspace, names: &[&str]) -> Result<String> {
    step("test binaries for the guest", || {
        let messages = capture(
            cargo()
                .current_dir(&workspace.root)
                .args(["test", "--package", "htrace-tests", "--tests", "--no-run"])
                .arg("--message-format=json"),
        )?;
        let binaries = binaries(&messages, names);
        if binaries.is_empty() {
            bail!("there is no test binary of {names:?}");
        }
        Ok(shell_script(workspace, &binaries))
    })
}

/// The executables of integration tests in cargo's messages.
fn binaries(messages: &str, names: &[&str]) -> Vec<String> {
    let executable = |line: &str| -> Option<String> {
        let message: Value = serde_json::from_str(line).ok()?;
        let target = message.get("target")?;
        let name = target.get("name")?.as_str()?;
        let is_test = target
            .get("kind")?
            .as_array()?
            .iter()
            .any(|kind| kind == "test");
        let is_wanted = names.is_empty() || names.contains(&name);
        let path = message.get("executable")?.as_str()?;
        (is_test && is_wanted).then(|| path.to_owned())
    };
    messages.lines().filter_map(executable).collect()
}

/// Runs all binaries, whatever the earlier ones did. No skip is allowed there: the guest has all
/// that this machine has.
fn shell_script(workspace: &Workspace, binaries: &[String]) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut script = format!(
        "export PATH='{path}' HOME=/root CI=true HTRACE_BPF_BIN='{}'\ncd '{}' || exit 1\nstatus=0\n",
        workspace.binary(true).display(),
        workspace.root.join("tests").display()
    );
    for binary in binaries {
        script.push_str(&format!(
            "'{binary}' --color=never --test-threads=1 || status=1\n"
        ));
    }
    script.push_str("exit $status\n");
    script
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    const MESSAGES: &str = concat!(
        r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"htrace_tests"},"executable":null}"#,
        "\n",
        r#"{"reason":"compiler-artifact","target":{"kind":["test"],"name":"counts"},"executable":"/t/counts-1"}"#,
        "\n",
        r#"{"reason":"compiler-artifact","target":{"kind":["test"],"name":"ends"},"executable":"/t/ends-2"}"#,
        "\n",
        r#"{"reason":"build-finished","success":true}"#,
    );

    #[test]
    fn test_binaries_are_found_by_name() {
        assert_eq!(binaries(MESSAGES, &[]), ["/t/counts-1", "/t/ends-2"]);
        assert_eq!(binaries(MESSAGES, &["ends"]), ["/t/ends-2"]);
        assert!(binaries("no JSON", &[]).is_empty());
    }

    #[test]
    fn one_failure_fails_the_script_but_all_are_run() {
        let workspace = Workspace {
            root: "/".into(),
            target: "/t".into(),
        };
        let script = shell_script(&workspace, &["/bin/false".into(), "/bin/true".into()]);
        let script = script.replace("cd '/tests'", "cd /");
        let status = crate::command::status(crate::command::command("sh").args(["-c", &script]));
        assert_eq!(status.unwrap().code(), Some(1));
        assert!(script.contains("'/bin/true' --color=never --test-threads=1 || status=1"));
    }
}
