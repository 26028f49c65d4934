//! What addresses mean: the seam between the converter and the target's modules and symbols.

use std::{fs, sync::Arc};

use tokio::sync::mpsc::UnboundedSender;

use crate::{
    modules::{FileRoot, MappingId, Module, ModuleKind, ModuleOpener, ModuleTable},
    symbolize::{Frame, PerfMapFile, Symbolizer},
};

/// Something that an address can lie in; two equal addresses in the same place mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// A mapping.
    Mapping(MappingId),
    /// Nothing that is known.
    Unknown,
}

/// What an address means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resolved {
    /// Path of its module; empty when unknown.
    pub(super) module: String,
    /// Its function and the functions that it was inlined into, innermost first.
    pub(super) frames: Vec<Frame>,
}

/// What the converter needs to know of addresses.
pub(super) trait Names {
    /// Takes over the text of `/proc/PID/maps`; true if addresses may mean something else now.
    fn update(&mut self, mappings: &[u8]) -> bool;

    /// Where an address lies.
    fn place(&mut self, address: u64) -> Place;

    /// What an address means. It is slow: who asks remembers the answer by address and place.
    fn resolve(&mut self, address: u64) -> Resolved;
}

/// Names of a process's addresses.
pub(super) struct ProcessNames {
    pid: u32,
    table: ModuleTable,
    symbolizer: Symbolizer,
    /// Names of code that no file holds.
    generated: PerfMapFile,
    /// Who wants to know of modules that are loaded.
    loaded: UnboundedSender<Arc<Module>>,
    /// Looks at the mappings without having been told that they changed, for code that does not
    /// come through the dynamic linker.
    unasked_looks: u32,
}

/// Unknown addresses make us look at the mappings so often at most.
const MAX_UNASKED_LOOKS: u32 = 1000;

/// What names are made of. The symbolizer must stay on one thread, so it is made there.
pub(super) struct NamesSource {
    /// The process in our pid namespace.
    pub(super) pid: u32,
    /// Its modules so far.
    pub(super) table: ModuleTable,
    /// Its root directory, where separate debug information is looked for.
    pub(super) root: Option<Arc<FileRoot>>,
    /// Who wants to know of modules that are loaded from now on.
    pub(super) loaded: UnboundedSender<Arc<Module>>,
}

/// A table of the modules of `pid` as they are now.
pub(super) fn current_modules(pid: u32, opener: Arc<dyn ModuleOpener>) -> ModuleTable {
    let mut table = ModuleTable::new(opener, ModuleTable::DEFAULT_OPEN_FILES);
    if let Ok(text) = fs::read(format!("/proc/{pid}/maps")) {
        table.update(&text);
    }
    table
}

/// A table of the modules of a process that has none of its own yet.
pub(super) fn no_modules(opener: Arc<dyn ModuleOpener>) -> ModuleTable {
    ModuleTable::new(opener, ModuleTable::DEFAULT_OPEN_FILES)
}

impl ProcessNames {
    /// Names from `source`, for use on this thread.
    pub(super) fn new(source: NamesSource) -> Self {
        let NamesSource {
            pid,
            table,
            root,
            loaded,
        } = source;
        Self {
            pid,
            table,
            generated: PerfMapFile::new(pid, root.clone()),
            symbolizer: Symbolizer::new(root),
            loaded,
            unasked_looks: 0,
        }
    }

    fn look_unasked(&mut self) {
        if self.unasked_looks >= MAX_UNASKED_LOOKS {
            return;
        }
        self.unasked_looks += 1;
        if let Ok(text) = fs::read(format!("/proc/{}/maps", self.pid)) {
            self.update(&text);
        }
    }
}

impl Names for ProcessNames {
    fn update(&mut self, mappings: &[u8]) -> bool {
        let changes = self.table.update(mappings);
        let modules = changes
            .loaded
            .iter()
            .filter_map(|id| self.table.module(*id));
        for module in modules.filter(|module| module.kind() == ModuleKind::File) {
            // The recording is about to end when nobody listens.
            let _ended = self.loaded.send(Arc::clone(module));
        }
        !changes.is_empty()
    }

    fn place(&mut self, address: u64) -> Place {
        let mut location = self.table.locate(address);
        if location.is_none() {
            self.look_unasked();
            location = self.table.locate(address);
        }
        location.map_or(Place::Unknown, |location| Place::Mapping(location.mapping))
    }

    fn resolve(&mut self, address: u64) -> Resolved {
        let location = self.table.locate(address);
        let module = location.and_then(|location| self.table.module(location.module));
        let in_file = location.and_then(|location| location.virtual_address);
        // Memory without a file, also such as was gone before it was looked at.
        let frames = match (module, in_file) {
            (Some(module), Some(address)) => self.symbolizer.symbolize(module, address),
            _ => generated_code(self.generated.name(address)),
        };
        Resolved {
            module: module.map_or_else(String::new, |module| module.name().into_owned()),
            frames,
        }
    }
}

fn generated_code(name: Option<&str>) -> Vec<Frame> {
    let frame = |name: &str| Frame {
        function: Some(name.to_owned()),
        ..Frame::default()
    };
    name.map(frame).into_iter().collect()
}
