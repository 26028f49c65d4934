//! Function symbols of an ELF file by address: what is left to name a stripped file with.
//!
//! A symbol counts for the bytes that it says it has. An address in a gap between two symbols, as
//! static functions leave in a stripped file, has no name rather than its neighbour's.

use std::cmp::Reverse;

/// A symbol without a size, as hand-written assembly has, counts for so many bytes at most.
const MAX_UNSIZED: u64 = 4096;
/// So many symbols before an address are looked at for one that reaches over it.
const MAX_NESTING: usize = 16;

/// How visible a symbol is; among aliases the most visible gives the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Binding {
    /// Of one object file.
    Local,
    /// Global, but any other definition takes precedence.
    Weak,
    /// Global.
    Global,
}

/// One function symbol.
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    /// Virtual address in the file.
    pub address: u64,
    /// Size in bytes, 0 for unknown.
    pub size: u64,
    /// Offset of the name in the table's names.
    pub name: u32,
    /// Visibility.
    pub binding: Binding,
}

/// Function symbols by ascending address; among aliases the best name comes last.
#[derive(Clone, Debug, Default)]
pub struct SymbolTable {
    names: Vec<u8>,
    symbols: Vec<Symbol>,
}

impl SymbolTable {
    /// A table of symbols whose names stand in `names`, each ended by a zero byte.
    #[must_use]
    pub fn new(names: Vec<u8>, mut symbols: Vec<Symbol>) -> Self {
        symbols.sort_unstable_by(|left, right| {
            let by_address = left.address.cmp(&right.address);
            by_address.then_with(|| {
                preference(&names, left)
                    .cmp(&preference(&names, right))
                    .reverse()
            })
        });
        symbols.shrink_to_fit();
        Self { names, symbols }
    }

    /// Whether it has no symbols.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// The mangled name of the function that holds an address, without symbol version.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<&str> {
        let behind = self
            .symbols
            .partition_point(|symbol| symbol.address <= address);
        let before = self.symbols.get(..behind)?;
        let next = self
            .symbols
            .get(behind)
            .map_or(u64::MAX, |symbol| symbol.address);
        let holds = |symbol: &&Symbol| match symbol.size {
            0 => address < next.min(symbol.address.saturating_add(MAX_UNSIZED)),
            size => address - symbol.address < size,
        };
        let nearest = before.iter().rev().take(MAX_NESTING);
        let sized = nearest
            .clone()
            .filter(|symbol| symbol.size != 0)
            .find(holds);
        let symbol = sized.or_else(|| before.last().filter(holds))?;
        Some(name_at(&self.names, symbol.name)).filter(|name| !name.is_empty())
    }
    /// The address of the function with a (mangled) name. Looks at every symbol.
    #[must_use]
    pub fn address_of(&self, name: &str) -> Option<u64> {
        let found = self
            .symbols
            .iter()
            .find(|symbol| name_at(&self.names, symbol.name) == name)?;
        Some(found.address)
    }
}

/// The best alias has the least: a size, more than one object file that knows it, few underscores
/// (libc's public names are often the weak ones), and is the stronger definition.
fn preference<'a>(names: &'a [u8], symbol: &Symbol) -> impl Ord + use<'a> {
    let name = name_at(names, symbol.name);
    let underscores = name.bytes().take_while(|&byte| byte == b'_').count();
    let is_local = symbol.binding == Binding::Local;
    (
        symbol.size == 0,
        is_local,
        underscores,
        Reverse(symbol.binding),
        name,
    )
}

/// The name at an offset, up to its zero byte or the `@` of a symbol version; empty when there is
/// none or it is not UTF-8.
pub(super) fn name_at(names: &[u8], offset: u32) -> &str {
    let rest = usize::try_from(offset)
        .ok()
        .and_then(|offset| names.get(offset..));
    let rest = rest.unwrap_or_default();
    let end = rest
        .iter()
        .position(|&byte| byte == 0 || byte == b'@')
        .unwrap_or(0);
    rest.get(..end)
        .and_then(|name| std::str::from_utf8(name).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(symbols: &[(u64, u64, &str, Binding)]) -> SymbolTable {
        let mut names = vec![0];
        let mut list = Vec::new();
        for &(address, size, name, binding) in symbols {
            list.push(Symbol {
                address,
                size,
                name: names.len() as u32,
                binding,
            });
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        SymbolTable::new(names, list)
    }

    #[test]
    fn a_gap_has_no_name() {
        use Binding::Global;
        let table = table(&[(0x100, 0x10, "a", Global), (0x120, 0x10, "b", Global)]);
        assert_eq!(table.find(0xff), None);
        assert_eq!(table.find(0x100), Some("a"));
        assert_eq!(table.find(0x10f), Some("a"));
        assert_eq!(table.find(0x110), None);
        assert_eq!(table.find(0x12f), Some("b"));
        assert_eq!(table.find(u64::MAX), None);
    }

    #[test]
    fn among_aliases_the_public_name_wins_and_versions_go() {
        use Binding::{Global, Local, Weak};
        let table = table(&[
            (0x100, 8, "__libc_malloc", Global),
            (0x100, 8, "malloc@@GLIBC_2.2.5", Global),
            (0x100, 8, "aaa_local", Local),
            (0x100, 8, "zzz_weak", Weak),
            (0x100, 0, "aaa_unsized", Global),
        ]);
        assert_eq!(table.find(0x104), Some("malloc"));
        assert_eq!(table.address_of("aaa_local"), Some(0x100));
        let table = self::table(&[(8, 8, "write", Weak), (8, 8, "__write", Global)]);
        assert_eq!(table.find(8), Some("write"));
    }

    #[test]
    fn a_function_around_another_symbol_is_found_behind_it() {
        use Binding::{Global, Local};
        let table = table(&[(0x100, 0x100, "outer", Global), (0x140, 4, "inner", Local)]);
        assert_eq!(table.find(0x142), Some("inner"));
        assert_eq!(table.find(0x150), Some("outer"));
    }

    #[test]
    fn a_symbol_without_size_reaches_to_the_next() {
        use Binding::Global;
        let table = table(&[(0x100, 0, "_init", Global), (0x200, 4, "next", Global)]);
        assert_eq!(table.find(0x1ff), Some("_init"));
        assert_eq!(table.find(0x204), None);
    }

    proptest! {
        #[test]
        fn hostile_symbols_never_panic(
            symbols in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u32>()), 0..20),
            names in proptest::collection::vec(any::<u8>(), 0..40),
            address: u64,
        ) {
            let symbols = symbols.into_iter().map(|(address, size, name)| {
                Symbol { address, size, name: name % 64, binding: Binding::Local }
            });
            let _ = SymbolTable::new(names, symbols.collect()).find(address);
        }
    }
}
