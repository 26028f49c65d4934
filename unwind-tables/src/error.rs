//! What can be wrong with the bytes a caller hands in.

use thiserror::Error;

/// Why no table could be built from an ELF image.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The bytes are no 64-bit little-endian ELF image for x86-64.
    #[error("not an ELF image for x86-64: {reason}")]
    NotX86_64 {
        /// What was found instead.
        reason: String,
    },
    /// A header or a section cannot be read.
    #[error("malformed ELF image: {part}: {source}")]
    Malformed {
        /// The part that was being read.
        part: &'static str,
        /// What the ELF reader says.
        source: object::Error,
    },
    /// The image has no executable segment with content.
    #[error("no executable segment")]
    NoCode,
    /// The image has more executable segments than a table holds.
    #[error("{count} executable segments, at most {limit} are supported")]
    TooManySegments {
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Executable segments overlap in memory or reach past the end of the address space.
    #[error("executable segment at {address:#x} of {size:#x} bytes overlaps another or wraps")]
    BadSegment {
        /// The segment's address.
        address: u64,
        /// Its size in bytes.
        size: u64,
    },
    /// The executable segments lie too far apart for 32-bit relative addresses.
    #[error("code spans {span:#x} bytes from {start:#x} on, at most {limit:#x} are supported")]
    SpanTooLarge {
        /// The lowest executable address.
        start: u64,
        /// Bytes from there to the end of the last executable segment.
        span: u64,
        /// The largest span.
        limit: u64,
    },
    /// A section claims to be larger than anything real.
    #[error("{section} has {size} bytes when unpacked, at most {limit} are supported")]
    SectionTooLarge {
        /// Name of the section.
        section: &'static str,
        /// Its claimed size.
        size: u64,
        /// The largest supported size.
        limit: u64,
    },
    /// An entry of a section says that it is longer than what is left of the section.
    #[error("{section} at offset {offset:#x}: an entry of {length} bytes in {left} bytes")]
    EntryLength {
        /// Name of the section.
        section: &'static str,
        /// Offset of the entry in the section.
        offset: u64,
        /// Length that the entry claims (without the length field itself).
        length: u64,
        /// Bytes that follow the length field.
        left: u64,
    },
    /// The section has more frame descriptions than are supported.
    #[error("{section} at offset {offset:#x}: more than {limit} frame descriptions")]
    TooManyFdes {
        /// Name of the section.
        section: &'static str,
        /// Offset of the first one too many.
        offset: u64,
        /// The largest number.
        limit: usize,
    },
    /// The table would have more rows than are supported.
    #[error("more than {limit} rows at code address {address:#x}")]
    TooManyRows {
        /// Code address of the first row too many.
        address: u64,
        /// The largest number.
        limit: usize,
    },
    /// What was put together is no valid table; a fault of the builder, not of its input.
    #[error("the builder made an invalid table: {0}")]
    Invalid(#[from] TableError),
}

/// Why parts do not make up a valid table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// There is no segment, or segments are out of order, overlap, or wrap.
    #[error("segment {index} is missing, out of order, overlapping or too large")]
    Segment {
        /// Index of the segment at fault.
        index: usize,
    },
    /// A row does not begin after the one before it, or not inside the table's span.
    #[error("row {index} at {rel_pc:#x} is out of order or out of range")]
    RowOrder {
        /// Index of the row.
        index: usize,
        /// Where it begins, relative to the table's base.
        rel_pc: u32,
    },
    /// A row's rule has operands that mean nothing.
    #[error("row {index} has the impossible rule {bits:#010x}")]
    Rule {
        /// Index of the row.
        index: usize,
        /// The rule's bits.
        bits: u32,
    },
    /// The first row is not at the base or the last row is no gap.
    #[error("the rows do not begin at the base and end in a gap")]
    Ends,
}

/// Why stored bytes are not the table that the caller wants.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum CacheError {
    /// Other bytes than a stored table.
    #[error("not a stored unwind table")]
    Magic,
    /// Written by another version of this crate.
    #[error("stored with format version {found}, this is version {expected}")]
    Version {
        /// The stored version.
        found: u32,
        /// The version that this crate reads and writes.
        expected: u32,
    },
    /// Fewer or more bytes than the header promises.
    #[error("{found} bytes where {expected} were promised")]
    Length {
        /// Bytes that are there.
        found: u64,
        /// Bytes that should be there.
        expected: u64,
    },
    /// The content was altered or damaged.
    #[error("checksum {found:#010x}, expected {expected:#010x}")]
    Checksum {
        /// Checksum of the content.
        found: u32,
        /// Stored checksum.
        expected: u32,
    },
    /// The table of another file.
    #[error("the table of another build id")]
    BuildId,
    /// A flag that this version does not know.
    #[error("unknown flags {0:#x}")]
    Flags(u32),
    /// Intact, but not a valid table.
    #[error("invalid table: {0}")]
    Table(#[from] TableError),
}
