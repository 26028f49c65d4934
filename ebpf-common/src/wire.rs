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

mod decode;
mod stack_end;

use crate::{control::MAX_FRAMES, tables::FileKey};

pub use self::{
    decode::{DecodeError, Event, Frames, Record},
    stack_end::StackEnd,
};

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
