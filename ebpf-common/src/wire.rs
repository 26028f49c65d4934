//! Records of the ring buffer.
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0 | kind | one of [`Kind`] |
//! | 1 | detail | depends on the kind |
//! | 2..4 | clock | `CLOCK_MONOTONIC` in ticks of 10 ms, lowest 16 bits |
//! | 4..8 | tid | thread id in the initial pid namespace |
//! | 8.. | body | whole 64-bit words, depends on the kind |
//!
//! The BPF side fills the `repr(C)` structures in place; the recorder reads them with
//! [`Record::decode`], which trusts nothing: every length and tag is checked. Numbers are in the
//! machine's byte order, since both ends are the same machine.

use crate::{control::MAX_FRAMES, tables::FileKey};

/// Nanoseconds in one tick of [`Header::clock`].
pub const TICK_NS: u64 = 10_000_000;

/// What a record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A stack seen for the first time: id, number of frames and reason of its end, frames.
    Stack = 1,
    /// A successful allocation: pointer, size, stack id.
    Allocation = 2,
    /// A block that is about to be freed: pointer.
    Free = 3,
    /// A block that is about to be reallocated: pointer.
    ReallocBegin = 4,
    /// The result of a realloc: old pointer, new pointer, size, stack id. The detail is an
    /// [`Outcome`].
    ReallocEnd = 5,
    /// The dynamic linker has changed the list of loaded modules: stamp.
    ModulesChanged = 6,
    /// The process has replaced its program: stamp.
    Exec = 7,
    /// A stack runs through a file whose unwind table is missing: device and inode of the file,
    /// an address in it.
    TableWanted = 8,
}

/// How a realloc ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// The old block, if there was one, is gone and the new one lives.
    Moved = 0,
    /// Null was returned and the old block lives on.
    Failed = 1,
    /// A size of zero freed the old block.
    Freed = 2,
}

/// Why a stack ends where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum StackEnd {
    /// The outermost frame was reached.
    Complete = 0,
    /// More frames than fit into a record.
    Depth = 1,
    /// The next frame could not be read.
    Unreadable = 2,
    /// The next frame cannot be right.
    Suspect = 3,
    /// The last frame is in a file without an unwind table.
    NoTable = 4,
    /// The last frame is in code that its file's unwind data does not cover.
    Gap = 5,
    /// The last frame is in code whose unwind rule no table can express.
    Unsupported = 6,
    /// The last frame is in executable memory without a file: generated code.
    Jit = 7,
    /// The mapping of the last frame's address could not be looked up for a lock.
    Locked = 8,
    /// The outermost frame was reached, on the way through code without unwind data by its frame
    /// pointers: a guess.
    Guessed = 9,
}

impl StackEnd {
    /// The reason that a record's number stands for.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Complete,
            1 => Self::Depth,
            2 => Self::Unreadable,
            3 => Self::Suspect,
            4 => Self::NoTable,
            5 => Self::Gap,
            6 => Self::Unsupported,
            7 => Self::Jit,
            8 => Self::Locked,
            9 => Self::Guessed,
            _ => return None,
        })
    }

    /// True if the outermost frame was reached.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Complete | Self::Guessed)
    }

    /// The word by which files and reports name the reason.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Depth => "depth",
            Self::Unreadable => "unreadable",
            Self::Suspect => "suspect",
            Self::NoTable => "no-table",
            Self::Gap => "no-unwind-data",
            Self::Unsupported => "unsupported-rule",
            Self::Jit => "generated-code",
            Self::Locked => "mappings-locked",
            Self::Guessed => "complete-by-frame-pointers",
        }
    }
}

/// Head of every record.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// One of [`Kind`].
    pub kind: u8,
    /// Depends on the kind; 0 where nothing else is said.
    pub detail: u8,
    /// `CLOCK_MONOTONIC` in ticks of [`TICK_NS`], lowest 16 bits.
    pub clock: u16,
    /// Thread id in the initial pid namespace.
    pub tid: u32,
}

/// Record of one 64-bit word: [`Kind::Free`] and [`Kind::ReallocBegin`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PointerRecord {
    /// Head of the record.
    pub header: Header,
    /// The block.
    pub pointer: u64,
}

/// Record of [`Kind::Allocation`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AllocationRecord {
    /// Head of the record.
    pub header: Header,
    /// The block.
    pub pointer: u64,
    /// Requested size in bytes.
    pub size: u64,
    /// Id of a stack sent before, or 0 for none.
    pub stack: u64,
}

/// Record of [`Kind::ReallocEnd`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReallocRecord {
    /// Head of the record, with an [`Outcome`] as detail.
    pub header: Header,
    /// The block before, 0 for none.
    pub old: u64,
    /// The block after, 0 unless moved.
    pub new: u64,
    /// Requested size in bytes.
    pub size: u64,
    /// Id of a stack sent before, or 0 for none.
    pub stack: u64,
}

/// Record of [`Kind::ModulesChanged`] and [`Kind::Exec`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NoticeRecord {
    /// Head of the record.
    pub header: Header,
    /// `CLOCK_MONOTONIC` in nanoseconds. The target waits until this or a later one is
    /// acknowledged.
    pub stamp: u64,
}

/// Record of [`Kind::TableWanted`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TableWantedRecord {
    /// Head of the record.
    pub header: Header,
    /// The file.
    pub file: FileKey,
    /// An address in a mapping of it.
    pub address: u64,
}

/// Record of [`Kind::Stack`]; the frames in use follow each other from the leaf on, the rest of
/// the array is not sent. The detail is a [`StackEnd`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StackRecord {
    /// Head of the record, with a [`StackEnd`] as detail.
    pub header: Header,
    /// Id of the stack, never 0.
    pub id: u64,
    /// Return addresses, leaf first.
    pub frames: [u64; MAX_FRAMES],
}

impl StackRecord {
    /// Bytes before the first frame.
    pub const HEAD: usize = size_of::<Header>() + size_of::<u64>();
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// `CLOCK_MONOTONIC` in ticks of [`TICK_NS`], lowest 16 bits.
    pub clock: u16,
    /// Thread id in the initial pid namespace.
    pub tid: u32,
    /// What the record tells.
    pub event: Event<'a>,
}

/// What a record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A stack seen for the first time.
    Stack {
        /// Its id, never 0.
        id: u64,
        /// Why it ends.
        end: StackEnd,
        /// Its frames.
        frames: Frames<'a>,
    },
    /// A successful allocation.
    Allocation {
        /// The block.
        pointer: u64,
        /// Requested size in bytes.
        size: u64,
        /// Id of a stack sent before, or 0 for none.
        stack: u64,
    },
    /// A block that is about to be freed.
    Free {
        /// The block.
        pointer: u64,
    },
    /// A block that is about to be reallocated.
    ReallocBegin {
        /// The block.
        pointer: u64,
    },
    /// The result of a realloc.
    ReallocEnd {
        /// How it ended.
        outcome: Outcome,
        /// The block before, 0 for none.
        old: u64,
        /// The block after, 0 unless moved.
        new: u64,
        /// Requested size in bytes.
        size: u64,
        /// Id of a stack sent before, or 0 for none.
        stack: u64,
    },
    /// The list of loaded modules has changed.
    ModulesChanged {
        /// What the target waits for to be acknowledged.
        stamp: u64,
    },
    /// The process has replaced its program.
    Exec {
        /// As for [`Event::ModulesChanged`].
        stamp: u64,
    },
    /// An unwind table is missing.
    TableWanted {
        /// Of which file.
        file: FileKey,
        /// An address in a mapping of it.
        address: u64,
    },
}

/// Return addresses of a stack, leaf first, still in the bytes of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames<'a>(&'a [u8]);

impl<'a> Frames<'a> {
    /// Number of frames.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len() / size_of::<u64>()
    }

    /// True for a stack without frames.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The return addresses, leaf first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + use<'a> {
        self.0.chunks_exact(size_of::<u64>()).map(word)
    }
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Fewer bytes than a header.
    NoHeader {
        /// Number of bytes.
        length: usize,
    },
    /// A kind that is not known.
    UnknownKind {
        /// The number in its place.
        kind: u8,
    },
    /// A detail that the kind does not have.
    UnknownDetail {
        /// Number of the kind.
        kind: u8,
        /// The number in its place.
        detail: u8,
    },
    /// A length that the kind cannot have.
    WrongLength {
        /// Number of the kind.
        kind: u8,
        /// Number of bytes of the whole record.
        length: usize,
    },
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoHeader { length } => write!(f, "record of {length} bytes has no header"),
            Self::UnknownKind { kind } => write!(f, "record of unknown kind {kind}"),
            Self::UnknownDetail { kind, detail } => {
                write!(f, "record of kind {kind} has unknown detail {detail}")
            }
            Self::WrongLength { kind, length } => {
                write!(f, "record of kind {kind} cannot have {length} bytes")
            }
        }
    }
}

impl core::error::Error for DecodeError {}

impl<'a> Record<'a> {
    /// Reads one record from all of `bytes`.
    ///
    /// # Errors
    /// When the bytes are not exactly one well-formed record.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (&[kind, detail, c0, c1, t0, t1, t2, t3], body) = bytes
            .split_first_chunk::<8>()
            .ok_or(DecodeError::NoHeader {
                length: bytes.len(),
            })?;
        let raw = Raw { kind, detail, body };
        Ok(Self {
            clock: u16::from_ne_bytes([c0, c1]),
            tid: u32::from_ne_bytes([t0, t1, t2, t3]),
            event: raw.event()?,
        })
    }
}

/// A record whose header was split off.
struct Raw<'a> {
    kind: u8,
    detail: u8,
    body: &'a [u8],
}

impl<'a> Raw<'a> {
    fn event(&self) -> Result<Event<'a>, DecodeError> {
        const STACK: u8 = Kind::Stack as u8;
        const ALLOCATION: u8 = Kind::Allocation as u8;
        const FREE: u8 = Kind::Free as u8;
        const REALLOC_BEGIN: u8 = Kind::ReallocBegin as u8;
        const REALLOC_END: u8 = Kind::ReallocEnd as u8;
        const MODULES_CHANGED: u8 = Kind::ModulesChanged as u8;
        const EXEC: u8 = Kind::Exec as u8;
        const TABLE_WANTED: u8 = Kind::TableWanted as u8;

        match self.kind {
            STACK => self.stack(),
            ALLOCATION => {
                let [pointer, size, stack] = self.words()?;
                Ok(Event::Allocation {
                    pointer,
                    size,
                    stack,
                })
            }
            FREE => self.words().map(|[pointer]| Event::Free { pointer }),
            REALLOC_BEGIN => self
                .words()
                .map(|[pointer]| Event::ReallocBegin { pointer }),
            REALLOC_END => {
                let outcome = self.outcome()?;
                let [old, new, size, stack] = self.words()?;
                Ok(Event::ReallocEnd {
                    outcome,
                    old,
                    new,
                    size,
                    stack,
                })
            }
            MODULES_CHANGED => self.words().map(|[stamp]| Event::ModulesChanged { stamp }),
            EXEC => self.words().map(|[stamp]| Event::Exec { stamp }),
            TABLE_WANTED => self.words().map(|[device, inode, address]| {
                let file = FileKey { device, inode };
                Event::TableWanted { file, address }
            }),
            kind => Err(DecodeError::UnknownKind { kind }),
        }
    }

    fn stack(&self) -> Result<Event<'a>, DecodeError> {
        let end = StackEnd::from_byte(self.detail).ok_or_else(|| self.unknown_detail())?;
        let (id, frames) = self
            .body
            .split_first_chunk()
            .ok_or_else(|| self.wrong_length())?;
        if !frames.len().is_multiple_of(size_of::<u64>())
            || frames.len() > size_of::<[u64; MAX_FRAMES]>()
        {
            return Err(self.wrong_length());
        }
        Ok(Event::Stack {
            id: u64::from_ne_bytes(*id),
            end,
            frames: Frames(frames),
        })
    }

    fn outcome(&self) -> Result<Outcome, DecodeError> {
        match self.detail {
            0 => Ok(Outcome::Moved),
            1 => Ok(Outcome::Failed),
            2 => Ok(Outcome::Freed),
            _ => Err(self.unknown_detail()),
        }
    }

    /// The body as exactly `N` words.
    fn words<const N: usize>(&self) -> Result<[u64; N], DecodeError> {
        if self.body.len() != N * size_of::<u64>() {
            return Err(self.wrong_length());
        }
        let mut words = [0; N];
        for (to, from) in words
            .iter_mut()
            .zip(self.body.chunks_exact(size_of::<u64>()))
        {
            *to = word(from);
        }
        Ok(words)
    }

    const fn wrong_length(&self) -> DecodeError {
        let length = size_of::<Header>() + self.body.len();
        DecodeError::WrongLength {
            kind: self.kind,
            length,
        }
    }

    const fn unknown_detail(&self) -> DecodeError {
        DecodeError::UnknownDetail {
            kind: self.kind,
            detail: self.detail,
        }
    }
}

/// A chunk of eight bytes as a number; shorter chunks do not occur.
fn word(chunk: &[u8]) -> u64 {
    chunk
        .first_chunk()
        .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn record(kind: Kind, detail: u8, body: &[u64]) -> Vec<u8> {
        let mut bytes = std::vec![kind as u8, detail];
        bytes.extend_from_slice(&7_u16.to_ne_bytes());
        bytes.extend_from_slice(&42_u32.to_ne_bytes());
        body.iter()
            .for_each(|word| bytes.extend_from_slice(&word.to_ne_bytes()));
        bytes
    }

    fn one_of_each() -> Vec<(Vec<u8>, &'static str)> {
        std::vec![
            (record(Kind::Stack, 0, &[9, 1, 2, 3]), "stack"),
            (record(Kind::Allocation, 0, &[0x10, 20, 9]), "allocation"),
            (record(Kind::Free, 0, &[0x10]), "free"),
            (record(Kind::ReallocBegin, 0, &[0x10]), "realloc begin"),
            (record(Kind::ReallocEnd, 2, &[0x10, 0, 0, 9]), "realloc end"),
            (record(Kind::ModulesChanged, 0, &[5]), "modules changed"),
            (record(Kind::Exec, 0, &[5]), "exec"),
            (record(Kind::TableWanted, 0, &[1, 2, 3]), "table wanted"),
        ]
    }

    #[test]
    fn header_and_bodies_are_read() {
        let bytes = record(Kind::Allocation, 0, &[0x10, 20, 9]);
        let record = Record::decode(&bytes).unwrap();
        assert_eq!((record.clock, record.tid), (7, 42));
        assert_eq!(
            record.event,
            Event::Allocation {
                pointer: 0x10,
                size: 20,
                stack: 9
            }
        );

        let bytes = one_of_each().remove(4).0;
        let Event::ReallocEnd { outcome, old, .. } = Record::decode(&bytes).unwrap().event else {
            panic!("not the end of a realloc");
        };
        assert_eq!((outcome, old), (Outcome::Freed, 0x10));
    }

    #[test]
    fn frames_come_leaf_first() {
        let bytes = record(Kind::Stack, 1, &[9, 1, 2, 3]);
        let Event::Stack { id, end, frames } = Record::decode(&bytes).unwrap().event else {
            panic!("not a stack");
        };
        assert_eq!((id, end, frames.len()), (9, StackEnd::Depth, 3));
        assert_eq!(frames.iter().collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn every_truncation_is_refused() {
        for (bytes, name) in one_of_each() {
            assert!(Record::decode(&bytes).is_ok(), "{name}");
            for cut in 0..bytes.len() {
                // A stack cut between frames is a shorter stack: the ring buffer keeps lengths.
                let shorter_stack = name == "stack" && cut >= StackRecord::HEAD && cut % 8 == 0;
                assert_eq!(
                    Record::decode(&bytes[..cut]).is_ok(),
                    shorter_stack,
                    "{name} {cut}"
                );
            }
        }
    }

    #[test]
    fn longer_records_are_refused() {
        for (mut bytes, name) in one_of_each() {
            bytes.push(0);
            assert!(Record::decode(&bytes).is_err(), "{name}");
        }
        let too_deep = std::vec![0; MAX_FRAMES + 2];
        assert!(Record::decode(&record(Kind::Stack, 0, &too_deep)).is_err());
    }

    #[test]
    fn unknown_tags_are_named() {
        let mut bytes = record(Kind::Free, 0, &[1]);
        bytes[0] = 99;
        assert_eq!(
            Record::decode(&bytes),
            Err(DecodeError::UnknownKind { kind: 99 })
        );
        let bytes = record(Kind::ReallocEnd, 3, &[0; 4]);
        let error = Record::decode(&bytes).unwrap_err();
        assert_eq!(
            std::format!("{error}"),
            "record of kind 5 has unknown detail 3"
        );
    }

    /// The layouts in the module's table, against what the compiler makes of the structures.
    #[test]
    fn structures_have_the_documented_layout() {
        assert_eq!(size_of::<Header>(), 8);
        assert_eq!(size_of::<PointerRecord>(), 16);
        assert_eq!(size_of::<AllocationRecord>(), 32);
        assert_eq!(size_of::<ReallocRecord>(), 40);
        assert_eq!(
            core::mem::offset_of!(StackRecord, frames),
            StackRecord::HEAD
        );
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_record_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..1200)) {
            if let Ok(Record { event: Event::Stack { frames, .. }, .. }) = Record::decode(&bytes) {
                prop_assert_eq!(frames.iter().len(), frames.len());
            }
        }
    }
}
