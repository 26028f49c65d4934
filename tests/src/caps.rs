//! User nobody with exact capabilities, by `setpriv`.

use std::ffi::OsString;

/// The `setpriv` command line that runs what follows as user and group 65534
/// with exactly these capabilities (`bpf`, `perfmon`, …) inherited, ambient,
/// and as bound.
pub fn nobody_with(capabilities: &[&str]) -> Vec<OsString> {
    let set: String = capabilities
        .iter()
        .fold("-all".to_owned(), |set, capability| set + ",+" + capability);
    [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ]
    .into_iter()
    .map(OsString::from)
    .chain(
        ["inh-caps", "ambient-caps", "bounding-set"].map(|which| format!("--{which}={set}").into()),
    )
    .collect()
}

#[cfg(test)]
mod tests {
    use super::nobody_with;
    use crate::features::{Feature, require};
    use crate::process::run;
    use std::process::Command;

    #[test]
    fn gives_exactly_the_capabilities() {
        if !require(Feature::Root) || !require(Feature::Setpriv) {
            return;
        }
        let words = nobody_with(&["bpf", "perfmon"]);
        let status = ["grep", "-E", "Uid|CapEff", "/proc/self/status"];
        let ended = run(Command::new(&words[0]).args(&words[1..]).args(status), b"");
        let text = String::from_utf8_lossy(&ended.stdout);
        assert!(
            text.contains("Uid:\t65534\t65534\t65534\t65534"),
            "{text}{}",
            ended.stderr
        );
        assert!(
            text.contains("CapEff:\t000000c000000000"),
            "{text}{}",
            ended.stderr
        );
    }
}
