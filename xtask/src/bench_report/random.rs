//! Numbers that look random and are the same in every run.

/// splitmix64.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        (((self.next() >> 32) * u64::from(end)) >> 32) as u32
    }

    /// A number below `end`; small ones come more often, as with most things that programs do.
    pub(super) fn skewed(&mut self, end: u32) -> u32 {
        let most = self.below(end) + 1;
        let less = self.below(most) + 1;
        self.below(less)
    }

    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_below_their_end_and_small_ones_are_common() {
        let mut random = Random::new(1);
        let drawn: Vec<u32> = (0..1000).map(|_| random.skewed(100)).collect();
        assert!(drawn.iter().all(|&number| number < 100));
        assert!(drawn.iter().filter(|&&number| number < 25).count() > 500);
        assert!(drawn.iter().any(|&number| number > 75));
    }
}
