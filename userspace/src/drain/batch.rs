//! What the drain passes on.

use htrace_ebpf_common::wire::{DecodeError, Record};

/// What the drain has collected since the last batch.
#[derive(Debug, Default)]
pub struct Batch {
    /// Time at the end of the batch: `CLOCK_MONOTONIC` in ticks of 10 ms.
    pub now: u64,
    /// Resident pages of the target at that time, if it could be read.
    pub resident_pages: Option<u64>,
    /// Records and mappings, in order.
    pub items: Vec<Item>,
}

/// A part of a batch.
#[derive(Debug)]
pub enum Item {
    /// Records of the ring buffer.
    Records(Records),
    /// The text of `/proc/PID/maps` right after the record before this item.
    Mappings(Vec<u8>),
}

/// Records of the ring buffer, one after the other in one block of memory.
#[derive(Debug, Default)]
pub struct Records {
    /// Length in bytes as four bytes, then the record.
    bytes: Vec<u8>,
}

const LENGTH: usize = size_of::<u32>();

impl Records {
    /// Adds a record.
    pub fn push(&mut self, record: &[u8]) {
        // Records are at most some KiB long.
        let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(record);
    }

    /// Bytes in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True without records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The records, decoded.
    pub fn iter(&self) -> impl Iterator<Item = Result<Record<'_>, DecodeError>> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<LENGTH>()?;
            let length = u32::from_ne_bytes(*length) as usize;
            let (record, behind) = behind.split_at_checked(length)?;
            rest = behind;
            Some(Record::decode(record))
        })
    }
}

impl Batch {
    /// Where to add the next record.
    pub fn records(&mut self) -> &mut Records {
        if !matches!(self.items.last(), Some(Item::Records(_))) {
            self.items.push(Item::Records(Records::default()));
        }
        match self.items.last_mut() {
            Some(Item::Records(records)) => records,
            _ => unreachable!("the last item was just made"),
        }
    }

    /// Bytes of records and mappings.
    #[must_use]
    pub fn len(&self) -> usize {
        let length = |item: &Item| match item {
            Item::Records(records) => records.len(),
            Item::Mappings(text) => text.len(),
        };
        self.items.iter().map(length).sum()
    }

    /// True without records and mappings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes of [`Batch::encode`].
    pub(super) fn encoded_length(&self) -> usize {
        2 * WORD + self.items.len() * (1 + WORD) + self.len()
    }

    /// The batch as bytes that this process alone reads again: time, memory, then tag, length and
    /// bytes of each item.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_length());
        bytes.extend_from_slice(&self.now.to_ne_bytes());
        let pages = self.resident_pages.unwrap_or(NO_SAMPLE);
        bytes.extend_from_slice(&pages.to_ne_bytes());
        for item in &self.items {
            let (tag, content) = match item {
                Item::Records(records) => (TAG_RECORDS, &records.bytes),
                Item::Mappings(text) => (TAG_MAPPINGS, text),
            };
            bytes.push(tag);
            bytes.extend_from_slice(&content.len().to_ne_bytes());
            bytes.extend_from_slice(content);
        }
        bytes
    }

    /// Reads what [`Batch::encode`] has made; `None` if it is not that.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (now, bytes) = bytes.split_first_chunk::<WORD>()?;
        let (pages, mut bytes) = bytes.split_first_chunk::<WORD>()?;
        let mut items = Vec::new();
        while let Some((tag, rest)) = bytes.split_first() {
            let (length, rest) = rest.split_first_chunk::<WORD>()?;
            let (content, rest) = rest.split_at_checked(usize::from_ne_bytes(*length))?;
            bytes = rest;
            let content = content.to_vec();
            items.push(match *tag {
                TAG_RECORDS => Item::Records(Records { bytes: content }),
                TAG_MAPPINGS => Item::Mappings(content),
                _ => return None,
            });
        }
        let pages = u64::from_ne_bytes(*pages);
        Some(Self {
            now: u64::from_ne_bytes(*now),
            resident_pages: (pages != NO_SAMPLE).then_some(pages),
            items,
        })
    }
}

const WORD: usize = size_of::<u64>();
const TAG_RECORDS: u8 = 0;
const TAG_MAPPINGS: u8 = 1;
/// More pages than there can be.
const NO_SAMPLE: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use htrace_ebpf_common::wire::{Event, Kind};

    use super::*;

    fn free(pointer: u64) -> Vec<u8> {
        let mut bytes = vec![Kind::Free as u8, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(pointer.to_ne_bytes());
        bytes
    }

    #[test]
    fn records_come_back_in_order() {
        let mut records = Records::default();
        (1..4).for_each(|pointer| records.push(&free(pointer)));
        let pointers: Vec<u64> = records
            .iter()
            .map(|record| match record.unwrap().event {
                Event::Free { pointer } => pointer,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(pointers, [1, 2, 3]);
    }

    #[test]
    fn a_bad_record_is_an_error_and_the_next_one_is_read() {
        let mut records = Records::default();
        records.push(b"garbage!");
        records.push(&free(1));
        let results: Vec<bool> = records.iter().map(|record| record.is_ok()).collect();
        assert_eq!(results, [false, true]);
    }

    #[test]
    fn a_batch_comes_back_from_bytes_and_a_damaged_one_does_not() {
        let mut batch = Batch {
            now: 7,
            resident_pages: Some(9),
            ..Batch::default()
        };
        batch.records().push(&free(1));
        batch.items.push(Item::Mappings(b"maps".to_vec()));
        batch.records().push(&free(2));
        let bytes = batch.encode();
        assert_eq!(bytes.len(), batch.encoded_length());
        let again = Batch::decode(&bytes).unwrap();
        assert_eq!((again.now, again.resident_pages), (7, Some(9)));
        assert_eq!(format!("{:?}", again.items), format!("{:?}", batch.items));
        for cut in (0..bytes.len()).filter(|cut| *cut != 16) {
            let shorter = Batch::decode(&bytes[..cut]);
            // Between items it is a shorter batch: lengths are kept apart.
            assert!(
                shorter.is_none_or(|shorter| shorter.items.len() < 3),
                "{cut}"
            );
        }
    }

    #[test]
    fn mappings_keep_their_place_between_records() {
        let mut batch = Batch::default();
        batch.records().push(&free(1));
        batch.items.push(Item::Mappings(b"maps".to_vec()));
        batch.records().push(&free(2));
        assert_eq!(batch.items.len(), 3);
        assert_eq!(batch.len(), 2 * 20 + 4);
    }
}
