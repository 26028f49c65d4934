//! Reads records from the bytes of the ring buffer. It trusts nothing: every length and tag is
//! checked, and what is not exactly one well-formed record is an error.

use super::{Header, Kind, Outcome, StackEnd};
use crate::{control::MAX_FRAMES, tables::FileKey};

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
mod tests;
