//! From modules to tables, on all CPUs.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

use htrace_unwind_tables::{BuildError, UnwindTable};

use super::cache::Cache;
use crate::{
    modules::{Module, ModuleContent, OpenError},
    parallel,
};

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
    parallel::map(modules, |module| build(module, cache))
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
    let stored = build_id.and_then(|id| cache.load(id));
    if let Some(table) = stored.filter(|table| fits(table, module)) {
        return Ok(table);
    }
    let (table, image_bytes) = match module.content()? {
        ModuleContent::File(file) => built_from(&read_all(&file)?)?,
        ModuleContent::Bytes(bytes) => built_from(&bytes)?,
    };
    if build_id == Some(table.build_id()) {
        cache.store(&table, image_bytes);
    }
    Ok(table)
}

/// The table of an image, and how many bytes that has.
fn built_from(image: &[u8]) -> Result<(UnwindTable, usize), BuildError> {
    htrace_unwind_tables::build(image).map(|table| (table, image.len()))
}

/// Whether a table's code is where the module's is. A file may bear the build id of another.
fn fits(table: &UnwindTable, module: &Module) -> bool {
    let segments = &module.image().segments;
    table.segments().iter().all(|code| {
        segments.iter().any(|segment| {
            segment.file_offset == code.file_offset
                && segment.file_size == code.size
                && segment.virtual_address == code.address
        })
    })
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

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    use super::*;
    use crate::modules::ModuleId;

    fn module(number: u32, path: &Path) -> Arc<Module> {
        Arc::new(Module::of_path(ModuleId(number), path).unwrap())
    }

    #[test]
    fn every_module_is_built_once_and_what_cannot_be_built_has_no_table() {
        let directory = tempfile::tempdir().unwrap();
        let text = directory.path().join("text");
        fs::write(&text, "no ELF file").unwrap();
        let program = env::current_exe().unwrap();
        let modules: Vec<Arc<Module>> = (0..9)
            .map(|number| match number % 3 {
                0 => module(number, &text),
                _ => module(number, &program),
            })
            .collect();
        let mut built = build_all(&modules, &Cache::none());
        built.sort_by_key(|built| built.module.id());
        let ids: Vec<ModuleId> = built.iter().map(|built| built.module.id()).collect();
        assert_eq!(ids, (0..9).map(ModuleId).collect::<Vec<_>>());
        for built in &built {
            assert_eq!(built.table.is_some(), built.module.id().0 % 3 != 0);
        }
    }

    #[test]
    fn a_stored_table_of_other_code_is_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(&directory.path().join("tables"));
        let program = env::current_exe().unwrap();
        let table = build(&module(0, &program), &cache).table.unwrap();
        assert!(cache.load(table.build_id()).is_some());
        // The same build id, but code that ends one byte earlier.
        let mut image = fs::read(&program).unwrap();
        let header = executable_header(&image);
        image[header + 32] ^= 1;
        let other = directory.path().join("other");
        fs::write(&other, image).unwrap();
        let other = build(&module(1, &other), &cache).table.unwrap();
        assert_eq!(other.build_id(), table.build_id());
        assert_ne!(other.segments(), table.segments());
    }

    /// Where the program header of an image's code begins.
    fn executable_header(image: &[u8]) -> usize {
        let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap()) as usize;
        let headers = (0..64).map(|index| word(0x20) + index * 56);
        // PT_LOAD, readable and executable.
        let mut code = headers.filter(|at| word(*at) == 1 | 5 << 32);
        code.next().unwrap()
    }
}
