//! Images that lie, contradict themselves, or are damaged: a clear error or a table that marks
//! the damage, never a panic, never unbounded memory.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail")]

#[path = "common/synthetic.rs"]
#[expect(dead_code, reason = "this test needs a part of it")]
mod synthetic;

use htrace_unwind_tables::encoding::BLOCK_BYTES;
use htrace_unwind_tables::{BuildError, Limits, MAX_SPAN, Rule, UnwindTable, build, build_within};
use proptest::prelude::*;

use crate::synthetic::{CODE, Frames, Synthetic, op, program_header};

const RET: u8 = 0xc3;
const FIRST_PROGRAM_HEADER: usize = 64;

fn error_of(image: &[u8]) -> BuildError {
    build(image).unwrap_err()
}

fn ordinary_image() -> Vec<u8> {
    Synthetic::eh(&[RET; 32], Frames::eh().fde(0, 32, &[]).finish()).image()
}

/// The ordinary image with another program header in place of its first one.
fn image_with_code_segment(offset: u64, size: u64) -> Vec<u8> {
    let mut image = ordinary_image();
    let header = program_header(1, 5, offset, size);
    image[FIRST_PROGRAM_HEADER..FIRST_PROGRAM_HEADER + header.len()].copy_from_slice(&header);
    image
}

#[test]
fn other_files_are_refused() {
    assert!(matches!(error_of(b""), BuildError::NotX86_64 { .. }));
    assert!(matches!(
        error_of(b"#!/bin/sh\n"),
        BuildError::NotX86_64 { .. }
    ));
    let mut aarch64 = ordinary_image();
    aarch64[18] = 183;
    assert!(matches!(error_of(&aarch64), BuildError::NotX86_64 { .. }));
}

#[test]
fn a_lying_entry_length_names_the_place() {
    let frames = Frames::eh()
        .fde(0, 32, &[])
        .raw(&0x1000_u32.to_le_bytes())
        .raw(&[0xff; 4]);
    let offset = Frames::eh().fde(0, 32, &[]).finish().len() as u64;
    let error = error_of(&Synthetic::eh(&[RET; 32], frames.finish()).image());
    assert_eq!(
        error.to_string(),
        format!(".eh_frame at offset {offset:#x}: an entry of 4096 bytes in 4 bytes")
    );
    let wide = Frames::eh().raw(&[0xff; 12]).raw(&[0; 8]);
    let error = error_of(&Synthetic::eh(&[RET; 32], wide.finish()).image());
    assert!(
        matches!(
            error,
            BuildError::EntryLength {
                length: u64::MAX,
                left: 8,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn lying_segments_are_refused() {
    let image = image_with_code_segment(0x1000, u64::MAX - 0x2000);
    assert!(matches!(error_of(&image), BuildError::BadSegment { .. }));
    let image = image_with_code_segment(0x1000, 0);
    assert!(matches!(error_of(&image), BuildError::NoCode));
    // The second program header becomes executable too; both begin at the same address.
    let mut image = ordinary_image();
    image[FIRST_PROGRAM_HEADER + 56 + 4] = 5;
    assert!(matches!(error_of(&image), BuildError::BadSegment { .. }));
}

#[test]
fn code_that_is_spread_too_far_is_refused() {
    let mut image = ordinary_image();
    image[FIRST_PROGRAM_HEADER + 56 + 4] = 5;
    let address = FIRST_PROGRAM_HEADER + 56 + 16;
    image[address..address + 8].copy_from_slice(&(CODE + (1 << 31)).to_le_bytes());
    assert!(matches!(
        error_of(&image),
        BuildError::SpanTooLarge { start: CODE, .. }
    ));
}

#[test]
fn rows_and_fdes_are_limited_with_the_place() {
    let mut frames = Frames::eh();
    for function in 0..8 {
        frames = frames.fde(function * 4, 4, &[op::def_cfa_offset(8 * (function + 1))]);
    }
    let image = Synthetic::eh(&[RET; 32], frames.finish()).image();
    let limits = Limits {
        rows: 5,
        ..Limits::default()
    };
    let error = build_within(&image, &limits).unwrap_err();
    assert_eq!(
        error.to_string(),
        "more than 5 rows at code address 0x401014"
    );
    let limits = Limits {
        fdes: 5,
        ..Limits::default()
    };
    let error = build_within(&image, &limits).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with(": more than 5 frame descriptions"),
        "{error}"
    );
    let limits = Limits {
        section_bytes: 64,
        ..Limits::default()
    };
    let error = build_within(&image, &limits).unwrap_err();
    assert!(
        matches!(error, BuildError::SectionTooLarge { limit: 64, .. }),
        "{error}"
    );
}

#[test]
fn the_rows_of_one_fde_are_limited() {
    let step = |n: u64| [op::advance(1), op::def_cfa_offset(8 * (n % 2 + 2))].concat();
    let steps: Vec<_> = (0..30).map(step).collect();
    let image = Synthetic::eh(&[RET; 32], Frames::eh().fde(0, 32, &steps).finish()).image();
    let limits = Limits {
        rows: 20,
        ..Limits::default()
    };
    let error = build_within(&image, &limits).unwrap_err();
    assert_eq!(
        error.to_string(),
        "more than 20 rows at code address 0x401014"
    );
    assert_eq!(build(&image).unwrap().rows().len(), 32);
}

#[test]
fn a_giant_cie_is_not_run_for_each_fde() {
    let mut instructions = [op::def_cfa(op::RSP, 8), op::offset(op::RA, 1)].concat();
    instructions.resize(2000, 0);
    let frames = Frames::with_cie(false, false, &instructions).fde(0, 32, &[]);
    let table = build(&Synthetic::eh(&[RET; 32], frames.finish()).image()).unwrap();
    assert_eq!(table.lookup(CODE), Some(Rule::GAP));
    assert_eq!(table.statistics().skipped_fdes, 1);
}

#[test]
fn a_compressed_section_that_claims_to_be_huge_is_refused() {
    let mut content = [1_u32.to_le_bytes(), [0; 4]].concat();
    content.extend((1_u64 << 40).to_le_bytes());
    content.extend(8_u64.to_le_bytes());
    content.extend([0x78, 0x9c, 3, 0, 0, 0, 0, 1]);
    let image = Synthetic {
        code: vec![RET; 32],
        debug_frame: Some(content),
        ..Synthetic::default()
    };
    let mut image = image.image();
    // Mark the section as compressed: flags of section 1 in the table, which is last.
    let table = image.len() - 3 * 64;
    image[table + 64 + 8..table + 64 + 16].copy_from_slice(&0x800_u64.to_le_bytes());
    let error = error_of(&image);
    assert!(
        matches!(error, BuildError::SectionTooLarge { size, .. } if size == 1 << 40),
        "{error}"
    );
}

#[test]
fn a_function_at_the_end_of_the_address_space_does_not_wrap() {
    let frames = Frames::eh()
        .fde(0, u64::MAX, &[])
        .fde(8, 8, &[op::advance(60)]);
    let table = build(&Synthetic::eh(&[RET; 32], frames.finish()).image()).unwrap();
    assert_eq!(table.statistics().skipped_fdes, 1);
    assert_eq!(
        table.lookup(CODE + 15),
        Rule::rsp(8, 0),
        "a row beyond the end covers nothing"
    );
    assert_eq!(table.lookup(CODE + 16), Some(Rule::GAP));
}

/// A small real program: this very test's dynamic linker or shell.
fn real_image() -> Vec<u8> {
    let candidates = ["/lib64/ld-linux-x86-64.so.2", "/bin/sh"];
    candidates
        .iter()
        .find_map(|path| std::fs::read(path).ok())
        .unwrap()
}

/// Everything that a caller may do with a table, over all of its code.
fn use_table(table: &UnwindTable, image: &[u8]) {
    for segment in table.segments() {
        for address in (segment.address..=segment.address + segment.size).step_by(61) {
            let inside = segment.contains(address);
            assert_eq!(table.lookup(address).is_some(), inside);
        }
    }
    // At most one row a byte of unwind data, and an index over at most MAX_SPAN bytes.
    assert!(table.size_in_bytes() <= 8 * image.len() + 4 * (MAX_SPAN / BLOCK_BYTES) as usize);
    let filtered = table.filter_call_sites(image).unwrap();
    assert!(filtered.rows().len() <= table.rows().len() + 1);
    assert_eq!(
        &UnwindTable::from_bytes(&table.to_bytes(), table.build_id()).unwrap(),
        table
    );
}

/// Where damage does most: headers, unwind sections, section headers, anywhere.
fn places(image: &[u8]) -> Vec<std::ops::Range<usize>> {
    use object::{Object, ObjectSection};
    let file = object::File::parse(image).unwrap();
    let section = |name: &str| {
        let (start, size) = file.section_by_name(name).unwrap().file_range().unwrap();
        start as usize..(start + size) as usize
    };
    let end = image.len();
    vec![
        0..1024,
        section(".eh_frame"),
        section(".eh_frame_hdr"),
        end - 2048..end,
        0..end,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_images_never_panic(
        damage in proptest::collection::vec((0_usize..5, any::<u32>(), any::<u8>()), 1..20),
        cut in proptest::option::weighted(0.2, any::<u32>()),
    ) {
        let mut image = real_image();
        let places = places(&image);
        for (place, at, value) in damage {
            let range = places[place].clone();
            image[range.start + at as usize % range.len()] = value;
        }
        if let Some(cut) = cut {
            image.truncate(cut as usize % image.len());
        }
        if let Ok(table) = build(&image) {
            use_table(&table, &image);
        }
    }

    #[test]
    fn noise_as_unwind_data_never_panics(
        noise in proptest::collection::vec(any::<u8>(), 0..400),
        debug in any::<bool>(),
        without_sections in any::<bool>(),
    ) {
        let frames = if debug { Frames::debug() } else { Frames::eh() };
        let content = frames.fde(0, 8, &[]).fde(8, 24, std::slice::from_ref(&noise)).raw(&noise).finish();
        let mut image = Synthetic { code: vec![RET; 64], without_sections, ..Synthetic::default() };
        if debug && !without_sections {
            image.debug_frame = Some(content);
        } else {
            image.eh_frame = Some(content);
        }
        let image = image.image();
        if let Ok(table) = build(&image) {
            use_table(&table, &image);
        }
    }
}
