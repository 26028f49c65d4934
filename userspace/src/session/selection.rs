//! Which allocations a recording holds, and what a sampled one stands for.
//!
//! Pure. The BPF programs choose, and by functions the converter; here the file is told, and sizes
//! are scaled.

use super::options::Options;
use crate::loader::ThreadChoice;

/// A choice of allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// Those of fewer bytes are left out.
    pub(super) min_size: u64,
    /// Mean distance of samples in bytes; 0 if all are recorded.
    pub(super) sample_bytes: u64,
    /// Those of other threads are left out, if there are any.
    pub(super) threads: Vec<ThreadChoice>,
    /// Those before the first call of this function are left out.
    pub(super) wait_for: Option<String>,
    /// Those below none of these functions are left out, if there are any.
    pub(super) functions: Vec<String>,
}

impl Selection {
    /// The choice of a recording.
    pub(super) fn of(options: &Options) -> Self {
        let settings = &options.settings;
        Self {
            min_size: settings.min_size,
            sample_bytes: settings.sample_bytes,
            threads: settings.threads.clone(),
            wait_for: settings.wait_for.clone(),
            functions: options.functions.clone(),
        }
    }

    /// True if nothing is left out.
    pub(super) fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// What the file says of it.
    pub(super) fn comments(&self) -> Vec<String> {
        let mut comments = Vec::new();
        if self.min_size > 0 {
            let size = self.min_size;
            comments.push(format!(" left out: allocations of less than {size} bytes"));
        }
        if !self.threads.is_empty() {
            let names: Vec<String> = self.threads.iter().map(ThreadChoice::to_string).collect();
            let names = names.join(", ");
            comments.push(format!(
                " left out: allocations of threads other than {names}"
            ));
        }
        if let Some(function) = &self.wait_for {
            comments.push(format!(
                " left out: allocations before the first call of {function}"
            ));
        }
        if !self.functions.is_empty() {
            let names = self.functions.join(", ");
            comments.push(format!(" left out: allocations below none of {names}"));
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
        let all = Selection {
            min_size: 8,
            sample_bytes: 9,
            threads: vec![ThreadChoice::Id(7), ThreadChoice::from("pool")],
            wait_for: Some("serve".to_owned()),
            functions: vec!["parse".to_owned(), "f(int)".to_owned()],
        };
        assert!(!all.is_everything() && Selection::default().is_everything());
        let comments = all.comments();
        assert_eq!(comments.len(), 5);
        assert!(comments[1].ends_with("threads other than 7, pool"));
        assert!(comments[2].ends_with("the first call of serve"));
        assert!(comments[3].ends_with("below none of parse, f(int)"));
    }
}
