//! The bulk of a file: lines `+ INFO` and `- INFO`, many at once.
//!
//! What is read here is only what is well-formed and short; everything else, and every message, is
//! the general reader's. So nothing here needs to know lines or places.

use crate::hex;
use crate::index::AllocationInfoIndex;

/// An allocation or deallocation, packed so that a batch stays small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event(u32);

impl Event {
    /// Infos from this one on have no place in an event.
    const INFOS: u32 = 1 << 31;

    /// An event of `info`; `None` for an index that no real file reaches.
    #[inline]
    #[must_use]
    pub fn new(info: AllocationInfoIndex, is_free: bool) -> Option<Self> {
        (info.get() < Self::INFOS).then_some(Self((info.get() << 1) | u32::from(is_free)))
    }

    /// What was allocated or freed.
    #[inline]
    #[must_use]
    pub fn info(self) -> AllocationInfoIndex {
        AllocationInfoIndex::from_file(self.0 >> 1)
    }

    /// A deallocation.
    #[inline]
    #[must_use]
    pub fn is_free(self) -> bool {
        self.0 & 1 != 0
    }
}

/// Consecutive events, see [`crate::RecordReader::take_events`].
#[derive(Clone, Debug)]
pub struct EventBatch {
    events: Box<[Event; Self::MOST]>,
    length: usize,
}

impl Default for EventBatch {
    fn default() -> Self {
        Self {
            events: Box::new([Event::default(); Self::MOST]),
            length: 0,
        }
    }
}

/// How much of a text became events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) lines: usize,
    pub(crate) bytes: usize,
    pub(crate) last_line_bytes: usize,
}

/// Bytes of a line that are looked at: letter, space, up to seven digits, line feed.
const LINE_BYTES: usize = 10;
const ALLOCATION: u16 = u16::from_le_bytes(*b"+ ");
const KIND_OF_FREE: u16 = u16::from_le_bytes(*b"- ") - ALLOCATION;

impl EventBatch {
    /// Events of a full batch: few enough to stay in the processor's first cache.
    pub const MOST: usize = 4096;

    /// The events.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        self.events.get(..self.length).unwrap_or_default()
    }

    pub(crate) fn clear(&mut self) {
        self.length = 0;
    }

    /// Fills the batch from the start of `text`.
    #[inline]
    pub(crate) fn take(&mut self, text: &[u8], known: usize) -> Taken {
        let known = u32::try_from(known).unwrap_or(u32::MAX);
        let mut taken = Taken::default();
        let mut rest = text;
        for slot in self.events.iter_mut() {
            let Some((event, bytes)) = event_at(rest, known) else {
                break;
            };
            *slot = event;
            rest = &rest[bytes..];
            taken.lines += 1;
            taken.last_line_bytes = bytes;
        }
        taken.bytes = text.len() - rest.len();
        self.length = taken.lines;
        taken
    }
}

/// The event at the start of `text`, and the bytes of its line.
#[inline(always)]
fn event_at(text: &[u8], known: u32) -> Option<(Event, usize)> {
    let line = text.first_chunk::<LINE_BYTES>()?;
    let (&letters, digits) = line.split_first_chunk::<2>()?;
    // 0 or 2; one comparison for both, since no processor can predict which of them it is.
    let kind = u16::from_le_bytes(letters).wrapping_sub(ALLOCATION);
    if kind & !KIND_OF_FREE != 0 {
        return None;
    }
    let (index, digits) = hex::line_of_digits(*digits.first_chunk()?)?;
    // Seven digits leave room for the lowest bit.
    let event = Event((index << 1) | u32::from(kind / KIND_OF_FREE));
    (index < known).then_some((event, digits + 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_it_knows_and_leaves_the_rest() {
        let mut batch = EventBatch::default();
        let text = b"+ 0\n+ 1f\n- 0\n+ 20\n- 1\n          ";
        let taken = batch.take(text, 0x20);
        let events: Vec<_> = batch
            .events()
            .iter()
            .map(|event| (event.info().get(), event.is_free()))
            .collect();
        assert_eq!(events, [(0, false), (0x1f, false), (0, true)]);
        let expected = Taken {
            lines: 3,
            bytes: 13,
            last_line_bytes: 4,
        };
        assert_eq!(taken, expected);
        for text in [
            &b"+ 1"[..],
            b"",
            b"c 1\n              ",
            b"+  1\n              ",
        ] {
            assert_eq!(batch.take(text, 0x20), Taken::default());
        }
    }

    #[test]
    fn a_batch_is_bounded() {
        let mut batch = EventBatch::default();
        let text = b"- 7\n".repeat(EventBatch::MOST + 10);
        assert_eq!(batch.take(&text, 8).lines, EventBatch::MOST);
    }

    #[test]
    fn an_event_holds_every_index_that_fits() {
        for index in [0, 1, Event::INFOS - 1] {
            let info = AllocationInfoIndex::from_file(index);
            let event = Event::new(info, true).unwrap();
            assert_eq!((event.info(), event.is_free()), (info, true));
        }
        assert!(Event::new(AllocationInfoIndex::from_file(Event::INFOS), false).is_none());
    }
}
