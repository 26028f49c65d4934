//! What several tests need: a repeatable random source, and random traces.

#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test uses a part of it"
)]

pub(crate) mod drop_in;
pub(crate) mod generator;
pub(crate) mod memory;

/// A small repeatable random source (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}

/// heaptrack_print, or a printed reason to skip. In CI it must be there.
pub(crate) fn heaptrack_print() -> Option<&'static str> {
    const PATH: &str = "/usr/bin/heaptrack_print";
    if std::path::Path::new(PATH).exists() {
        return Some(PATH);
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "{PATH} must be installed in CI"
    );
    eprintln!("skipped: {PATH} is not installed");
    None
}
