//! Finds the files to be probed among a target's modules, and attaches to them.

use std::{collections::HashSet, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use object::ReadCache;

use super::{names, subject::Subject};
use crate::{
    loader::{AttachPoints, LoadError, Placing, Programs, functions},
    modules::{Module, ModuleContent, ProcOpener, positioned::PositionedFile},
};

/// The files that are probed.
#[derive(Debug, Default)]
pub struct Allocators {
    /// Device and inode of each file that was looked into: one file can have several paths.
    seen: HashSet<(u64, u64)>,
    /// Paths of the allocators that are probed.
    found: Vec<String>,
}

impl Allocators {
    /// Attaches to what the target has loaded, or will load as far as can be foretold.
    pub(super) fn attach_all(
        &mut self,
        programs: &mut Programs,
        subject: &Subject,
    ) -> Result<(), LoadError> {
        for module in subject.modules() {
            self.attach(programs, &module, subject.pid())?;
        }
        Ok(())
    }

    /// Attaches to a module if it has an allocator, be it of C or of C++ alone, is the dynamic
    /// linker, or maps code. Returns true if it is an allocator that was not probed before.
    pub(super) fn attach(
        &mut self,
        programs: &mut Programs,
        module: &Arc<Module>,
        pid: u32,
    ) -> Result<bool, LoadError> {
        let Ok(ModuleContent::File(file)) = module.content() else {
            return Ok(false);
        };
        let Ok(metadata) = file.metadata() else {
            return Ok(false);
        };
        if !self.seen.insert((metadata.dev(), metadata.ino())) {
            return Ok(false);
        }
        let cache = ReadCache::new(PositionedFile::new(Arc::clone(&file)));
        // What is no ELF file has nothing to probe.
        let placing = programs.placing();
        let find = |functions| AttachPoints::find(&cache, functions, placing).unwrap_or_default();
        let points = find(&functions::ALLOCATOR);
        let has_malloc = points.functions.contains(functions::ESSENTIAL);
        if has_malloc {
            tell(module, &points);
            programs.attach(&file, &points, pid)?;
        }
        let operators = AttachPoints::of_operators(&cache, placing).unwrap_or_default();
        if !operators.is_empty() {
            tell(module, &operators);
            programs.attach(&file, &operators, pid)?;
        }
        let allocates = has_malloc || !operators.is_empty();
        if allocates {
            self.found.push(module.name().into_owned());
        }
        if let Some(name) = programs.awaited() {
            let awaited = AttachPoints::of_awaited(&cache, name, placing).unwrap_or_default();
            if !awaited.is_empty() {
                tell(module, &awaited);
                programs.attach(&file, &awaited, pid)?;
            }
        }
        let linker = find(&functions::DYNAMIC_LINKER);
        if !linker.is_empty() {
            programs.attach(&file, &linker, pid)?;
        }
        if programs.can_look_up_mappings() {
            let mappers = find(&functions::MAPPERS).without_text();
            if !mappers.is_empty() {
                programs.attach(&file, &mappers, pid)?;
            }
        }
        Ok(allocates)
    }

    /// Paths of the allocators that are probed.
    #[must_use]
    pub fn found(&self) -> &[String] {
        &self.found
    }
}

/// Where the allocators of a process would be probed, and why there: a line each.
pub fn places(pid: u32) -> Vec<String> {
    let opener = Arc::new(ProcOpener::new(Path::new("/proc"), pid));
    let table = names::current_modules(pid, opener);
    let placing = Placing::expected();
    let mut lines = Vec::new();
    for module in table.modules() {
        let Ok(ModuleContent::File(file)) = module.content() else {
            continue;
        };
        let cache = ReadCache::new(PositionedFile::new(file));
        let found = AttachPoints::find(&cache, &functions::ALLOCATOR, placing).unwrap_or_default();
        let operators = AttachPoints::of_operators(&cache, placing).unwrap_or_default();
        let allocates = found.functions.contains(functions::ESSENTIAL);
        let of_c = found.points().filter(|_| allocates);
        let points = of_c.chain(operators.points());
        lines.extend(points.map(|point| format!("{}: {point}", module.name())));
    }
    lines
}

/// Tells where probes go, and why there.
fn tell(module: &Module, points: &AttachPoints) {
    for point in points.points() {
        tracing::info!("{}: {point}", module.name());
    }
}
