extern crate std;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::wire::*;

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
