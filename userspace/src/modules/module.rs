//! One module: a file, or what takes the place of one, that the target has or had mapped.
//!
//! Never changes once made, and stays valid for as long as somebody holds it: the target may
//! unload it, delete its file and exit.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::image::ElfImage;
use super::maps::{MappedName, MapsEntry};
use super::opener::{ModuleOpener, OpenError, OpenRequest};
use super::pool::{FilePool, FileVersion};

/// Identity of a module in its table; never given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u32);

/// What stands behind a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleKind {
    /// A file that was got hold of. Whether it is an ELF file is another matter.
    File,
    /// The kernel's own shared object in every process.
    Vdso,
    /// Memory without a file: generated code, `[anon:…]`, `[stack]`.
    Anonymous,
    /// A named thing that cannot be read: a file that could not be opened, `[uprobes]`, `[vsyscall]`.
    Unknown,
}

/// The bytes of a module.
#[derive(Clone, Debug)]
pub enum ModuleContent {
    /// An open file.
    File(Arc<File>),
    /// Bytes that were read from the target's memory.
    Bytes(Arc<[u8]>),
}

/// How the bytes are got again.
pub(super) enum Source {
    File(FileSource),
    Bytes(Arc<[u8]>),
    Nothing,
}

/// A file that may have been closed in the meantime.
pub(super) struct FileSource {
    pub(super) mapping: MapsEntry,
    pub(super) version: FileVersion,
    pub(super) pool: Arc<FilePool>,
    pub(super) opener: Arc<dyn ModuleOpener>,
}

/// A module. Shared, immutable.
pub struct Module {
    pub(super) id: ModuleId,
    pub(super) path: PathBuf,
    pub(super) kind: ModuleKind,
    pub(super) image: ElfImage,
    pub(super) source: Source,
}

impl Module {
    /// A module of a plain file, for symbolizing without a process.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn of_path(id: ModuleId, path: &Path) -> io::Result<Self> {
        let file = Arc::new(File::open(path)?);
        let pool = Arc::new(FilePool::new(1));
        let version = FileVersion::of(&file)?;
        let image = ElfImage::of_file(&file);
        pool.insert(version, file, true);
        let mapping = MapsEntry {
            start: 0,
            end: 1,
            permissions: Default::default(),
            offset: 0,
            device: Default::default(),
            inode: 0,
            name: MappedName::File {
                path: path.to_owned(),
                deleted: false,
            },
        };
        let opener = Arc::new(NoOpener);
        let source = Source::File(FileSource {
            mapping,
            version,
            pool,
            opener,
        });
        Ok(Self {
            id,
            path: path.to_owned(),
            kind: ModuleKind::File,
            image,
            source,
        })
    }

    /// A module of bytes that were read somewhere, such as a vdso.
    #[must_use]
    pub fn of_bytes(id: ModuleId, path: &Path, bytes: &[u8]) -> Self {
        Self {
            id,
            path: path.to_owned(),
            kind: ModuleKind::Vdso,
            image: ElfImage::of_bytes(bytes),
            source: Source::Bytes(bytes.into()),
        }
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> ModuleId {
        self.id
    }

    /// Its path as the target sees it; `linux-vdso.so.1` for the vdso, the kernel's name in
    /// brackets for other things that are no file, empty for memory without a name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path as text, for the trace file; what is not UTF-8 is replaced.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        self.path.to_string_lossy()
    }

    /// What stands behind it.
    #[must_use]
    pub fn kind(&self) -> ModuleKind {
        self.kind
    }

    /// Load segments and build id; empty when there is no ELF file.
    #[must_use]
    pub fn image(&self) -> &ElfImage {
        &self.image
    }

    /// Whether both are the same contents of the same file.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let same_content = match (&self.source, &other.source) {
            (Source::File(one), Source::File(another)) => one.version == another.version,
            (Source::Nothing, Source::Nothing) => true,
            _ => false,
        };
        same_content && self.image == other.image
    }

    /// The bytes. A file that had to be closed for lack of descriptors is opened again.
    ///
    /// # Errors
    /// When there is nothing to read, or when the file is no longer to be had unchanged: it was
    /// overwritten in place, or closed and then replaced.
    pub fn content(&self) -> Result<ModuleContent, OpenError> {
        match &self.source {
            Source::File(source) => source.open(&self.image).map(ModuleContent::File),
            Source::Bytes(bytes) => Ok(ModuleContent::Bytes(Arc::clone(bytes))),
            Source::Nothing => Err(OpenError::NoFile),
        }
    }
}

impl FileSource {
    fn open(&self, image: &ElfImage) -> Result<Arc<File>, OpenError> {
        if let Some(file) = self.pool.get(&self.version) {
            return self.check_unchanged(file);
        }
        let request = OpenRequest {
            mapping: &self.mapping,
            image_base: None,
        };
        let opened = self.opener.open(request)?;
        let same = FileVersion::of(&opened.file).is_ok_and(|version| version == self.version)
            && ElfImage::of_file(&opened.file) == *image;
        if !same {
            return Err(OpenError::Replaced { path: opened.path });
        }
        Ok(self.pool.insert(self.version, opened.file, true))
    }

    /// Refuses a file that was overwritten in place: its names would be another build's.
    fn check_unchanged(&self, file: Arc<File>) -> Result<Arc<File>, OpenError> {
        if FileVersion::of(&file).is_ok_and(|version| version == self.version) {
            return Ok(file);
        }
        let path = match &self.mapping.name {
            MappedName::File { path, .. } => path.clone(),
            MappedName::Special(_) | MappedName::Anonymous => PathBuf::new(),
        };
        Err(OpenError::Replaced { path })
    }
}

/// Stands in where nothing can be reopened.
struct NoOpener;

impl ModuleOpener for NoOpener {
    fn open(&self, _: OpenRequest<'_>) -> Result<super::opener::OpenedFile, OpenError> {
        Err(OpenError::NoFile)
    }

    fn read_memory(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module")
            .field("id", &self.id)
            .field("path", &self.path)
            .field("kind", &self.kind)
            .field("image", &self.image)
            .finish_non_exhaustive()
    }
}
