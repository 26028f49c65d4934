//! The queue between drain and recorder: first in memory, then in a file.
//!
//! The recorder may be held up for seconds, by debug information that it reads or by a slow disk.
//! What comes meanwhile waits in memory up to a bound, and then in a file, so that neither the
//! ring buffer fills up nor memory grows. Order is kept: while batches wait in the file, further
//! ones go there too. Only when the file takes no more does the sender wait.
//!
//! No lock is held during input and output.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc::SyncSender},
};

use super::{batch::Batch, spill::Spill};

/// Where batches go in.
#[derive(Debug)]
pub struct Sender(Arc<Shared>);

/// Where they come out.
#[derive(Debug)]
pub struct Receiver(Arc<Shared>);

/// The other end is gone.
#[derive(Debug, PartialEq, Eq)]
pub struct Disconnected;

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    spill: Spill,
    /// Batches that may wait in memory.
    in_memory: usize,
}

#[derive(Debug, Default)]
struct State {
    memory: VecDeque<Batch>,
    /// Place and length of each batch in the file, in order.
    spilled: VecDeque<Place>,
    /// Where the file goes on.
    end: u64,
    sender_gone: bool,
    receiver_gone: bool,
}

/// Where a batch lies in the file.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    length: usize,
}

/// Makes a queue. `in_memory` batches wait in memory, what goes beyond in `spill`.
#[must_use]
pub fn queue(in_memory: usize, spill: Spill) -> (Sender, Receiver) {
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        changed: Condvar::new(),
        spill,
        in_memory,
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a drain passes its batches on.
pub trait Queue: Send + 'static {
    /// Adds a batch, and waits for room if there is none.
    ///
    /// # Errors
    /// When nobody will take it.
    fn send(&self, batch: Batch) -> Result<(), Disconnected>;
}

/// A queue in memory alone.
impl Queue for SyncSender<Batch> {
    fn send(&self, batch: Batch) -> Result<(), Disconnected> {
        SyncSender::send(self, batch).map_err(|_| Disconnected)
    }
}

impl Queue for Sender {
    /// Waits only when neither memory nor file have room.
    fn send(&self, batch: Batch) -> Result<(), Disconnected> {
        let shared = &*self.0;
        let mut may_spill = true;
        let mut state = shared.lock();
        loop {
            if state.receiver_gone {
                return Err(Disconnected);
            }
            if state.spilled.is_empty() && state.memory.len() < shared.in_memory {
                state.memory.push_back(batch);
                shared.changed.notify_all();
                return Ok(());
            }
            if may_spill {
                let place = state.reserve(&batch);
                drop(state);
                let written = shared.spill.write(place.offset, &batch);
                state = shared.lock();
                if written {
                    state.spilled.push_back(place);
                    state.end = place.offset + place.length as u64;
                    shared.changed.notify_all();
                    return Ok(());
                }
                // Whatever the file lacks: with each batch that is taken it may be there.
                may_spill = false;
                continue;
            }
            state = shared.wait(state);
            may_spill = true;
        }
    }
}

impl State {
    /// Takes the place behind what is in the file, or its beginning if there is nothing.
    fn reserve(&self, batch: &Batch) -> Place {
        let offset = if self.spilled.is_empty() { 0 } else { self.end };
        Place {
            offset,
            length: batch.encoded_length(),
        }
    }
}

impl Receiver {
    /// Takes the next batch, and waits for it; `None` when there will be no more.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn receive(&self) -> io::Result<Option<Batch>> {
        let shared = &*self.0;
        let mut state = shared.lock();
        loop {
            if let Some(batch) = state.memory.pop_front() {
                shared.changed.notify_all();
                return Ok(Some(batch));
            }
            if let Some(&place) = state.spilled.front() {
                drop(state);
                let batch = shared.spill.take(place.offset, place.length)?;
                shared.lock().spilled.pop_front();
                shared.changed.notify_all();
                return Ok(Some(batch));
            }
            if state.sender_gone {
                return Ok(None);
            }
            state = shared.wait(state);
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.lock().sender_gone = true;
        self.0.changed.notify_all();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.lock().receiver_gone = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, thread};

    use super::*;

    fn batch(now: u64) -> Batch {
        let mut batch = Batch {
            now,
            resident_pages: now.is_multiple_of(2).then_some(now),
            ..Batch::default()
        };
        batch.records().push(&now.to_ne_bytes());
        batch
    }

    fn spill(directory: &Path, limit: Option<u64>) -> Spill {
        Spill::beside(&directory.join("trace.zst"), limit)
    }

    fn received(receiver: &Receiver) -> Option<u64> {
        let batch = receiver.receive().unwrap()?;
        assert_eq!(
            batch.resident_pages,
            batch.now.is_multiple_of(2).then_some(batch.now)
        );
        assert_eq!(batch.len(), 12);
        Some(batch.now)
    }

    #[test]
    fn a_slow_receiver_gets_everything_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let (sender, receiver) = queue(2, spill(directory.path(), None));
        for now in 0..100 {
            sender.send(batch(now)).unwrap();
        }
        // What lies in the file is nobody's to see.
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        for now in 0..100 {
            assert_eq!(received(&receiver), Some(now));
        }
        // Memory serves again once the file is empty.
        sender.send(batch(100)).unwrap();
        drop(sender);
        assert_eq!(received(&receiver), Some(100));
        assert_eq!(received(&receiver), None);
    }

    #[test]
    fn both_sides_at_once_keep_the_order() {
        let directory = tempfile::tempdir().unwrap();
        let (sender, receiver) = queue(1, spill(directory.path(), None));
        let sending = thread::spawn(move || {
            for now in 0..5000 {
                sender.send(batch(now)).unwrap();
            }
        });
        for now in 0..5000 {
            assert_eq!(received(&receiver), Some(now));
        }
        assert_eq!(received(&receiver), None);
        sending.join().unwrap();
    }

    #[test]
    fn a_full_file_makes_the_sender_wait() {
        let directory = tempfile::tempdir().unwrap();
        let limit = 3 * batch(0).encoded_length() as u64;
        let (sender, receiver) = queue(1, spill(directory.path(), Some(limit)));
        let sending = thread::spawn(move || {
            for now in 0..50 {
                sender.send(batch(now)).unwrap();
            }
        });
        for now in 0..50 {
            assert_eq!(received(&receiver), Some(now));
        }
        assert_eq!(received(&receiver), None);
        sending.join().unwrap();
    }

    #[test]
    fn nobody_waits_for_a_receiver_that_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let (sender, receiver) = queue(1, spill(directory.path(), Some(0)));
        sender.send(batch(0)).unwrap();
        let sending = thread::spawn(move || sender.send(batch(1)));
        drop(receiver);
        assert_eq!(sending.join().unwrap(), Err(Disconnected));
    }
}
