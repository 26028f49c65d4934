//! The tables that the BPF programs have, by the files that they belong to.

use std::{collections::HashMap, os::unix::fs::MetadataExt, sync::Arc};

use htrace_ebpf_common::tables::FileKey;
use htrace_unwind_tables::UnwindTable;

use super::{
    build::{Built, build},
    cache::Cache,
};
use crate::{
    loader::tables::{Installed, TableError, TableMaps, words_of},
    modules::{Module, ModuleContent},
};

/// In a device number in the kernel's own form: `include/linux/kdev_t.h`.
pub(super) const MINOR_BITS: u32 = 20;

/// Tables in the programs' maps.
pub struct Tables {
    maps: TableMaps,
    /// By build id: several files can have the same contents.
    installed: HashMap<Vec<u8>, Installed>,
}

impl Tables {
    /// Words of memory that so many tables need, with room for those of modules that come later.
    #[must_use]
    pub fn words_for(built: &[Built]) -> u32 {
        /// For libraries that are loaded at run time: 16 MiB.
        const ROOM: usize = 2 << 20;
        /// All tables together: 64 MiB.
        const BUDGET: usize = 8 << 20;
        let needed: usize = built
            .iter()
            .filter_map(|built| built.table.as_deref())
            .map(words_of)
            .sum();
        u32::try_from(needed.saturating_add(ROOM).min(BUDGET)).unwrap_or(u32::MAX)
    }

    /// No tables yet.
    #[must_use]
    pub fn new(maps: TableMaps) -> Self {
        Self {
            maps,
            installed: HashMap::new(),
        }
    }

    /// Takes over tables that were made before. The kernel knows files by what `stat` says, or
    /// almost always: where it does not, the programs will ask.
    pub fn add(&mut self, built: &[Built]) {
        for built in built {
            let Ok(ModuleContent::File(file)) = built.module.content() else {
                continue;
            };
            let Ok(metadata) = file.metadata() else {
                continue;
            };
            let device = u64::from(libc::major(metadata.dev())) << MINOR_BITS
                | u64::from(libc::minor(metadata.dev()));
            self.give(
                FileKey {
                    device,
                    inode: metadata.ino(),
                },
                built,
            );
        }
    }

    /// Gives `file` the table of its module.
    pub(super) fn assign(&mut self, file: FileKey, module: &Arc<Module>, cache: &Cache) {
        let id = module.image().build_id.as_ref().map(|id| id.as_bytes());
        match id.and_then(|id| self.installed.get(id)).copied() {
            Some(installed) => self.put(file, installed, module),
            None => self.give(file, &build(module, cache)),
        }
    }

    /// What fails leaves the file without a table, and stacks end there and say so.
    fn give(&mut self, file: FileKey, built: &Built) {
        let installed = built
            .table
            .as_ref()
            .map(|table| self.install(table, &built.module));
        let installed = match installed {
            Some(Ok(installed)) => installed,
            None => Installed::NONE,
            Some(Err(error)) => {
                tracing::warn!("{}: stacks end there: {error}", built.module.name());
                Installed::NONE
            }
        };
        self.put(file, installed, &built.module);
    }

    fn put(&mut self, file: FileKey, installed: Installed, module: &Module) {
        if let Err(error) = self.maps.assign(file, installed) {
            tracing::warn!("{}: stacks end there: {error}", module.name());
        }
    }

    fn install(
        &mut self,
        table: &Arc<UnwindTable>,
        module: &Module,
    ) -> Result<Installed, TableError> {
        let id = table.build_id();
        if let Some(installed) = self.installed.get(id) {
            return Ok(*installed);
        }
        let installed = match self.maps.install(table) {
            Err(TableError::Full { .. }) => self.install_filtered(table, module)?,
            other => other?,
        };
        if !id.is_empty() {
            self.installed.insert(id.to_vec(), installed);
        }
        Ok(installed)
    }

    /// Where room is short, a table for return addresses alone does: it is some ten times smaller.
    fn install_filtered(
        &mut self,
        table: &UnwindTable,
        module: &Module,
    ) -> Result<Installed, TableError> {
        let filtered = content(module).and_then(|bytes| table.filter_call_sites(&bytes).ok());
        self.maps.install(filtered.as_ref().unwrap_or(table))
    }
}

fn content(module: &Module) -> Option<Vec<u8>> {
    match module.content().ok()? {
        ModuleContent::File(file) => super::build::read_all(&file).ok(),
        ModuleContent::Bytes(bytes) => Some(bytes.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use std::{env, path::Path};

    use super::*;
    use crate::{modules::ModuleId, unwind::build_all};

    fn built(paths: &[&Path]) -> Vec<Built> {
        let open = |(number, path): (u32, &&Path)| Module::of_path(ModuleId(number), path);
        let modules: Vec<Arc<Module>> = (0..)
            .zip(paths)
            .map(|pair| Arc::new(open(pair).unwrap()))
            .collect();
        build_all(&modules, &Cache::none())
    }

    #[test]
    fn there_is_room_for_all_tables_and_for_later_ones_up_to_the_budget() {
        let program = env::current_exe().unwrap();
        let nothing = Tables::words_for(&[]);
        let one = Tables::words_for(&built(&[&program]));
        let table = built(&[&program])[0].table.clone().unwrap();
        assert_eq!((one - nothing) as usize, words_of(&table));
        assert!(words_of(&table) >= table.rows().len());
        let many = vec![program.as_path(); 40];
        let bounded = Tables::words_for(&built(&many));
        assert!(bounded > one && bounded as usize <= 8 << 20, "{bounded}");
    }

    #[test]
    fn a_module_without_a_table_needs_no_room() {
        let directory = tempfile::tempdir().unwrap();
        let text = directory.path().join("text");
        std::fs::write(&text, "no ELF file").unwrap();
        assert_eq!(Tables::words_for(&built(&[&text])), Tables::words_for(&[]));
    }
}
