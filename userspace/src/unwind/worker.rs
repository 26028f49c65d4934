//! The threads that do what the target waits for.
//!
//! A target that waits keeps its CPU busy, and where the kernel does not preempt itself
//! (`preempt=none`), a thread that was woken on that CPU would run only when the wait has reached its
//! bound. So there is a thread for each of some CPUs, bound to it; all are woken, and the first
//! that runs does the work.

use std::{
    collections::HashMap,
    fs,
    io::{self, PipeReader, PipeWriter},
    os::fd::AsFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use htrace_ebpf_common::tables::FileKey;
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
    unistd::Pid,
};

use super::{
    cache::Cache,
    snapshots::Snapshots,
    tables::{MINOR_BITS, Tables},
};
use crate::{
    loader::{Acknowledgement, Notice, Notices},
    modules::{Device, MapsEntry, Module, ModuleId, ModuleKind, ModuleTable},
    sys::capabilities,
};

/// What the threads work on.
pub struct Work {
    /// The target in our pid namespace.
    pub pid: u32,
    /// What it waits for.
    pub notices: Notices,
    /// By what it is told to go on.
    pub acknowledgement: Acknowledgement,
    /// Where its mappings are noted.
    pub snapshots: Arc<Snapshots>,
    /// Its unwind tables; none if stacks are walked by frame pointers.
    pub tables: Option<TableWork>,
}

/// The part of [`Work`] that makes unwind tables.
pub struct TableWork {
    tables: Tables,
    modules: ModuleTable,
    cache: Cache,
    /// Which module's table each file has.
    assigned: HashMap<FileKey, ModuleId>,
}

/// The running threads.
#[derive(Debug)]
pub struct Worker {
    threads: Vec<JoinHandle<()>>,
    stop: PipeWriter,
}

/// More CPUs than these need not be looked out from: so many threads do not wait at once.
const MAX_LOOKOUTS: usize = 4;

const WAKE: u64 = 0;
const STOP: u64 = 1;

impl Worker {
    /// Starts to look out for notices.
    ///
    /// # Errors
    /// When there can be no further threads.
    pub fn start(work: Work) -> io::Result<Self> {
        let (stopped, stop) = io::pipe()?;
        let (work, stopped) = (Arc::new(Mutex::new(work)), Arc::new(stopped));
        let mut threads = Vec::new();
        for cpu in lookout_cpus() {
            let wakes = waiting_for(&lock(&work).notices, &stopped)?;
            let (work, stopped) = (Arc::clone(&work), Arc::clone(&stopped));
            let look_out = move || {
                stay_on(cpu);
                capabilities::keep_while_recording();
                look_out(&work, &wakes);
                // Until here it was waited for.
                drop(stopped);
            };
            threads.push(
                thread::Builder::new()
                    .name("lookout".to_owned())
                    .spawn(look_out)?,
            );
        }
        Ok(Self { threads, stop })
    }

    /// How many threads of the target may wait at once so that a CPU with a lookout is left.
    #[must_use]
    pub fn max_waiting() -> u64 {
        lookout_cpus().len() as u64 - 1
    }

    /// Ends the threads.
    pub fn finish(self) {
        drop(self.stop);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::warn!("a maker of unwind tables has died");
            }
        }
    }
}

/// CPUs that we may run on: some, at least one.
fn lookout_cpus() -> Vec<Option<usize>> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let cpus = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
    let cpus: Vec<Option<usize>> = cpus.map(Some).take(MAX_LOOKOUTS).collect();
    if cpus.is_empty() { vec![None] } else { cpus }
}

/// Binds the current thread to a CPU; where that is not allowed it only waits longer.
fn stay_on(cpu: Option<usize>) {
    let Some(cpu) = cpu else { return };
    let mut set = CpuSet::new();
    let bound = set
        .set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    if let Err(error) = bound {
        tracing::debug!("cannot stay on CPU {cpu}: {error}");
    }
}

fn waiting_for(notices: &Notices, stopped: &PipeReader) -> io::Result<Epoll> {
    let wakes = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    // A ring buffer is always ready while there is something in it: edges are waited for.
    let edges = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
    wakes.add(notices.as_fd(), EpollEvent::new(edges, WAKE))?;
    wakes.add(stopped, EpollEvent::new(EpollFlags::EPOLLIN, STOP))?;
    Ok(wakes)
}

fn look_out(work: &Mutex<Work>, wakes: &Epoll) {
    loop {
        let mut ready = [EpollEvent::empty(); 2];
        match wakes.wait(&mut ready, EpollTimeout::NONE) {
            Ok(count) if ready[..count].iter().any(|event| event.data() == STOP) => return,
            Ok(_) | Err(nix::Error::EINTR) => lock(work).serve(),
            Err(error) => {
                tracing::warn!("cannot look out for new modules: {error}");
                return;
            }
        }
    }
}

fn lock(work: &Mutex<Work>) -> MutexGuard<'_, Work> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work {
    /// Deals with all notices that are there.
    fn serve(&mut self) {
        while let Some(notice) = self.notices.take() {
            // A target that is gone has no mappings.
            let mappings = fs::read(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
            if let Some(tables) = &mut self.tables {
                tables.update(&mappings);
            }
            match (notice, &mut self.tables) {
                (Notice::ModulesChanged { stamp }, _) => {
                    self.snapshots.add(stamp, mappings);
                    self.acknowledgement.acknowledge(stamp);
                }
                (Notice::TableWanted { file, address }, Some(tables)) => {
                    tables.assign_at(file, address);
                }
                (Notice::TableWanted { .. }, None) => {}
            }
        }
    }
}

impl TableWork {
    /// Begins with the modules that the target has so far.
    #[must_use]
    pub fn new(tables: Tables, modules: ModuleTable, cache: Cache) -> Self {
        let assigned = HashMap::new();
        let mut work = Self {
            tables,
            modules,
            cache,
            assigned,
        };
        work.assign_all();
        work
    }

    fn update(&mut self, mappings: &[u8]) {
        self.modules.update(mappings);
        self.assign_all();
    }

    /// Gives tables to all files that are mapped now.
    fn assign_all(&mut self) {
        let mut missing: Vec<(FileKey, Arc<Module>)> = Vec::new();
        for mapping in self.modules.mappings() {
            let Some(module) = self.modules.module(mapping.module) else {
                continue;
            };
            let key = match module.kind() {
                ModuleKind::File => key_of(&mapping.entry),
                ModuleKind::Vdso => FileKey::vdso(mapping.entry.start),
                ModuleKind::Anonymous | ModuleKind::Unknown => continue,
            };
            if self.assigned.get(&key) != Some(&mapping.module) {
                self.assigned.insert(key, mapping.module);
                missing.push((key, Arc::clone(module)));
            }
        }
        for (key, module) in missing {
            self.tables.assign(key, &module, &self.cache);
        }
    }

    /// Gives a table to a file that the kernel knows by another key than `/proc` shows, or says
    /// that there is none.
    fn assign_at(&mut self, file: FileKey, address: u64) {
        if self.assigned.contains_key(&file) {
            return;
        }
        let module = self.modules.locate(address).map(|location| location.module);
        let Some(module) = module.and_then(|id| self.modules.module(id).cloned()) else {
            tracing::debug!("nothing is mapped at {address:#x} any more");
            return;
        };
        self.assigned.insert(file, module.id());
        self.tables.assign(file, &module, &self.cache);
    }
}

/// The key of a mapped file, by what `/proc/PID/maps` says of it.
fn key_of(entry: &MapsEntry) -> FileKey {
    FileKey {
        device: kernel_device(entry.device),
        inode: entry.inode,
    }
}

/// A device number in the kernel's own form: `MKDEV` in `include/linux/kdev_t.h`.
fn kernel_device(device: Device) -> u64 {
    u64::from(device.major) << MINOR_BITS | u64::from(device.minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_numbered_as_the_kernel_does() {
        let (major, minor) = (8, 0x12345);
        assert_eq!(kernel_device(Device { major, minor }), 0x0081_2345);
    }

    #[test]
    fn mapped_files_are_known_by_device_and_inode() {
        let text = b"1000-2000 r-xp 00000000 08:11 77 /usr/lib/x.so\n";
        let entry = crate::modules::maps::parse(text).next().unwrap().unwrap();
        let expected = FileKey {
            device: 0x0080_0011,
            inode: 77,
        };
        assert_eq!(key_of(&entry), expected);
    }

    #[test]
    fn there_is_a_lookout_on_few_cpus_and_one_may_wait_less() {
        let cpus = lookout_cpus();
        assert!((1..=MAX_LOOKOUTS).contains(&cpus.len()));
        assert_eq!(Worker::max_waiting(), cpus.len() as u64 - 1);
    }
}
