//! Symbolizes an address in a module: opens what the module offers once, asks the best source
//! first, and turns whatever goes wrong into fewer names and one warning.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::debug_file::{self, DebugFile, DebugFileFinder};
use super::demangle::demangle;
use super::dwarf::{self, DwarfFile};
use super::elf_sections::ElfSections;
use super::frame::Frame;
use super::mini_debug_info;
use super::symbol_table::SymbolTable;
use crate::modules::{FileRoot, Module, ModuleContent, ModuleId, ModuleKind};

/// So many modules' symbols are kept at a time; each may hold two descriptors and mapped files.
const MAX_LOADED: usize = 256;
/// At most so many warnings in all, then one that says so.
const MAX_WARNINGS: usize = 20;

/// Names the addresses of one target's modules. Keeps what it has read; make one and keep it.
/// Not for several threads: make it in the one that uses it.
pub struct Symbolizer {
    finder: DebugFileFinder,
    loaded: FxHashMap<ModuleId, Loaded>,
    uses: u64,
    warnings: Warnings,
}

/// What a module offers.
#[derive(Default)]
struct Loaded {
    dwarf: Option<DwarfFile>,
    /// Best first.
    tables: Vec<SymbolTable>,
    last_use: u64,
}

impl Symbolizer {
    /// A symbolizer that looks for debug files in the target's root directory, if it is known,
    /// and then in ours.
    #[must_use]
    pub fn new(target_root: Option<Arc<FileRoot>>) -> Self {
        let ours = FileRoot::open_directory(Path::new("/")).map(Arc::new).ok();
        Self::with_roots(target_root.into_iter().chain(ours).collect())
    }

    /// A symbolizer that looks for debug files in these root directories, in this order.
    #[must_use]
    pub fn with_roots(roots: Vec<Arc<FileRoot>>) -> Self {
        Self {
            finder: DebugFileFinder::new(roots),
            loaded: FxHashMap::default(),
            uses: 0,
            warnings: Warnings::default(),
        }
    }

    /// The frames at a virtual address of a module, innermost first: inlined functions, then the
    /// function that the code is in. Empty when nothing is known.
    ///
    /// Give it the look-up address, which is the return address minus one. The first question
    /// about a module reads the index of its debug information, which takes up to a second for
    /// the largest programs. All modules asked about have to be of one table.
    pub fn symbolize(&mut self, module: &Module, virtual_address: u64) -> Vec<Frame> {
        if !matches!(module.kind(), ModuleKind::File | ModuleKind::Vdso) {
            return Vec::new();
        }
        self.uses += 1;
        if !self.loaded.contains_key(&module.id()) {
            self.make_room();
            let loaded = load(module, &self.finder, &mut self.warnings);
            self.loaded.insert(module.id(), loaded);
        }
        let Some(loaded) = self.loaded.get_mut(&module.id()) else {
            return Vec::new();
        };
        loaded.last_use = self.uses;
        loaded.frames(module, virtual_address, &mut self.warnings)
    }

    fn make_room(&mut self) {
        if self.loaded.len() < MAX_LOADED {
            return;
        }
        let oldest = self.loaded.iter().min_by_key(|(_, loaded)| loaded.last_use);
        if let Some(id) = oldest.map(|(id, _)| *id) {
            self.loaded.remove(&id);
        }
    }
}

impl Loaded {
    fn frames(&mut self, module: &Module, address: u64, warnings: &mut Warnings) -> Vec<Frame> {
        let mut frames = self.dwarf_frames(module, address, warnings);
        let symbol = self.tables.iter().find_map(|table| table.find(address));
        if frames.is_empty() {
            frames.extend(symbol.map(|symbol| Frame {
                function: Some(demangle(symbol)),
                ..Frame::default()
            }));
        } else {
            dwarf::readable(&mut frames, symbol);
        }
        frames
    }

    fn dwarf_frames(
        &mut self,
        module: &Module,
        address: u64,
        warnings: &mut Warnings,
    ) -> Vec<Frame> {
        let Some(dwarf) = &mut self.dwarf else {
            return Vec::new();
        };
        dwarf.frames(address).unwrap_or_else(|cause| {
            self.dwarf = None;
            warnings.warn(
                module,
                &format!("no lines from here on: {cause}; build it anew"),
            );
            Vec::new()
        })
    }
}

/// Opens everything that a module offers.
fn load(module: &Module, finder: &DebugFileFinder, warnings: &mut Warnings) -> Loaded {
    let content = match module.content() {
        Ok(content) => content,
        Err(error) => {
            let remedy = "raise the limit of open files (ulimit -n)";
            warnings.warn(module, &format!("no names: {error}; {remedy}"));
            return Loaded::default();
        }
    };
    let sections = ElfSections::read(&content);
    let debug_file = find_debug_file(module, &sections, finder, warnings);
    let debug_sections = debug_file
        .as_ref()
        .map(|debug_file| ElfSections::read(&ModuleContent::File(Arc::clone(&debug_file.file))));
    let dwarf = match (&debug_file, &debug_sections) {
        (Some(file), Some(sections)) => open_dwarf(module, file, sections, finder, warnings),
        _ => own_dwarf(module, &content, &sections, finder, warnings),
    };
    let tables = tables(module, debug_sections, sections, warnings);
    Loaded {
        dwarf,
        tables,
        last_use: 0,
    }
}

/// A module with debug information of its own needs no other file.
fn find_debug_file(
    module: &Module,
    sections: &ElfSections,
    finder: &DebugFileFinder,
    warnings: &mut Warnings,
) -> Option<DebugFile> {
    if sections.has_debug_info || module.kind() != ModuleKind::File {
        return None;
    }
    let build_id = module.image().build_id.as_ref();
    let places = debug_file::candidates(module.path(), build_id, sections.debug_link.as_ref());
    let mut mismatches: Vec<PathBuf> = Vec::new();
    let found = finder.find(&places, &mut mismatches);
    if let (None, Some(path)) = (&found, mismatches.first()) {
        let path = path.display();
        let remedy = "install the debug file of the same build";
        warnings.warn(
            module,
            &format!("no lines: {path} is of another build; {remedy}"),
        );
    }
    if found.is_none() {
        tracing::debug!("{} has no debug information", module.path().display());
    }
    found
}

fn own_dwarf(
    module: &Module,
    content: &ModuleContent,
    sections: &ElfSections,
    finder: &DebugFileFinder,
    warnings: &mut Warnings,
) -> Option<DwarfFile> {
    let ModuleContent::File(file) = content else {
        return None;
    };
    let file = DebugFile {
        path: module.path().to_owned(),
        file: Arc::clone(file),
    };
    open_dwarf(module, &file, sections, finder, warnings)
}

fn open_dwarf(
    module: &Module,
    file: &DebugFile,
    sections: &ElfSections,
    finder: &DebugFileFinder,
    warnings: &mut Warnings,
) -> Option<DwarfFile> {
    if !sections.has_debug_info {
        return None;
    }
    if sections.is_trap {
        let cause = "its sections claim to unpack to more than they can";
        warnings.warn(module, &format!("no lines: {cause}; build it anew"));
        return None;
    }
    let Some(link) = &sections.alternate_link else {
        return Some(DwarfFile::new(&file.file));
    };
    let places = debug_file::alternate_candidates(&file.path, link);
    let Some(alternate) = finder.find(&places, &mut Vec::new()) else {
        let path = link.path.display();
        let remedy = "install the whole debug package";
        warnings.warn(
            module,
            &format!("some names and lines are missing: no {path}; {remedy}"),
        );
        return Some(DwarfFile::new(&file.file));
    };
    DwarfFile::with_alternate(&file.file, &alternate.file)
        .map_err(|cause| warnings.warn(module, &format!("no lines: {cause}")))
        .ok()
}

fn tables(
    module: &Module,
    debug: Option<ElfSections>,
    own: ElfSections,
    warnings: &mut Warnings,
) -> Vec<SymbolTable> {
    let mini = own.mini_debug_info.as_deref().and_then(|packed| {
        let unpacked = mini_debug_info::symbols(packed);
        unpacked
            .map_err(|cause| warnings.warn(module, &format!("some names are missing: {cause}")))
            .ok()
    });
    let debug = debug.map(|debug| debug.symbols);
    let all = debug
        .into_iter()
        .chain([own.symbols])
        .chain(mini)
        .chain([own.dynamic_symbols]);
    all.filter(|table| !table.is_empty()).collect()
}

/// Says each module's first trouble, and stops before it floods the terminal.
#[derive(Default)]
struct Warnings {
    warned: FxHashSet<ModuleId>,
}

impl Warnings {
    fn warn(&mut self, module: &Module, message: &str) {
        if !self.warned.insert(module.id()) {
            return;
        }
        let count = self.warned.len();
        if count <= MAX_WARNINGS {
            tracing::warn!("{}: {message}", module.path().display());
        } else if count == MAX_WARNINGS + 1 {
            tracing::warn!("further warnings about symbols are left out");
        }
    }
}
