//! Which allocations a recording holds, and what a sampled one stands for.
//!
//! Pure. The BPF programs choose; here the file is told, and sizes are scaled.

use crate::loader::Settings;

/// A choice of allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// Those of fewer bytes are left out.
    pub(super) min_size: u64,
    /// Mean distance of samples in bytes; 0 if all are recorded.
    pub(super) sample_bytes: u64,
}

impl Selection {
    /// The choice that the programs are loaded with.
    pub(super) const fn of(settings: &Settings) -> Self {
        Self {
            min_size: settings.min_size,
            sample_bytes: settings.sample_bytes,
        }
    }

    /// What the file says of it.
    pub(super) fn comments(&self) -> Vec<String> {
        let mut comments = Vec::new();
        if self.min_size > 0 {
            let size = self.min_size;
            comments.push(format!(" left out: allocations of less than {size} bytes"));
        }
        if self.sample_bytes > 0 {
            let mean = self.sample_bytes;
            comments.push(format!(
                " sampled: one allocation in {mean} bytes on average; sizes are estimates, \
                 size / (1 - exp(-size / {mean})), whose sums have no bias; counts are of samples"
            ));
        }
        comments
    }
}

/// How many bytes a sampled allocation stands for: its size by the chance that it had to be
/// sampled.
pub(super) fn estimate(size: u64, mean: u64) -> u64 {
    if mean == 0 || size == 0 {
        return size;
    }
    let (size, mean) = (size as f64, mean as f64);
    let chance = -(-size / mean).exp_m1();
    (size / chance).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_blocks_stand_for_the_distance_and_large_ones_for_themselves() {
        assert_eq!(estimate(1, 0), 1);
        assert_eq!(estimate(16, 524_288), 524_296);
        assert_eq!(estimate(524_288, 524_288), 829_411);
        assert_eq!(estimate(100 << 20, 524_288), 100 << 20);
        assert_eq!(estimate(0, 512), 0);
    }

    #[test]
    fn only_a_choice_is_worth_a_comment() {
        assert!(Selection::default().comments().is_empty());
        let both = Selection {
            min_size: 8,
            sample_bytes: 9,
        };
        assert_eq!(both.comments().len(), 2);
    }
}
