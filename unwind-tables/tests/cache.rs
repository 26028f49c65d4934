//! The stored form of a table: exact when intact, refused when not.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail")]

#[path = "common/synthetic.rs"]
#[expect(dead_code, reason = "this test needs a part of it")]
mod synthetic;

use htrace_unwind_tables::{CacheError, FORMAT_VERSION, TableError, UnwindTable, build};
use proptest::prelude::*;

use crate::synthetic::{Frames, Synthetic, op};

const HEADER_BYTES: usize = 56;
const SEGMENT_BYTES: usize = 24;

fn table() -> UnwindTable {
    let frames = Frames::eh()
        .fde(
            0,
            16,
            &[
                op::advance(1),
                op::def_cfa_offset(16),
                op::offset(op::RBP, 2),
            ],
        )
        .fde(16, 16, &[op::def_cfa(op::R10, 0)])
        .fde(600, 100, &[op::undefined(op::RA)]);
    build(&Synthetic::eh(&[0xc3; 800], frames.finish()).image()).unwrap()
}

fn read(bytes: &[u8]) -> Result<UnwindTable, CacheError> {
    UnwindTable::from_bytes(bytes, &[])
}

/// The stored table with some bytes replaced and the checksum made right again.
fn altered(at: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = table().to_bytes();
    bytes[at..at + value.len()].copy_from_slice(value);
    seal(&mut bytes);
    bytes
}

fn seal(bytes: &mut [u8]) {
    let (content, checksum) = bytes.split_last_chunk_mut::<4>().unwrap();
    *checksum = crc32fast::hash(content).to_le_bytes();
}

#[test]
fn an_intact_table_comes_back() {
    let table = table();
    assert_eq!(read(&table.to_bytes()), Ok(table.clone()));
    let path = std::env::current_exe().unwrap();
    let image = std::fs::read(path).unwrap();
    let own = build(&image).unwrap();
    assert_eq!(
        UnwindTable::from_bytes(&own.to_bytes(), own.build_id()),
        Ok(own.clone())
    );
    let filtered = own.filter_call_sites(&image).unwrap();
    assert_eq!(
        UnwindTable::from_bytes(&filtered.to_bytes(), own.build_id()),
        Ok(filtered)
    );
}

#[test]
fn other_content_is_refused() {
    let bytes = table().to_bytes();
    assert_eq!(read(b""), Err(CacheError::Magic));
    assert_eq!(read(&altered(0, b"X")), Err(CacheError::Magic));
    let other = FORMAT_VERSION + 1;
    let expected = CacheError::Version {
        found: other,
        expected: FORMAT_VERSION,
    };
    assert_eq!(read(&altered(8, &other.to_le_bytes())), Err(expected));
    assert_eq!(read(&altered(12, &[2])), Err(CacheError::Flags(2)));
    assert_eq!(
        UnwindTable::from_bytes(&bytes, b"other"),
        Err(CacheError::BuildId)
    );
    let truncated = read(&bytes[..40]);
    assert!(
        matches!(truncated, Err(CacheError::Length { found: 40, .. })),
        "{truncated:?}"
    );
}

#[test]
fn lying_counts_are_refused() {
    for (at, value) in [(16, &[1, 0, 0, 0][..]), (20, &[0xff; 4]), (24, &[0xff; 8])] {
        assert!(matches!(
            read(&altered(at, value)),
            Err(CacheError::Length { .. })
        ));
    }
}

#[test]
fn rows_are_checked_even_with_a_right_checksum() {
    let rows = HEADER_BYTES + SEGMENT_BYTES;
    let error = |at, value: &[u8]| match read(&altered(at, value)) {
        Err(CacheError::Table(error)) => error,
        other => panic!("{other:?}"),
    };
    let first_not_at_base = error(rows + 4, &[1]);
    assert_eq!(first_not_at_base, TableError::Ends);
    let descending = error(rows + 8 + 4, &0_u32.to_le_bytes());
    assert_eq!(
        descending,
        TableError::RowOrder {
            index: 1,
            rel_pc: 0
        }
    );
    let gap_with_operands = error(rows + 2 * 8, &[5, 1, 0, 0]);
    assert_eq!(
        gap_with_operands,
        TableError::Rule {
            index: 2,
            bits: 0x105
        }
    );
    let endless_segment = error(HEADER_BYTES + 8, &u64::MAX.to_le_bytes());
    assert_eq!(endless_segment, TableError::Segment { index: 0 });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_flipped_bit_is_noticed(position in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let mut bytes = table().to_bytes();
        bytes[position.index(table().to_bytes().len())] ^= 1_u8 << bit;
        prop_assert!(read(&bytes).is_err());
    }

    #[test]
    fn sealed_noise_never_panics_and_never_breaks_a_lookup(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = table().to_bytes();
        for (position, value) in changes {
            let at = position.index(bytes.len());
            bytes[at] = value;
        }
        seal(&mut bytes);
        if let Ok(table) = read(&bytes) {
            for segment in table.segments() {
                for address in segment.address..(segment.address + segment.size).min(segment.address + 4096) {
                    prop_assert!(table.lookup(address).is_some());
                }
            }
        }
    }
}
