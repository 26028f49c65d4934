//! The target's mappings as they were at each notice, until the drain comes to the notice's record.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Texts of `/proc/PID/maps`, by stamp.
#[derive(Debug, Default)]
pub struct Snapshots(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    texts: BTreeMap<u64, Vec<u8>>,
    /// Of all texts.
    bytes: usize,
    /// True once a text had to go that nobody had taken.
    lost: bool,
}

/// Bytes of texts that are kept: thousands of them, should the drain be held up for so long.
const MAX_BYTES: usize = 64 << 20;

impl Snapshots {
    /// Keeps a text.
    pub(super) fn add(&self, stamp: u64, mappings: Vec<u8>) {
        let mut kept = self.lock();
        kept.bytes += mappings.len();
        kept.texts.insert(stamp, mappings);
        while kept.bytes > MAX_BYTES && kept.texts.len() > 1 {
            kept.drop_first();
            if !std::mem::replace(&mut kept.lost, true) {
                tracing::warn!(
                    "the target maps code faster than it can be looked at: names of code that is \
                     gone again may be of what came after it"
                );
            }
        }
    }

    /// Takes the text of a stamp, if there is one, and drops older ones, which it replaces.
    pub fn take(&self, stamp: u64) -> Option<Vec<u8>> {
        let mut kept = self.lock();
        while kept.texts.first_key_value()?.0 < &stamp {
            kept.drop_first();
        }
        let text = kept.texts.remove(&stamp)?;
        kept.bytes -= text.len();
        Some(text)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn drop_first(&mut self) {
        if let Some((_, text)) = self.texts.pop_first() {
            self.bytes -= text.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_is_taken_once() {
        let snapshots = Snapshots::default();
        snapshots.add(7, b"seven".to_vec());
        assert_eq!(snapshots.take(7), Some(b"seven".to_vec()));
        assert_eq!(snapshots.take(7), None);
    }

    #[test]
    fn older_texts_go_with_the_one_that_is_taken() {
        let snapshots = Snapshots::default();
        (1..4).for_each(|stamp| snapshots.add(stamp, vec![0; 10]));
        assert_eq!(snapshots.take(2), Some(vec![0; 10]));
        assert_eq!(snapshots.take(1), None);
        assert_eq!(snapshots.lock().bytes, 10);
        assert_eq!(snapshots.take(4), None);
        assert_eq!(snapshots.lock().bytes, 0);
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_bytes() {
        let snapshots = Snapshots::default();
        (1..=3).for_each(|stamp| snapshots.add(stamp, vec![0; MAX_BYTES / 2]));
        assert_eq!(snapshots.take(1), None);
        assert!(snapshots.take(2).is_some());
        assert!(snapshots.take(3).is_some());
    }
}
