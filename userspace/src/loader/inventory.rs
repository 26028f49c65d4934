//! What this process and this kernel offer to a recording, and what each thing that is missing
//! costs: for `htrace-bpf check` without a file.
//!
//! [`Facts::gather`] reads them, the rest is pure.

use std::{fs, path::Path};

use nix::sys::resource::{Resource, getrlimit};

use super::{object, privileges};

/// What was found out.
#[derive(Clone, Debug)]
pub struct Facts {
    release: String,
    version: (u32, u32),
    /// Bits of `linux/capability.h`.
    capabilities: u64,
    has_types: bool,
    /// Mode of `/sys/kernel/security/lockdown`.
    lockdown: Option<String>,
    initial_user_namespace: bool,
    paranoid: Option<i32>,
    limits: Limits,
}

/// Limits of this process; `None` for none.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    files: Option<u64>,
    locked_memory: Option<u64>,
    file_size: Option<u64>,
}

/// One thing, whether it is there, and what its absence costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub what: String,
    /// True if it is there, or as it should be.
    pub is_there: bool,
    /// What its absence costs.
    pub cost: &'static str,
}

/// Name, bit and what its absence costs.
const CAPABILITIES: [(&str, u32, &str); 6] = [
    ("CAP_BPF", 39, "nothing can be recorded"),
    ("CAP_PERFMON", 38, "nothing can be recorded"),
    (
        "CAP_SYS_PTRACE",
        19,
        "only processes of the same user, with no more privileges, can be attached to",
    ),
    (
        "CAP_DAC_READ_SEARCH",
        2,
        "files that this user cannot read give no names and no unwind tables",
    ),
    (
        "CAP_CHECKPOINT_RESTORE",
        40,
        "deleted or replaced libraries of a running process give no names",
    ),
    (
        "CAP_KILL",
        5,
        "signals are not passed on to a program that runs as another user",
    ),
];
const CAP_SYS_ADMIN: u32 = 21;

/// First version with something, what that is, and what its absence costs.
const SINCE: [((u32, u32), &str, &str); 5] = [
    (
        (5, 8),
        "BPF ring buffers (Linux 5.8)",
        "nothing can be recorded",
    ),
    (
        (5, 11),
        "BPF maps outside of the limit of locked memory (Linux 5.11)",
        "`ulimit -l` has to allow for the maps",
    ),
    (
        (5, 17),
        "bpf_loop and bpf_find_vma (Linux 5.17)",
        "stacks are walked by frame pointers, not by unwind tables",
    ),
    (
        (6, 0),
        "probes that may sleep (Linux 6.0)",
        "threads do not wait for room in the ring buffer: what finds none is lost and counted",
    ),
    (
        (6, 6),
        "multi-uprobe links (Linux 6.6)",
        "attaching takes a perf event and a descriptor for each probe",
    ),
];

/// Descriptors that one perf event a probe may take, with room for files.
const DESCRIPTORS: u64 = 256;

impl Facts {
    /// Reads them. What cannot be read counts as absent.
    #[must_use]
    pub fn gather() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let limit = |resource| match getrlimit(resource) {
            Ok((soft, _)) if soft != libc::RLIM_INFINITY => Some(soft),
            _ => None,
        };
        Self {
            release: object::kernel_release(),
            version: object::kernel_version(),
            capabilities: privileges::effective(&read("/proc/self/status")),
            has_types: Path::new("/sys/kernel/btf/vmlinux").exists(),
            lockdown: privileges::active_lockdown(&read("/sys/kernel/security/lockdown"))
                .map(str::to_owned),
            initial_user_namespace: privileges::is_initial_user_namespace(&read(
                "/proc/self/uid_map",
            )),
            paranoid: read("/proc/sys/kernel/perf_event_paranoid")
                .trim()
                .parse()
                .ok(),
            limits: Limits {
                files: limit(Resource::RLIMIT_NOFILE),
                locked_memory: limit(Resource::RLIMIT_MEMLOCK),
                file_size: limit(Resource::RLIMIT_FSIZE),
            },
        }
    }

    /// All there is to say, group by group.
    #[must_use]
    pub fn groups(&self) -> [(&'static str, Vec<Finding>); 3] {
        [
            ("capabilities", self.of_capabilities()),
            ("kernel", self.of_kernel()),
            ("limits", self.of_limits()),
        ]
    }

    /// True if a recording is possible at all.
    #[must_use]
    pub fn can_record(&self) -> bool {
        let findings = self.groups().into_iter().flat_map(|(_, findings)| findings);
        findings
            .filter(|finding| !finding.is_there)
            .all(|finding| finding.cost != CAPABILITIES[0].2)
    }

    fn of_capabilities(&self) -> Vec<Finding> {
        let has = |bit: u32| self.capabilities & (1 << bit) != 0;
        // The administrator's capability contains those that were split off from it.
        let in_admin = [38, 39, 40];
        let of_one = |&(name, bit, cost): &(&str, u32, &'static str)| Finding {
            what: name.to_owned(),
            is_there: has(bit) || has(CAP_SYS_ADMIN) && in_admin.contains(&bit),
            cost,
        };
        let mut findings: Vec<_> = CAPABILITIES.iter().map(of_one).collect();
        findings.push(Finding {
            what: "initial user namespace".to_owned(),
            is_there: self.initial_user_namespace,
            cost: "nothing can be recorded",
        });
        findings
    }

    fn of_kernel(&self) -> Vec<Finding> {
        let since = |&(version, what, cost): &((u32, u32), &str, &'static str)| Finding {
            what: what.to_owned(),
            is_there: self.version >= version,
            cost,
        };
        let mut findings = vec![Finding {
            what: format!("Linux {}", self.release),
            is_there: true,
            cost: "",
        }];
        findings.extend(SINCE.iter().map(since));
        findings.push(Finding {
            what: "types at /sys/kernel/btf/vmlinux".to_owned(),
            is_there: self.has_types,
            cost: "stacks are walked by frame pointers, not by unwind tables",
        });
        let mode = self.lockdown.as_deref().unwrap_or("none");
        findings.push(Finding {
            what: format!("lockdown mode {mode}"),
            is_there: mode != "confidentiality",
            cost: "nothing can be recorded",
        });
        findings
    }

    fn of_limits(&self) -> Vec<Finding> {
        let shown = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |n| n.to_string());
        let Limits {
            files,
            locked_memory,
            file_size,
        } = self.limits;
        let paranoid = self
            .paranoid
            .map_or("unknown".to_owned(), |n| n.to_string());
        vec![
            Finding {
                what: format!("open files: {}", shown(files)),
                is_there: files.is_none_or(|files| files >= DESCRIPTORS),
                cost: "a target with many libraries may not be attached to",
            },
            Finding {
                what: format!("locked memory: {}", shown(locked_memory)),
                is_there: locked_memory.is_none() || self.version >= (5, 11),
                cost: "BPF maps may not fit",
            },
            Finding {
                what: format!("file size: {}", shown(file_size)),
                is_there: file_size.is_none(),
                cost: "the recording ends when its file is so large",
            },
            Finding {
                what: format!("kernel.perf_event_paranoid: {paranoid}"),
                is_there: self.paranoid.is_none_or(|level| level < 3)
                    || self.capabilities & (1 << CAP_SYS_ADMIN) != 0,
                cost: "some distributions' kernels ask for CAP_SYS_ADMIN",
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            release: "6.18.0".to_owned(),
            version: (6, 18),
            capabilities: 1 << 39 | 1 << 38,
            has_types: true,
            lockdown: None,
            initial_user_namespace: true,
            paranoid: Some(2),
            limits: Limits::default(),
        }
    }

    fn missing(facts: &Facts) -> Vec<String> {
        let all = facts
            .groups()
            .into_iter()
            .flat_map(|(_, findings)| findings);
        all.filter(|finding| !finding.is_there)
            .map(|finding| finding.what)
            .collect()
    }

    #[test]
    fn two_capabilities_are_enough_and_each_other_is_told() {
        let facts = facts();
        assert!(facts.can_record());
        assert_eq!(
            missing(&facts),
            [
                "CAP_SYS_PTRACE",
                "CAP_DAC_READ_SEARCH",
                "CAP_CHECKPOINT_RESTORE",
                "CAP_KILL"
            ]
        );
    }

    #[test]
    fn what_forbids_recording_is_known() {
        let without = |change: fn(&mut Facts)| {
            let mut facts = facts();
            change(&mut facts);
            facts.can_record()
        };
        assert!(!without(|facts| facts.capabilities = 1 << 39));
        assert!(!without(|facts| facts.version = (5, 4)));
        assert!(!without(|facts| facts.initial_user_namespace = false));
        assert!(!without(
            |facts| facts.lockdown = Some("confidentiality".to_owned())
        ));
        assert!(without(|facts| facts.capabilities = 1 << CAP_SYS_ADMIN));
        assert!(without(|facts| facts.version = (5, 10)));
    }

    #[test]
    fn an_old_kernel_lacks_what_came_later() {
        let old = Facts {
            version: (5, 10),
            capabilities: u64::MAX,
            limits: Limits {
                locked_memory: Some(65536),
                ..Limits::default()
            },
            ..facts()
        };
        let missing = missing(&old);
        assert_eq!(missing.len(), 5, "{missing:?}");
        assert!(missing.iter().any(|what| what == "locked memory: 65536"));
    }
}
