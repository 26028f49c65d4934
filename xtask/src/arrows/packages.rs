//! Which package may name which: the table, and its comparison with `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// What each package may use of the workspace. A package that is missing here is a fault: whoever
/// adds one decides where it stands.
const MAY_USE: &[(&str, &[&str])] = &[
    ("htrace-analysis", &["htrace-trace-format"]),
    (
        "htrace-bpf",
        &[
            "htrace-analysis",
            "htrace-ebpf-common",
            "htrace-trace-format",
            "htrace-unwind-tables",
        ],
    ),
    (
        "htrace-ebpf",
        &["htrace-ebpf-common", "htrace-unwind-tables"],
    ),
    ("htrace-ebpf-common", &[]),
    (
        "htrace-tests",
        &[
            "htrace-analysis",
            "htrace-ebpf-common",
            "htrace-trace-format",
            "htrace-unwind-tables",
        ],
    ),
    ("htrace-trace-format", &[]),
    ("htrace-unwind-tables", &["htrace-ebpf-common"]),
    ("xtask", &[]),
];

/// Foreign packages that only some may name.
const RESERVED: &[(&str, &[&str])] = &[
    ("aya", &["htrace-bpf"]),
    ("aya-ebpf", &["htrace-ebpf"]),
    ("aya-log", &["htrace-bpf"]),
    ("aya-log-ebpf", &["htrace-ebpf"]),
    ("aya-obj", &["htrace-bpf"]),
];

/// Foreign packages that pure crates must not name: what knows BPF, processes or the system.
const IMPURE: &[&str] = &["blazesym", "libc", "nix", "tokio"];
const PURE: &[&str] = &[
    "htrace-analysis",
    "htrace-ebpf-common",
    "htrace-trace-format",
];

/// The names that one package's manifest depends on.
type Manifests<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// One sentence for each arrow that must not be.
pub(super) fn faults(metadata: &Value) -> Result<Vec<String>> {
    let manifests = manifests(metadata).context("`cargo metadata` has an unknown shape")?;
    let mut faults = Vec::new();
    for (package, uses) in &manifests {
        faults.extend(wrong_arrows(package, uses, &manifests));
        faults.extend(reserved_names(package, uses));
    }
    Ok(faults)
}

fn manifests(metadata: &Value) -> Option<Manifests<'_>> {
    metadata
        .get("packages")?
        .as_array()?
        .iter()
        .map(manifest)
        .collect()
}

fn manifest(package: &Value) -> Option<(&str, BTreeSet<&str>)> {
    let uses = package.get("dependencies")?.as_array()?.iter();
    let uses = uses.map(|dependency| dependency.get("name")?.as_str());
    Some((package.get("name")?.as_str()?, uses.collect::<Option<_>>()?))
}

fn wrong_arrows(package: &str, uses: &BTreeSet<&str>, workspace: &Manifests<'_>) -> Vec<String> {
    let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == package) else {
        return vec![format!(
            "{package}: not in the table of xtask/src/arrows/packages.rs"
        )];
    };
    uses.iter()
        .filter(|used| workspace.contains_key(*used) && !allowed.contains(used))
        .map(|used| format!("{package} -> {used}: this arrow must not be"))
        .collect()
}

fn reserved_names(package: &str, uses: &BTreeSet<&str>) -> Vec<String> {
    let is_reserved = |used: &&&str| {
        let users = RESERVED
            .iter()
            .find(|(name, _)| name == *used)
            .map(|(_, users)| users);
        let pure = PURE.contains(&package) && IMPURE.contains(used);
        pure || users.is_some_and(|users| !users.contains(&package))
    };
    uses.iter()
        .filter(is_reserved)
        .map(|used| format!("{package} -> {used}: {package} must not know it"))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, uses: &[&str]) -> Value {
        let uses = uses
            .iter()
            .map(|name| json!({ "name": name }))
            .collect::<Vec<_>>();
        json!({ "name": name, "dependencies": uses })
    }

    fn faults_of(packages: &[Value]) -> Vec<String> {
        faults(&json!({ "packages": packages })).unwrap()
    }

    #[test]
    fn arrows_as_drawn_are_no_fault() {
        let found = faults_of(&[
            package(
                "htrace-bpf",
                &["aya", "htrace-analysis", "libc", "htrace-trace-format"],
            ),
            package("htrace-analysis", &["htrace-trace-format", "thiserror"]),
            package("htrace-trace-format", &["zstd"]),
            package("htrace-ebpf", &["aya-ebpf", "htrace-ebpf-common"]),
            package("htrace-ebpf-common", &[]),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn an_arrow_that_points_back_is_told() {
        let found = faults_of(&[
            package("htrace-trace-format", &["htrace-analysis"]),
            package("htrace-analysis", &[]),
        ]);
        assert_eq!(
            found,
            ["htrace-trace-format -> htrace-analysis: this arrow must not be"]
        );
    }

    #[test]
    fn nothing_depends_on_the_programs() {
        for user in ["htrace-bpf", "htrace-tests", "xtask"] {
            let found = faults_of(&[package(user, &["htrace-ebpf"]), package("htrace-ebpf", &[])]);
            assert_eq!(found.len(), 1, "{user}: {found:?}");
        }
    }

    #[test]
    fn names_of_the_kernel_stay_where_they_belong() {
        let cases = [
            ("htrace-analysis", "aya"),
            ("htrace-trace-format", "libc"),
            ("htrace-analysis", "blazesym"),
            ("htrace-tests", "aya"),
            ("htrace-bpf", "aya-ebpf"),
        ];
        for (user, used) in cases {
            let found = faults_of(&[package(user, &[used])]);
            assert_eq!(
                found,
                [format!("{user} -> {used}: {user} must not know it")]
            );
        }
    }

    #[test]
    fn a_package_that_nobody_placed_is_told() {
        assert_eq!(faults_of(&[package("htrace-new", &[])]).len(), 1);
    }

    #[test]
    fn an_unknown_shape_is_an_error() {
        assert!(faults(&json!({ "packages": [{ "name": "xtask" }] })).is_err());
        assert!(faults(&json!({})).is_err());
    }
}
