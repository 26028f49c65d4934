//! Makes a module of a mapping: opens its file, reads the vdso, or settles for the name.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use super::image::ElfImage;
use super::maps::{MappedName, MapsEntry};
use super::module::{FileSource, Module, ModuleId, ModuleKind, Source};
use super::opener::{ModuleOpener, OpenError, OpenRequest, OpenedFile, Verification};
use super::pool::{FilePool, FileVersion};

/// The vdso has a few pages; what claims to be larger is not read.
const MAX_VDSO: u64 = 1 << 20;
/// At most so many warnings about files that could not be opened, then one that says so.
const MAX_WARNINGS: u32 = 20;

/// Reads the modules of one target.
pub(super) struct ModuleReader {
    opener: Arc<dyn ModuleOpener>,
    pool: Arc<FilePool>,
    warnings: u32,
}

impl ModuleReader {
    /// A reader whose modules keep at most `max_open_files` descriptors.
    pub(super) fn new(opener: Arc<dyn ModuleOpener>, max_open_files: usize) -> Self {
        Self {
            opener,
            pool: Arc::new(FilePool::new(max_open_files)),
            warnings: 0,
        }
    }

    /// Notes that a module's file has been deleted, so that it stays open.
    pub(super) fn set_deleted(&self, module: &Module) {
        if let Source::File(file) = &module.source {
            self.pool.set_deleted(&file.version);
        }
    }

    /// How many files are open.
    #[cfg(test)]
    pub(super) fn open_files(&self) -> usize {
        self.pool.len()
    }

    /// The module behind a mapping, with its file opened. What cannot be read still is a module.
    pub(super) fn read(&mut self, id: ModuleId, request: OpenRequest<'_>) -> Module {
        match &request.mapping.name {
            MappedName::File { path, .. } => self
                .open_file(id, request)
                .unwrap_or_else(|| unreadable(id, path)),
            MappedName::Special(name) if name == "[vdso]" => self.read_vdso(id, request.mapping),
            MappedName::Special(name) if !is_anonymous(name) => unreadable(id, Path::new(name)),
            MappedName::Special(_) | MappedName::Anonymous => Module {
                kind: ModuleKind::Anonymous,
                ..unreadable(id, Path::new(""))
            },
        }
    }

    fn open_file(&mut self, id: ModuleId, request: OpenRequest<'_>) -> Option<Module> {
        let OpenedFile {
            file,
            path,
            verification,
        } = match self.opener.open(request) {
            Ok(opened) => opened,
            Err(error @ (OpenError::NotRegular { .. } | OpenError::NoFile)) => {
                tracing::debug!("{error}");
                return None;
            }
            Err(error) => {
                self.warn(&format!(
                    "no names for what {} does: {error}; \
                     run with CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE to read it nevertheless",
                    name_of(request.mapping)
                ));
                return None;
            }
        };
        if verification == Verification::Unverified {
            self.warn(&format!(
                "{} may not be the file that the target has mapped: device numbers differ and \
                 there is no build id to compare",
                path.display()
            ));
        }
        let version = FileVersion::of(&file).ok()?;
        let image = ElfImage::of_file(&file);
        let deleted = matches!(request.mapping.name, MappedName::File { deleted: true, .. });
        self.pool.insert(version, file, !deleted);
        let source = Source::File(FileSource {
            mapping: request.mapping.clone(),
            version,
            pool: Arc::clone(&self.pool),
            opener: Arc::clone(&self.opener),
        });
        Some(Module {
            id,
            path,
            kind: ModuleKind::File,
            image,
            source,
        })
    }

    fn read_vdso(&self, id: ModuleId, entry: &MapsEntry) -> Module {
        let path = Path::new("linux-vdso.so.1");
        let size = usize::try_from((entry.end - entry.start).min(MAX_VDSO)).unwrap_or(0);
        let mut bytes = vec![0; size];
        let count = self
            .opener
            .read_memory(entry.start, &mut bytes)
            .unwrap_or(0);
        bytes.truncate(count);
        if bytes.is_empty() {
            return unreadable(id, path);
        }
        Module::of_bytes(id, path, &bytes)
    }

    fn warn(&mut self, message: &str) {
        self.warnings = self.warnings.saturating_add(1);
        if self.warnings <= MAX_WARNINGS {
            tracing::warn!("{message}");
        } else if self.warnings == MAX_WARNINGS + 1 {
            tracing::warn!("further warnings about the target's files are left out");
        }
    }
}

/// Names that the target gives to memory of its own are not told apart: there may be any number.
pub(super) fn is_anonymous(name: &str) -> bool {
    name.starts_with("[anon") || name.starts_with("[stack") || name == "[heap]"
}

fn unreadable(id: ModuleId, path: &Path) -> Module {
    Module {
        id,
        path: path.to_owned(),
        kind: ModuleKind::Unknown,
        image: ElfImage::default(),
        source: Source::Nothing,
    }
}

fn name_of(entry: &MapsEntry) -> Cow<'_, str> {
    match &entry.name {
        MappedName::File { path, .. } => path.to_string_lossy(),
        MappedName::Special(name) => Cow::Borrowed(name),
        MappedName::Anonymous => Cow::Borrowed("memory without a file"),
    }
}
