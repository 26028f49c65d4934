//! Which privileges this process has, and which it would need.

use std::{fmt, fs};

/// Bits of the capability sets in `/proc/PID/status`; `linux/capability.h`.
const CAPABILITIES: [(&str, u32); 2] = [("CAP_BPF", 39), ("CAP_PERFMON", 38)];
/// Stands for both of the above.
const CAP_SYS_ADMIN: u32 = 21;

/// What keeps this process from loading or attaching programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Capabilities that it does not have.
    Capabilities(Vec<&'static str>),
    /// The kernel's lock-down mode.
    Lockdown(String),
    /// Capabilities are there, but in a user namespace that is not the initial one.
    UserNamespace,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capabilities(names) => {
                let names = names.join(" and ");
                let plural = if names.contains(' ') { "are" } else { "is" };
                write!(
                    f,
                    "{names} {plural} missing: run as root (sudo), or give this process "
                )?;
                write!(f, "CAP_BPF and CAP_PERFMON")
            }
            Self::Lockdown(mode) => {
                write!(
                    f,
                    "The kernel is locked down ({mode}), which forbids reading the target's "
                )?;
                write!(
                    f,
                    "memory from BPF: boot with lockdown=integrity or without it"
                )
            }
            Self::UserNamespace => {
                write!(
                    f,
                    "Capabilities count only in the initial user namespace: run outside "
                )?;
                write!(
                    f,
                    "the container, or in one without a user namespace of its own"
                )
            }
        }
    }
}

/// What this process lacks, as far as it can be told.
pub(super) fn missing() -> Option<Missing> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let names = missing_capabilities(&status);
    if !names.is_empty() {
        return Some(Missing::Capabilities(names));
    }
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if let Some(mode) = active_lockdown(&lockdown).filter(|mode| *mode == "confidentiality") {
        return Some(Missing::Lockdown(mode.to_owned()));
    }
    let uid_map = fs::read_to_string("/proc/self/uid_map").ok()?;
    (!is_initial_user_namespace(&uid_map)).then_some(Missing::UserNamespace)
}

/// Effective capabilities in the text of `/proc/PID/status`.
pub(super) fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

fn missing_capabilities(status: &str) -> Vec<&'static str> {
    let effective = effective(status);
    let has = |bit: u32| effective & (1 << bit) != 0;
    if has(CAP_SYS_ADMIN) {
        return Vec::new();
    }
    CAPABILITIES
        .iter()
        .filter(|(_, bit)| !has(*bit))
        .map(|(name, _)| *name)
        .collect()
}

/// The mode in brackets: `none [integrity] confidentiality`.
pub(super) fn active_lockdown(text: &str) -> Option<&str> {
    text.split_once('[')?
        .1
        .split_once(']')
        .map(|(mode, _)| mode)
}

/// The initial user namespace maps all ids to themselves.
pub(super) fn is_initial_user_namespace(uid_map: &str) -> bool {
    uid_map
        .split_ascii_whitespace()
        .eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_capability_is_named() {
        let status = |set: u64| format!("Name:\tx\nCapEff:\t{set:016x}\n");
        assert_eq!(missing_capabilities(&status(0)), ["CAP_BPF", "CAP_PERFMON"]);
        assert_eq!(missing_capabilities(&status(1 << 39)), ["CAP_PERFMON"]);
        assert_eq!(missing_capabilities(&status(1 << 38)), ["CAP_BPF"]);
        assert!(missing_capabilities(&status(1 << 21)).is_empty());
        let message = Missing::Capabilities(vec!["CAP_BPF"]).to_string();
        assert!(message.starts_with("CAP_BPF is missing"), "{message}");
    }

    #[test]
    fn lockdown_and_namespaces_are_read() {
        assert_eq!(
            active_lockdown("none [integrity] confidentiality\n"),
            Some("integrity")
        );
        assert_eq!(active_lockdown(""), None);
        assert!(is_initial_user_namespace(
            "         0          0 4294967295\n"
        ));
        assert!(!is_initial_user_namespace("0 100000 65536\n"));
    }
}
