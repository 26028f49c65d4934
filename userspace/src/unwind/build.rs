//! From modules to tables, on all CPUs.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use htrace_unwind_tables::{BuildError, UnwindTable};

use super::cache::Cache;
use crate::modules::{Module, ModuleContent, OpenError};

/// Larger files are not read into memory. The largest in use, browsers with debug information,
/// have some GiB, but then their unwind data could not be had from a part of it.
const MAX_FILE_BYTES: u64 = 4 << 30;

/// A module and its table.
#[derive(Clone, Debug)]
pub struct Built {
    /// The module.
    pub module: Arc<Module>,
    /// Its table; `None` when none can be made, which was said in the log.
    pub table: Option<Arc<UnwindTable>>,
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("{0} bytes are too many")]
    TooLarge(u64),
}

/// Makes the tables of all modules, several at once.
#[must_use]
pub fn build_all(modules: &[Arc<Module>], cache: &Cache) -> Vec<Built> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(modules.len()));
    let work = || {
        while let Some(module) = modules.get(next.fetch_add(1, Ordering::Relaxed)) {
            let built = build(module, cache);
            done.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(built);
        }
    };
    let cpus = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for _ in 1..cpus.min(modules.len()) {
            scope.spawn(work);
        }
        work();
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the table of one module.
pub(super) fn build(module: &Arc<Module>, cache: &Cache) -> Built {
    let table = match load(module, cache) {
        Ok(table) => Some(Arc::new(table)),
        Err(error) => {
            tracing::info!("{}: no unwind table: {error}", module.name());
            None
        }
    };
    Built {
        module: Arc::clone(module),
        table,
    }
}

fn load(module: &Module, cache: &Cache) -> Result<UnwindTable, Failure> {
    let build_id = module.image().build_id.as_ref().map(|id| id.as_bytes());
    if let Some(table) = build_id.and_then(|id| cache.load(id)) {
        return Ok(table);
    }
    let table = match module.content()? {
        ModuleContent::File(file) => htrace_unwind_tables::build(&read_all(&file)?)?,
        ModuleContent::Bytes(bytes) => htrace_unwind_tables::build(&bytes)?,
    };
    if build_id == Some(table.build_id()) {
        cache.store(&table);
    }
    Ok(table)
}

/// The bytes of a shared file, whose position is left alone.
pub(super) fn read_all(file: &File) -> Result<Vec<u8>, Failure> {
    let length = file.metadata()?.len();
    if length > MAX_FILE_BYTES {
        return Err(Failure::TooLarge(length));
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| Failure::TooLarge(length))?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
