//! Debian's packages: which are missing, and installing them.

use std::process::Stdio;

use anyhow::{Result, bail};

use crate::command::{as_root, command, find_program, is_root, run};
use crate::progress::{note, nothing_to_do, step};

/// Whether this machine installs Debian's packages.
pub(crate) fn is_debian() -> bool {
    find_program("apt-get").is_some() && find_program("dpkg-query").is_some()
}

/// Makes sure that `packages` are installed. `what` names them for people.
///
/// # Errors
/// Where nothing can be installed, the message holds the command that root should run.
pub(crate) fn ensure(what: &str, packages: &[&str]) -> Result<()> {
    if !is_debian() {
        bail!("this is no Debian: install by its own means what these packages hold: {packages:?}");
    }
    let missing = missing(packages)?;
    if missing.is_empty() {
        nothing_to_do(what, "all are installed");
        return Ok(());
    }
    step(
        format_args!("{what}: installing {}", missing.join(", ")),
        || install(&missing),
    )
}

/// Which of `packages` dpkg does not know as installed.
fn missing<'a>(packages: &[&'a str]) -> Result<Vec<&'a str>> {
    let output = command("dpkg-query")
        .args(["--show", "--showformat=${Package} ${db:Status-Status}\n"])
        .args(packages)
        .stderr(Stdio::null()) // it complains about every package that it has never heard of
        .output()?;
    let states = String::from_utf8_lossy(&output.stdout);
    Ok(not_installed(packages, &states))
}

/// `states` holds lines `package status`.
fn not_installed<'a>(packages: &[&'a str], states: &str) -> Vec<&'a str> {
    let installed = states
        .lines()
        .filter_map(|line| line.strip_suffix(" installed"));
    let installed = installed.collect::<Vec<_>>();
    packages
        .iter()
        .copied()
        .filter(|package| !installed.contains(package))
        .collect()
}

fn install(packages: &[&str]) -> Result<()> {
    let update = ["apt-get", "update", "--quiet"];
    let mut install = vec![
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "install",
        "--yes",
        "--quiet",
    ];
    install.push("--no-install-recommends");
    install.extend(packages);
    let (Some(mut update), Some(mut install)) = (as_root(&update), as_root(&install)) else {
        bail!(
            "installing needs root: run as root `{}`, then this again",
            by_hand(packages)
        );
    };
    if !is_root() {
        note("through sudo, which may ask for your password");
    }
    // apt writes its progress to standard output, which belongs to a program that may be run next.
    run(update.stdout(std::io::stderr()))?;
    run(install.stdout(std::io::stderr()))
}

/// The command that does by hand what [`ensure`] does.
pub(crate) fn by_hand(packages: &[&str]) -> String {
    format!(
        "apt-get update && apt-get install --yes {}",
        packages.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_installed_packages_count() {
        let states = "g++ installed\nheaptrack config-files\n";
        assert_eq!(
            not_installed(&["g++", "heaptrack", "new"], states),
            ["heaptrack", "new"]
        );
    }

    #[test]
    fn a_longer_name_is_another_package() {
        assert_eq!(not_installed(&["g++"], "g++-12 installed\n"), ["g++"]);
    }
}
