//! Names for addresses: function, file and line, inlined callers.
//!
//! [`symbolizer`] decides, for a module and an address in it, which of its sources to ask:
//! [`dwarf`] (the module's own debug information or that of a separate file that [`debug_file`]
//! finds) and [`symbol_table`] (`.symtab`, `.gnu_debugdata`, `.dynsym`). [`suppressions`] reads the
//! leak suppressions that a program carries inside, [`perf_map_file`] the names that a program tells
//! of code that it makes at run time.
//!
//! Knows modules, not processes: whatever has a [`Module`](crate::modules::Module) can be
//! symbolized. Nothing here fails a recording: what cannot be read costs names, and is said once.
//! Debug information servers are never asked; a look-up must not wait for a network.

pub mod alternate;
pub mod debug_file;
pub mod demangle;
pub mod dwarf;
pub mod elf_sections;
pub mod frame;
mod guard;
pub mod mini_debug_info;
pub mod perf_map;
pub mod perf_map_file;
pub mod suppressions;
pub mod symbol_table;
pub mod symbolizer;

pub use frame::Frame;
pub use perf_map_file::PerfMapFile;
pub use suppressions::{RunningTarget, embedded_suppressions};
pub use symbolizer::Symbolizer;
