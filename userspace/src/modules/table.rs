//! The table of a target's executable mappings: where is this address?
//!
//! Fed with the text of `/proc/PID/maps` whenever the target may have changed its mappings. A
//! mapping that did not change keeps its identity, one that did gets a new one, and identities are
//! never reused, so that what was looked up before stays true. Mappings that went away are
//! remembered for a while, for events that were under way.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::maps::{self, Device, MappedName, MapsEntry};
use super::module::{Module, ModuleId};
use super::opener::{ModuleOpener, OpenRequest};
use super::reader::{ModuleReader, is_anonymous};

/// How many mappings that went away are remembered.
const MAX_RETIRED: usize = 4096;

/// Identity of a mapping in its table; never given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MappingId(pub u64);

/// An executable mapping.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Its identity.
    pub id: MappingId,
    /// The module that it maps.
    pub module: ModuleId,
    /// Its line in maps.
    pub entry: MapsEntry,
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The mapping that holds it.
    pub mapping: MappingId,
    /// The module that the mapping maps.
    pub module: ModuleId,
    /// Offset in the module's file, bytes; for memory without a file, offset in the mapping.
    pub file_offset: u64,
    /// Address in the module's ELF file; `None` when there is none to speak of.
    pub virtual_address: Option<u64>,
}

/// What an update changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Mappings that are new.
    pub mapped: Vec<MappingId>,
    /// Mappings that are gone.
    pub unmapped: Vec<MappingId>,
    /// Modules that had no mapping before and have one now.
    pub loaded: Vec<ModuleId>,
    /// Modules that had a mapping before and have none now.
    pub unloaded: Vec<ModuleId>,
}

impl Changes {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mapped.is_empty() && self.unmapped.is_empty()
    }
}

/// What makes two mappings be of the same module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ModuleKey {
    File {
        device: Device,
        inode: u64,
        path: PathBuf,
    },
    Special(String),
    Anonymous,
}

impl ModuleKey {
    fn of(entry: &MapsEntry) -> Self {
        match &entry.name {
            MappedName::File { path, .. } => Self::File {
                device: entry.device,
                inode: entry.inode,
                path: path.clone(),
            },
            MappedName::Special(name) if !is_anonymous(name) => Self::Special(name.clone()),
            MappedName::Special(_) | MappedName::Anonymous => Self::Anonymous,
        }
    }
}

/// A target's mappings and modules.
pub struct ModuleTable {
    reader: ModuleReader,
    modules: Vec<Arc<Module>>,
    by_key: FxHashMap<ModuleKey, ModuleId>,
    /// Sorted by address, not overlapping.
    current: Vec<Mapping>,
    /// The start of each of them, close together for the search.
    starts: Vec<u64>,
    /// Newest first.
    retired: VecDeque<Mapping>,
    next_mapping: u64,
}

impl ModuleTable {
    /// So many descriptors leave room for everything else under the usual limit of 1,024.
    pub const DEFAULT_OPEN_FILES: usize = 256;

    /// An empty table that keeps at most `max_open_files` descriptors.
    #[must_use]
    pub fn new(opener: Arc<dyn ModuleOpener>, max_open_files: usize) -> Self {
        Self {
            reader: ModuleReader::new(opener, max_open_files),
            modules: Vec::new(),
            by_key: FxHashMap::default(),
            current: Vec::new(),
            starts: Vec::new(),
            retired: VecDeque::new(),
            next_mapping: 0,
        }
    }

    /// Takes over a new snapshot of `/proc/PID/maps`. Files that are new are opened at once.
    ///
    /// An empty text, which is what the kernel gives for a process that is exiting, changes
    /// nothing: the addresses still under way were taken before.
    pub fn update(&mut self, maps_text: &[u8]) -> Changes {
        let entries = parse_entries(maps_text);
        if entries.is_empty() {
            return Changes::default();
        }
        let before = std::mem::take(&mut self.current);
        let mut changes = Changes::default();
        for (index, entry) in entries.iter().enumerate() {
            if !entry.permissions.execute {
                continue;
            }
            let mapping = match find_unchanged(&before, entry) {
                Some(unchanged) => self.keep_mapping(unchanged, entry),
                None => {
                    let base = image_base(&entries, index);
                    self.add_mapping(entry, base, &before, &mut changes)
                }
            };
            self.current.push(mapping);
        }
        self.starts = self
            .current
            .iter()
            .map(|mapping| mapping.entry.start)
            .collect();
        self.retire(before, &mut changes);
        changes
    }

    /// Finds an address, in the current mappings first, then in those that went away, newest
    /// first. Call it with the look-up address, which is the return address minus one.
    #[must_use]
    pub fn locate(&self, address: u64) -> Option<Location> {
        let behind = self.starts.partition_point(|start| *start <= address);
        let current = behind
            .checked_sub(1)
            .and_then(|index| self.current.get(index));
        let holds =
            |mapping: &&Mapping| (mapping.entry.start..mapping.entry.end).contains(&address);
        let mapping = current
            .filter(holds)
            .or_else(|| self.retired.iter().find(holds))?;
        Some(self.location(mapping, address))
    }

    /// A module by its identity; always there for an identity of this table.
    #[must_use]
    pub fn module(&self, id: ModuleId) -> Option<&Arc<Module>> {
        self.modules.get(usize::try_from(id.0).ok()?)
    }

    /// All modules that were ever seen, in the order of their identities.
    #[must_use]
    pub fn modules(&self) -> &[Arc<Module>] {
        &self.modules
    }

    /// The executable mappings as of the last update, by ascending address.
    #[must_use]
    pub fn mappings(&self) -> &[Mapping] {
        &self.current
    }

    /// The load bias of a module that is mapped now: address in memory minus virtual address in
    /// the file, wrapping.
    #[must_use]
    pub fn load_bias(&self, id: ModuleId) -> Option<u64> {
        let image = self.module(id)?.image();
        let mapping = self.current.iter().find(|mapping| mapping.module == id)?;
        let virtual_address = image.virtual_address(mapping.entry.offset)?;
        Some(mapping.entry.start.wrapping_sub(virtual_address))
    }

    fn location(&self, mapping: &Mapping, address: u64) -> Location {
        let file_offset = mapping
            .entry
            .offset
            .wrapping_add(address - mapping.entry.start);
        let image = self.module(mapping.module).map(|module| module.image());
        Location {
            mapping: mapping.id,
            module: mapping.module,
            file_offset,
            virtual_address: image.and_then(|image| image.virtual_address(file_offset)),
        }
    }

    /// Carries an unchanged mapping over. Its file may have been deleted in the meantime.
    fn keep_mapping(&self, unchanged: &Mapping, entry: &MapsEntry) -> Mapping {
        if matches!(entry.name, MappedName::File { deleted: true, .. })
            && let Some(module) = self.module(unchanged.module)
        {
            self.reader.set_deleted(module);
        }
        Mapping {
            entry: entry.clone(),
            ..*unchanged
        }
    }

    fn add_mapping(
        &mut self,
        entry: &MapsEntry,
        image_base: Option<u64>,
        before: &[Mapping],
        changes: &mut Changes,
    ) -> Mapping {
        let request = OpenRequest {
            mapping: entry,
            image_base,
        };
        let module = self.module_of(request, before);
        let is_of = |mapping: &Mapping| mapping.module == module;
        if !before.iter().any(is_of) && !changes.loaded.contains(&module) {
            changes.loaded.push(module);
        }
        let id = MappingId(self.next_mapping);
        self.next_mapping += 1;
        changes.mapped.push(id);
        Mapping {
            id,
            module,
            entry: entry.clone(),
        }
    }

    /// The module of a new mapping: a known one, unless it was unloaded and its file has changed
    /// since, or a new one.
    fn module_of(&mut self, request: OpenRequest<'_>, before: &[Mapping]) -> ModuleId {
        let key = ModuleKey::of(request.mapping);
        let known = self.by_key.get(&key).copied();
        if let Some(id) = known {
            let mapped = before
                .iter()
                .chain(&self.current)
                .any(|mapping| mapping.module == id);
            if mapped || !matches!(key, ModuleKey::File { .. }) {
                return id;
            }
        }
        let id = ModuleId(u32::try_from(self.modules.len()).unwrap_or(u32::MAX));
        let fresh = self.reader.read(id, request);
        let is_same = |id: &ModuleId| self.module(*id).is_some_and(|known| known.is_same(&fresh));
        if let Some(known) = known.filter(is_same) {
            return known;
        }
        self.modules.push(Arc::new(fresh));
        self.by_key.insert(key, id);
        id
    }

    fn retire(&mut self, before: Vec<Mapping>, changes: &mut Changes) {
        for mapping in before {
            if find_unchanged(&self.current, &mapping.entry).is_some() {
                continue;
            }
            changes.unmapped.push(mapping.id);
            let still_mapped = self
                .current
                .iter()
                .any(|other| other.module == mapping.module);
            if !still_mapped && !changes.unloaded.contains(&mapping.module) {
                changes.unloaded.push(mapping.module);
            }
            self.retired.push_front(mapping);
        }
        self.retired.truncate(MAX_RETIRED);
    }
}

/// The entries in ascending order without overlaps; the kernel writes them so, and `locate` relies
/// on it. What does not fit is left out.
fn parse_entries(maps_text: &[u8]) -> Vec<MapsEntry> {
    let mut entries: Vec<MapsEntry> = Vec::new();
    for entry in maps::parse(maps_text) {
        match entry {
            Ok(entry) if entries.last().is_none_or(|last| last.end <= entry.start) => {
                entries.push(entry);
            }
            Ok(entry) => tracing::debug!("mapping at {:x} overlaps another one", entry.start),
            Err(error) => tracing::debug!("{error}"),
        }
    }
    entries
}

fn find_unchanged<'a>(mappings: &'a [Mapping], entry: &MapsEntry) -> Option<&'a Mapping> {
    let index = mappings
        .binary_search_by_key(&entry.start, |mapping| mapping.entry.start)
        .ok()?;
    mappings
        .get(index)
        .filter(|mapping| is_unchanged(&mapping.entry, entry))
}

/// Whether an address means the same in both. Not all of an entry counts: the file of a mapping
/// may be deleted and its permissions changed without another file being mapped.
fn is_unchanged(old: &MapsEntry, new: &MapsEntry) -> bool {
    (old.start, old.end, old.offset) == (new.start, new.end, new.offset)
        && ModuleKey::of(old) == ModuleKey::of(new)
}

/// The address of the first byte of the file that entry `index` maps, from the same run of
/// mappings of that file.
fn image_base(entries: &[MapsEntry], index: usize) -> Option<u64> {
    let key = ModuleKey::of(entries.get(index)?);
    entries
        .get(..=index)?
        .iter()
        .rev()
        .take_while(|entry| ModuleKey::of(entry) == key || entry.name == MappedName::Anonymous)
        .find(|entry| ModuleKey::of(entry) == key && entry.offset == 0)
        .map(|entry| entry.start)
}

#[cfg(test)]
mod tests;
