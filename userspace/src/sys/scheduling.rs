//! How the threads of this process share the machine with others.

use std::io;

use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};

/// What is wanted; nothing is changed of what is not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// A nice value (setpriority(2)).
    pub nice: Option<i32>,
    /// Numbers of the CPUs to run on.
    pub cpus: Option<Vec<usize>>,
}

impl Scheduling {
    /// Applies it to this thread; threads that it starts later inherit it.
    ///
    /// # Errors
    /// `EINVAL` when none of the CPUs is there; what the kernel returns.
    pub fn apply(&self) -> io::Result<()> {
        if let Some(cpus) = &self.cpus {
            let mut set = CpuSet::new();
            for cpu in cpus {
                set.set(*cpu)?;
            }
            sched_setaffinity(Pid::from_raw(0), &set)?;
        }
        if let Some(nice) = self.nice {
            // SAFETY: takes numbers alone. In Linux the value is the calling thread's.
            let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_moved_and_made_nice() {
        let applied = std::thread::spawn(|| {
            let scheduling = Scheduling {
                nice: Some(7),
                cpus: Some(vec![0]),
            };
            scheduling.apply().unwrap();
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            (status, stat)
        });
        let (status, stat) = applied.join().unwrap();
        let allowed = status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed_list"));
        assert_eq!(
            allowed.and_then(|line| line.split_whitespace().nth(1)),
            Some("0")
        );
        // proc(5): nice is field 19, the 17th behind the name.
        let behind = stat.rsplit_once(") ").unwrap().1;
        assert_eq!(behind.split(' ').nth(16), Some("7"));
    }

    #[test]
    fn a_machine_without_the_cpu_says_so() {
        let nowhere = Scheduling {
            nice: None,
            cpus: Some(vec![1023]),
        };
        let error = std::thread::spawn(move || nowhere.apply()).join().unwrap();
        assert!(error.is_err());
    }
}
