//! Raw heaptrack traces (`heaptrack --raw`), and turning them into interpreted ones.
//!
//! A raw trace holds addresses: of the frames of each backtrace, of the blocks, and of the modules
//! that were loaded. Interpreting names the frames through a [`Resolver`] and pairs frees with
//! allocations. What a module's symbols are is the resolver's business, so that nothing here opens
//! a file.
//!
//! Unlike heaptrack_interpret, which names an address once and for all, an address is named anew
//! when another module comes to lie there.

mod interpreter;
mod modules;
mod record;

pub use interpreter::{InterpretError, Interpreted, interpret};
pub use modules::RawModule;

/// A function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedFrame {
    /// Demangled name; empty when unknown.
    pub function: String,
    /// Source file; empty when unknown.
    pub file: String,
    /// Source line from 1; 0 when unknown.
    pub line: u32,
}

/// Names addresses.
pub trait Resolver {
    /// The functions at `address`, a virtual address of the module at `path` (the load bias is
    /// taken off), innermost first. Empty when nothing is known.
    fn resolve(&mut self, path: &str, address: u64) -> Vec<ResolvedFrame>;
}

/// Knows no names.
impl Resolver for () {
    fn resolve(&mut self, _path: &str, _address: u64) -> Vec<ResolvedFrame> {
        Vec::new()
    }
}

/// Whether a trace that starts with `start` is a raw one: of the records that only one kind has,
/// the first decides.
#[must_use]
pub fn is_raw(start: &[u8]) -> bool {
    let letters = start
        .split(|&byte| byte == b'\n')
        .filter_map(|line| line.first());
    for letter in letters {
        match letter {
            b'x' | b'm' => return true,
            b's' | b'i' | b'a' | b't' | b'+' | b'-' => return false,
            _ => {}
        }
    }
    false
}
