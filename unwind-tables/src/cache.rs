//! A table as bytes, for a cache on disk.
//!
//! Stored bytes are not trusted: they are checked for kind, version, length, checksum and build
//! id, and then the table's own invariants are checked as for a new table. The block index is not
//! stored but computed, so it cannot disagree with the rows.
//!
//! All numbers are little-endian.
//!
//! | offset | size    | content                                                             |
//! |--------|---------|---------------------------------------------------------------------|
//! | 0      | 8       | magic, `HTUNWIND`                                                   |
//! | 8      | 4       | [`FORMAT_VERSION`]                                                  |
//! | 12     | 4       | flags: bit 0 = [`Coverage::CallSites`]                              |
//! | 16     | 4       | i, length of the build id in bytes                                  |
//! | 20     | 4       | s, number of segments                                               |
//! | 24     | 8       | r, number of rows                                                   |
//! | 32     | 24      | FDEs, rejected FDEs, skipped FDEs, 8 bytes each                     |
//! | 56     | 24·s    | segments: file offset, size, address, 8 bytes each                  |
//! | …      | 8·r     | rows                                                                |
//! | …      | i       | build id                                                            |
//! | …      | 4       | CRC-32 (ISO HDLC) of everything before                              |

use crate::encoding::Row;
use crate::error::CacheError;
use crate::table::{Coverage, Parts, Segment, Statistics, UnwindTable};

/// Changes with the layout above, with the meaning of a row, and whenever the builder makes other
/// rows of the same image, so that tables of older versions are built anew.
pub const FORMAT_VERSION: u32 = 2;

const MAGIC: [u8; 8] = *b"HTUNWIND";
const HEADER_BYTES: usize = 56;
const SEGMENT_BYTES: usize = 24;
const ROW_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;
const CALL_SITES: u32 = 1;

impl UnwindTable {
    /// The table in the layout drawn at the top of this module's source.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(
            HEADER_BYTES
                + SEGMENT_BYTES * self.segments().len()
                + ROW_BYTES * self.rows().len()
                + self.build_id().len()
                + CHECKSUM_BYTES,
        );
        self.write_header(&mut bytes);
        for segment in self.segments() {
            for number in [segment.file_offset, segment.size, segment.address] {
                bytes.extend(number.to_le_bytes());
            }
        }
        for row in self.rows() {
            bytes.extend(row.bits().to_le_bytes());
        }
        bytes.extend(self.build_id());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    fn write_header(&self, bytes: &mut Vec<u8>) {
        let flags = match self.coverage() {
            Coverage::Everywhere => 0,
            Coverage::CallSites => CALL_SITES,
        };
        bytes.extend(MAGIC);
        for number in [
            FORMAT_VERSION,
            flags,
            self.build_id().len() as u32,
            self.segments().len() as u32,
        ] {
            bytes.extend(number.to_le_bytes());
        }
        let statistics = self.statistics();
        for number in [
            self.rows().len() as u64,
            statistics.fdes,
            statistics.rejected_fdes,
            statistics.skipped_fdes,
        ] {
            bytes.extend(number.to_le_bytes());
        }
    }

    /// Reads what [`UnwindTable::to_bytes`] wrote for the image with this build id.
    ///
    /// # Errors
    ///
    /// When the bytes are anything but an intact, valid table of this version for that image. The
    /// caller then builds the table anew.
    pub fn from_bytes(bytes: &[u8], build_id: &[u8]) -> Result<Self, CacheError> {
        let content = check_envelope(bytes)?;
        let header = Header::read(content)?;
        let mut rest = Numbers(&content[HEADER_BYTES..]);
        let segments = (0..header.segments).map(|_| rest.segment()).collect();
        let rows = (0..header.rows)
            .map(|_| Row::from_bits(rest.u64()))
            .collect();
        if rest.0 != build_id {
            return Err(CacheError::BuildId);
        }
        let parts = Parts {
            segments,
            rows,
            build_id: build_id.to_vec(),
            coverage: header.coverage,
            statistics: header.statistics,
        };
        Ok(Self::from_parts(parts)?)
    }
}

/// Checks what holds for stored tables of every image, and returns everything but the checksum.
fn check_envelope(bytes: &[u8]) -> Result<&[u8], CacheError> {
    if !bytes.starts_with(&MAGIC) {
        return Err(CacheError::Magic);
    }
    let too_short = CacheError::Length {
        found: bytes.len() as u64,
        expected: (HEADER_BYTES + CHECKSUM_BYTES) as u64,
    };
    let Some((content, checksum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(too_short);
    };
    if content.len() < HEADER_BYTES {
        return Err(too_short);
    }
    let version = Numbers(&content[MAGIC.len()..]).u32();
    if version != FORMAT_VERSION {
        return Err(CacheError::Version {
            found: version,
            expected: FORMAT_VERSION,
        });
    }
    let (found, expected) = (crc32fast::hash(content), u32::from_le_bytes(*checksum));
    if found != expected {
        return Err(CacheError::Checksum { found, expected });
    }
    Ok(content)
}

struct Header {
    coverage: Coverage,
    segments: u32,
    rows: u64,
    statistics: Statistics,
}

impl Header {
    /// Reads the header and checks that `content` is as long as it says.
    fn read(content: &[u8]) -> Result<Self, CacheError> {
        let mut numbers = Numbers(&content[MAGIC.len() + 4..HEADER_BYTES]);
        let coverage = match numbers.u32() {
            0 => Coverage::Everywhere,
            CALL_SITES => Coverage::CallSites,
            flags => return Err(CacheError::Flags(flags)),
        };
        let build_id_bytes = numbers.u32();
        let (segments, rows) = (numbers.u32(), numbers.u64());
        let statistics = Statistics {
            fdes: numbers.u64(),
            rejected_fdes: numbers.u64(),
            skipped_fdes: numbers.u64(),
            ..Statistics::default()
        };
        let expected = (HEADER_BYTES as u64)
            .saturating_add(SEGMENT_BYTES as u64 * u64::from(segments))
            .saturating_add((ROW_BYTES as u64).saturating_mul(rows))
            .saturating_add(build_id_bytes.into());
        let found = content.len() as u64;
        if found != expected {
            return Err(CacheError::Length { found, expected });
        }
        Ok(Self {
            coverage,
            segments,
            rows,
            statistics,
        })
    }
}

/// Reads numbers from the front; zeros after the end, which callers rule out beforehand.
struct Numbers<'bytes>(&'bytes [u8]);

impl Numbers<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((number, rest)) = self.0.split_first_chunk() else {
            return [0; N];
        };
        self.0 = rest;
        *number
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn segment(&mut self) -> Segment {
        Segment {
            file_offset: self.u64(),
            size: self.u64(),
            address: self.u64(),
        }
    }
}
