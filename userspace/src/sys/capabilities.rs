//! Gives up capabilities. They belong to a thread, so each thread does it for itself.

use rustix::{
    io,
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs},
};

/// What a recording still needs once its target runs: to attach to allocators that are loaded later
/// and to use maps (BPF, PERFMON), to look into a process of somebody else and to read its
/// files (SYS_PTRACE, DAC_READ_SEARCH, CHECKPOINT_RESTORE for `/proc/PID/map_files`), and to pass
/// signals on to a program that runs as somebody else (KILL). Detaching needs none.
const WHILE_RECORDING: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::CHECKPOINT_RESTORE)
    .union(CapabilitySet::KILL);

/// What CAP_SYS_ADMIN stands in for, where it came without these.
const OF_ADMIN: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

/// Keeps of the calling thread's capabilities only those that a recording needs while it runs, and
/// forbids to gain others by executing something.
pub fn keep_while_recording() {
    if let Err(error) = keep() {
        tracing::debug!("capabilities are not given up: {error}");
    }
}

fn keep() -> io::Result<()> {
    let held = capabilities(None)?;
    let kept = kept_of(held.permitted);
    set_capabilities(
        None,
        CapabilitySets {
            effective: held.effective & kept,
            permitted: held.permitted & kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    set_no_new_privs(true)
}

fn kept_of(permitted: CapabilitySet) -> CapabilitySet {
    if permitted.contains(OF_ADMIN) {
        WHILE_RECORDING
    } else {
        WHILE_RECORDING | CapabilitySet::SYS_ADMIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gives_up_what_is_not_needed_and_others_do_not() {
        let before = capabilities(None).unwrap();
        let after = std::thread::spawn(|| {
            keep_while_recording();
            capabilities(None).unwrap()
        });
        let after = after.join().unwrap();
        let kept = kept_of(before.permitted);
        assert_eq!(after.permitted, before.permitted & kept);
        assert_eq!(after.effective, before.effective & kept);
        assert_eq!(capabilities(None).unwrap(), before);
    }

    #[test]
    fn admin_is_kept_only_where_it_stands_in_for_others() {
        assert!(!kept_of(CapabilitySet::all()).contains(CapabilitySet::SYS_ADMIN));
        assert!(kept_of(CapabilitySet::SYS_ADMIN).contains(CapabilitySet::SYS_ADMIN));
    }
}
