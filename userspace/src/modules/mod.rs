//! The target's modules: which file stands behind which address, now and a moment ago.
//!
//! [`maps`] parses `/proc/PID/maps`; [`table`] keeps the mappings current and gives each file an
//! identity that outlives its mapping; [`opener`] gets hold of the files while the target still
//! has them; [`pool`] bounds how many stay open; [`image`] is what is needed of an ELF file to turn
//! an address into a virtual address.
//!
//! Knows nothing of BPF, of the trace file or of symbols. Everything that is read here belongs to
//! the target and is hostile: nothing panics, nothing grows with a number that a file states.

pub mod image;
pub mod maps;
pub mod module;
mod opened;
pub mod opener;
pub mod pool;
pub mod positioned;
pub mod proc_opener;
mod reader;
pub mod root;
pub mod table;

pub use image::{BuildId, ElfImage, LoadSegment};
pub use maps::{Device, MappedName, MapsEntry, Permissions};
pub use module::{Module, ModuleContent, ModuleId, ModuleKind};
pub use opener::{ModuleOpener, OpenError, OpenRequest, OpenedFile, Verification};
pub use proc_opener::ProcOpener;
pub use root::FileRoot;
pub use table::{Changes, Location, Mapping, MappingId, ModuleTable};
