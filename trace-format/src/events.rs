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

/// Bytes in which line feeds are looked for at once.
const BLOCK: usize = 64;
/// Bytes of the shortest event, `+ 0` and its line feed.
const SHORTEST: usize = 4;
/// Bytes of the longest event without its line feed: one word. Six digits.
const LONGEST: usize = size_of::<u64>();
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

    /// Fills the batch with the lines of `text` from `start` on, up to its last [`BLOCK`] or so.
    ///
    /// Line feeds are found for a whole block first: so no line has to wait until the processor
    /// knows where the one before it ends, and several are read at the same time.
    #[inline]
    pub(crate) fn take(&mut self, text: &[u8], start: usize, known: usize) -> Taken {
        let known = u32::try_from(known).unwrap_or(u32::MAX);
        let (mut line, mut last_line) = (start, start);
        self.length = 0;
        let (blocks, _) = text.get(start..).unwrap_or_default().as_chunks::<BLOCK>();
        'blocks: for (block, at) in blocks.iter().zip((start..).step_by(BLOCK)) {
            if self.length + BLOCK / SHORTEST > Self::MOST {
                break;
            }
            let mut line_feeds = hex::possible_line_feeds(block);
            while line_feeds != 0 {
                let end = at + line_feeds.trailing_zeros() as usize;
                line_feeds &= line_feeds - 1;
                let event = event_between(text, line, end, known);
                let slot = self.events.get_mut(self.length);
                let Some((event, slot)) = event.zip(slot) else {
                    break 'blocks;
                };
                *slot = event;
                self.length += 1;
                (last_line, line) = (line, end + 1);
            }
        }
        Taken {
            lines: self.length,
            bytes: line - start,
            last_line_bytes: line - last_line,
        }
    }
}

/// The event in the line that starts at `start` and whose line feed may be at `end`.
#[inline(always)]
fn event_between(text: &[u8], start: usize, end: usize, known: u32) -> Option<Event> {
    // Reaches into the line before, where there is one.
    let word_and_end = text.get(end.checked_sub(LONGEST)?..=end)?;
    let (word, line_feed) = word_and_end.split_first_chunk()?;
    let word = u64::from_le_bytes(*word);
    let length = end.wrapping_sub(start);
    let digits = length.wrapping_sub(2);
    if line_feed != b"\n" || length > LONGEST {
        return None;
    }
    let index = hex::digits_at_end(word, digits)?;
    let letters = word >> (8 * (LONGEST - length));
    // 0 or 2; one comparison for both, since no processor can predict which of them it is.
    let kind = (letters as u16).wrapping_sub(ALLOCATION);
    // Six digits leave room for the lowest bit.
    let event = Event((index << 1) | u32::from(kind / KIND_OF_FREE));
    (kind & !KIND_OF_FREE == 0 && index < known).then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The batch and what was taken, of `text` between other lines.
    fn taken(text: &[u8], known: usize) -> (Vec<(u32, bool)>, Taken) {
        let before = b"c 12345\n";
        let text = [before, text, &b"c 1\n".repeat(BLOCK)].concat();
        let mut batch = EventBatch::default();
        let taken = batch.take(&text, before.len(), known);
        let events = batch.events().iter();
        let events = events.map(|event| (event.info().get(), event.is_free()));
        (events.collect(), taken)
    }

    #[test]
    fn takes_what_it_knows_and_leaves_the_rest() {
        let (events, whole) = taken(b"+ 0\n+ 1f\n- 0\n+ 20\n- 1\n", 0x20);
        assert_eq!(events, [(0, false), (0x1f, false), (0, true)]);
        let expected = Taken {
            lines: 3,
            bytes: 13,
            last_line_bytes: 4,
        };
        assert_eq!(whole, expected);
        for text in [
            "+ \n",
            "\n",
            "+  1\n",
            "+ 1\r\n",
            "+1\n",
            "* 1\n",
            "+ 0000001\n",
        ] {
            assert_eq!(taken(text.as_bytes(), 0x20).1, Taken::default(), "{text:?}");
        }
        assert_eq!(taken(b"- 000001\n", 2).0, [(1, true)]);
        assert_eq!(EventBatch::default().take(b"+ 1\n", 0, 2), Taken::default());
    }

    #[test]
    fn a_batch_is_bounded() {
        let mut batch = EventBatch::default();
        let text = b"- 7\n".repeat(2 * EventBatch::MOST);
        let all = EventBatch::MOST - BLOCK / SHORTEST..=EventBatch::MOST;
        let taken = batch.take(&text, 8, 8);
        assert!(all.contains(&taken.lines), "{taken:?}");
        assert_eq!(taken.bytes, taken.lines * 4);
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
