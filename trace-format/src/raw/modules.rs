//! The modules of a raw trace, and which of them an address lies in.

/// A loaded module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RawModule {
    /// Its path.
    pub path: String,
    /// What was added to its virtual addresses.
    pub bias: u64,
}

/// Address range of a loadable segment, end exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Segment {
    start: u64,
    end: u64,
    module: usize,
}

/// The modules loaded at present; also remembers those of the past, so that a position names a
/// module for good.
#[derive(Debug, Default)]
pub(super) struct Modules {
    known: Vec<RawModule>,
    segments: Vec<Segment>,
    sorted: bool,
}

/// Overlapping segments that a look-up goes through.
const MOST_OVERLAPS: usize = 16;

impl Modules {
    /// Unloads all modules.
    pub(super) fn clear(&mut self) {
        self.segments.clear();
    }

    /// Loads a module with its segments, each a pair of virtual address and size.
    pub(super) fn load(&mut self, module: RawModule, segments: &[(u64, u64)]) {
        let bias = module.bias;
        let position = match self.known.iter().rposition(|known| *known == module) {
            Some(position) => position,
            None => {
                self.known.push(module);
                self.known.len() - 1
            }
        };
        for &(address, size) in segments {
            let start = bias.wrapping_add(address);
            let end = start.saturating_add(size);
            self.segments.push(Segment {
                start,
                end,
                module: position,
            });
        }
        self.sorted = false;
    }

    /// The position of the module that `address` lies in.
    pub(super) fn find(&mut self, address: u64) -> Option<usize> {
        if !self.sorted {
            self.segments.sort_unstable();
            self.sorted = true;
        }
        let behind = self
            .segments
            .partition_point(|segment| segment.start <= address);
        let candidates = self
            .segments
            .get(..behind)?
            .iter()
            .rev()
            .take(MOST_OVERLAPS);
        candidates
            .into_iter()
            .find(|segment| address < segment.end)
            .map(|found| found.module)
    }

    /// The module at a position.
    pub(super) fn get(&self, position: usize) -> Option<&RawModule> {
        self.known.get(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str, bias: u64) -> RawModule {
        RawModule {
            path: path.into(),
            bias,
        }
    }

    #[test]
    fn an_address_belongs_to_the_module_loaded_there_at_present() {
        let mut modules = Modules::default();
        modules.load(module("a", 0x1000), &[(0, 0x100), (0x200, 0x10)]);
        modules.load(module("b", 0x5000), &[(0x10, 0x100)]);
        assert_eq!(modules.find(0x1000), Some(0));
        assert_eq!(modules.find(0x10ff), Some(0));
        assert_eq!(modules.find(0x1100), None);
        assert_eq!(modules.find(0x1205), Some(0));
        assert_eq!(modules.find(0x5010), Some(1));
        assert_eq!(modules.find(0x500f), None);
        modules.clear();
        modules.load(module("c", 0x1000), &[(0, 0x100)]);
        assert_eq!(modules.find(0x1000), Some(2));
        assert_eq!(modules.get(2), Some(&module("c", 0x1000)));
        modules.load(module("a", 0x1000), &[]);
        assert_eq!(modules.get(3), None);
    }

    #[test]
    fn hostile_ranges_do_no_harm() {
        let mut modules = Modules::default();
        modules.load(
            module("a", u64::MAX),
            &[(u64::MAX, u64::MAX), (1, u64::MAX)],
        );
        assert_eq!(modules.find(0), Some(0));
        assert_eq!(modules.find(u64::MAX), None);
    }
}
