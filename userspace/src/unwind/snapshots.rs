//! The target's mappings as they were at each notice, until the drain comes to the notice's record.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// Texts of `/proc/PID/maps`, by stamp.
#[derive(Debug, Default)]
pub struct Snapshots(Mutex<BTreeMap<u64, Vec<u8>>>);

/// More are not kept: the drain is never so far behind, unless records were lost.
const MAX_KEPT: usize = 256;

impl Snapshots {
    /// Keeps a text.
    pub(super) fn add(&self, stamp: u64, mappings: Vec<u8>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(stamp, mappings);
        if kept.len() > MAX_KEPT {
            kept.pop_first();
        }
    }

    /// Takes the text of a stamp, if there is one.
    pub fn take(&self, stamp: u64) -> Option<Vec<u8>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_is_taken_once_and_few_are_kept() {
        let snapshots = Snapshots::default();
        snapshots.add(7, b"seven".to_vec());
        assert_eq!(snapshots.take(7), Some(b"seven".to_vec()));
        assert_eq!(snapshots.take(7), None);
        (0..1000).for_each(|stamp| snapshots.add(stamp, Vec::new()));
        assert_eq!(
            (snapshots.take(0), snapshots.take(999)),
            (None, Some(Vec::new()))
        );
    }
}
