//! Tables of small images made by hand: each rule, each kind of gap, each place of unwind data.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail")]

#[path = "common/synthetic.rs"]
mod synthetic;

use htrace_unwind_tables::{Rule, UnwindTable, build};

use crate::synthetic::{CODE, Frames, Synthetic, op};

const RET: u8 = 0xc3;
const NOP: u8 = 0x90;

/// The rules of a table as (distance from the first code byte, rule).
fn rules(table: &UnwindTable) -> Vec<(u64, Rule)> {
    let distance = |rel_pc: u32| table.base() + u64::from(rel_pc) - CODE;
    table
        .rows()
        .iter()
        .map(|row| (distance(row.rel_pc()), row.rule()))
        .collect()
}

fn table_of(code: &[u8], frames: Frames) -> UnwindTable {
    build(&Synthetic::eh(code, frames.finish()).image()).unwrap()
}

/// The rule at the start of a function with these instructions after the usual CIE.
fn rule_for(instructions: &[Vec<u8>]) -> Rule {
    let table = table_of(&[RET; 32], Frames::eh().fde(0, 32, instructions));
    assert_eq!(table.statistics().rejected_fdes, 0, "evaluates");
    table.lookup(CODE).unwrap()
}

fn rsp(offset: u64) -> Rule {
    Rule::rsp(offset, 0).unwrap()
}

#[test]
fn a_function_with_prologue_and_epilogue() {
    let frames = Frames::eh().fde(
        0,
        32,
        &[
            op::advance(1),
            op::def_cfa_offset(16),
            op::offset(op::RBP, 2),
            op::advance(3),
            vec![0x0d, op::RBP],
            op::advance(10),
            op::def_cfa(op::RSP, 8),
        ],
    );
    let expected = [
        (0, rsp(8)),
        (1, Rule::rsp(16, 1).unwrap()),
        (4, Rule::rbp(16, 1).unwrap()),
        (14, Rule::rsp(8, 1).unwrap()),
        (32, Rule::GAP),
    ];
    assert_eq!(rules(&table_of(&[RET; 32], frames)), expected);
}

#[test]
fn covered_code_is_what_frames_describe() {
    let two = Frames::eh()
        .fde(0, 8, &[])
        .fde(24, 4, &[op::undefined(op::RA)]);
    assert_eq!(table_of(&[RET; 32], two).covered_bytes(), 12);
    assert_eq!(table_of(&[RET; 32], Frames::eh()).covered_bytes(), 0);
}

#[test]
fn what_a_rule_can_express() {
    assert_eq!(rule_for(&[]), rsp(8));
    assert_eq!(rule_for(&[op::def_cfa_offset(540_128)]), rsp(540_128));
    assert_eq!(
        rule_for(&[op::offset(op::RBP, 16)]),
        Rule::rsp(8, 15).unwrap()
    );
    assert_eq!(rule_for(&[op::same_value(op::RBP)]), rsp(8));
    assert_eq!(rule_for(&[op::undefined(op::RA)]), Rule::END_OF_STACK);
    let plt = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
    assert_eq!(
        rule_for(&[op::cfa_expression(&plt)]),
        Rule::plt(11).unwrap()
    );
    let realigned = [
        op::cfa_expression(&[0x76, 0x78, 6]),
        op::expression(op::RBP, &[0x76, 0]),
    ];
    assert_eq!(rule_for(&realigned), Rule::drap(8).unwrap());
}

#[test]
fn what_no_rule_can_express_is_unsupported() {
    let inexpressible: [&[Vec<u8>]; 16] = [
        &[op::def_cfa_offset(12)],
        &[op::def_cfa_offset(1 << 28)],
        &[op::def_cfa_offset(u64::MAX)],
        &[op::def_cfa_sf(op::RSP, 1)],
        &[op::def_cfa(op::R10, 0)],
        &[op::offset(op::RBP, 1)],
        &[op::offset(op::RBP, 17)],
        &[op::undefined(op::RBP)],
        &[op::in_register(op::RBP, op::R10)],
        &[op::in_register(op::RA, 5)],
        &[op::offset(op::RA, 2)],
        &[op::offset(op::RSP, 3)],
        &[op::same_value(op::RSP)],
        &[op::cfa_expression(&[0x77, 8, 6])],
        // Realigned, but rbp is not where it must be, or the distance is positive.
        &[op::cfa_expression(&[0x76, 0x78, 6])],
        &[
            op::cfa_expression(&[0x76, 8, 6]),
            op::expression(op::RBP, &[0x76, 0]),
        ],
    ];
    for instructions in inexpressible {
        assert_eq!(
            rule_for(instructions),
            Rule::UNSUPPORTED,
            "{instructions:02x?}"
        );
    }
}

#[test]
fn a_missing_return_address_rule_is_not_the_end_of_the_stack() {
    let frames = Frames::with_cie(false, false, &op::def_cfa(op::RSP, 8)).fde(0, 32, &[]);
    assert_eq!(
        table_of(&[RET; 32], frames).lookup(CODE),
        Some(Rule::UNSUPPORTED)
    );
}

fn signal_rules(rip: u8) -> Vec<Vec<u8>> {
    vec![
        op::cfa_expression(&[0x77, 0xa0, 1, 6]),
        op::expression(op::RBP, &[0x77, 0xf8, 0]),
        op::expression(op::RSP, &[0x77, 0xa0, 1]),
        op::expression(op::RA, &[0x77, rip, 1]),
    ]
}

#[test]
fn a_signal_frame_is_recognised_by_mark_and_layout() {
    let rule = |frames: Frames| table_of(&[RET; 32], frames).lookup(CODE).unwrap();
    assert_eq!(
        rule(Frames::signal().fde(0, 9, &signal_rules(0xa8))),
        Rule::SIGNAL_FRAME
    );
    let elsewhere = Frames::signal().fde(0, 9, &signal_rules(0xb0));
    assert_eq!(rule(elsewhere), Rule::UNSUPPORTED);
    assert_eq!(
        rule(Frames::eh().fde(0, 9, &signal_rules(0xa8))),
        Rule::UNSUPPORTED
    );
    let ordinary = [op::def_cfa(op::RSP, 8), op::offset(op::RA, 1)];
    assert_eq!(
        rule(Frames::signal().fde(0, 9, &ordinary)),
        Rule::UNSUPPORTED
    );
}

#[test]
fn padding_belongs_to_the_function_before_it() {
    let mut code = [RET; 48];
    code[20..32].fill(NOP);
    let frames = || {
        Frames::eh()
            .fde(0, 20, &[])
            .fde(32, 16, &[op::def_cfa_offset(16)])
    };
    let expected = [(0, rsp(8)), (32, rsp(16)), (48, Rule::GAP)];
    assert_eq!(rules(&table_of(&code, frames())), expected);
    code[31] = RET;
    let expected = [(0, rsp(8)), (20, Rule::GAP), (32, rsp(16)), (48, Rule::GAP)];
    assert_eq!(rules(&table_of(&code, frames())), expected);
}

#[test]
fn wide_gaps_and_both_ends_are_gaps() {
    let mut code = [NOP; 80];
    code[..8].fill(RET);
    let frames = Frames::eh().fde(8, 8, &[]).fde(32, 16, &[]);
    let expected = [
        (0, Rule::GAP),
        (8, rsp(8)),
        (16, Rule::GAP),
        (32, rsp(8)),
        (48, Rule::GAP),
    ];
    let table = table_of(&code, frames);
    assert_eq!(rules(&table), expected);
    assert_eq!(table.statistics().gap_rows, 3);
    assert_eq!(table.lookup(CODE + 79), Some(Rule::GAP));
    assert_eq!(table.lookup(CODE + 80), None);
    assert_eq!(table.lookup(CODE - 1), None);
}

#[test]
fn a_broken_fde_is_unsupported_and_its_neighbours_are_not() {
    let unknown_instruction = vec![0x3b];
    let frames = Frames::eh()
        .fde(0, 16, &[])
        .fde(
            16,
            16,
            &[op::advance(4), op::def_cfa_offset(16), unknown_instruction],
        )
        .fde(32, 16, &[]);
    let table = table_of(&[RET; 48], frames);
    let expected = [
        (0, rsp(8)),
        (16, Rule::UNSUPPORTED),
        (32, rsp(8)),
        (48, Rule::GAP),
    ];
    assert_eq!(rules(&table), expected);
    assert_eq!(table.statistics().rejected_fdes, 1);
    assert_eq!(table.statistics().unsupported_rows, 1);
}

#[test]
fn overlapping_fdes_are_unsupported() {
    let frames = Frames::eh()
        .fde(0, 24, &[])
        .fde(16, 16, &[])
        .fde(32, 16, &[]);
    let expected = [(0, Rule::UNSUPPORTED), (32, rsp(8)), (48, Rule::GAP)];
    assert_eq!(rules(&table_of(&[RET; 48], frames)), expected);
}

#[test]
fn fdes_outside_of_code_are_counted() {
    let frames = Frames::eh()
        .fde(0, 48, &[])
        .fde(0x1000, 16, &[])
        .fde(8, 0, &[]);
    let table = table_of(&[RET; 48], frames);
    assert_eq!(
        (table.statistics().fdes, table.statistics().skipped_fdes),
        (1, 2)
    );
}

#[test]
fn a_terminator_in_the_middle_hides_nothing() {
    let frames = Frames::eh()
        .fde(0, 16, &[])
        .raw(&[0; 4])
        .fde(16, 32, &[op::def_cfa_offset(16)]);
    assert_eq!(
        table_of(&[RET; 48], frames).lookup(CODE + 20),
        Some(rsp(16))
    );
}

#[test]
fn an_image_without_sections_goes_by_its_program_header() {
    // What follows the terminator is no call frame information.
    let frames = Frames::eh().fde(0, 48, &[]).raw(&[0; 4]).raw(&[0xaa; 32]);
    let mut image = Synthetic::eh(&[RET; 48], frames.finish());
    image.without_sections = true;
    assert_eq!(build(&image.image()).unwrap().lookup(CODE), Some(rsp(8)));
}

#[test]
fn debug_frame_is_used_where_eh_frame_is_silent() {
    let eh = Frames::eh().fde(0, 16, &[]).finish();
    let debug = Frames::debug()
        .fde(0, 16, &[op::def_cfa_offset(80)])
        .fde(16, 16, &[op::def_cfa_offset(16)])
        .finish();
    let mut image = Synthetic {
        debug_frame: Some(debug),
        ..Synthetic::default()
    };
    image.code = vec![RET; 32];
    let alone = build(&image.image()).unwrap();
    assert_eq!(
        rules(&alone),
        [(0, rsp(80)), (16, rsp(16)), (32, Rule::GAP)]
    );
    image.eh_frame = Some(eh);
    let both = build(&image.image()).unwrap();
    assert_eq!(rules(&both), [(0, rsp(8)), (16, rsp(16)), (32, Rule::GAP)]);
}

#[test]
fn no_unwind_data_is_one_gap() {
    let image = Synthetic {
        code: vec![RET; 32],
        ..Synthetic::default()
    };
    let table = build(&image.image()).unwrap();
    assert_eq!(rules(&table), [(0, Rule::GAP)]);
    assert_eq!(table.statistics().fdes, 0);
}

#[test]
fn blocks_bound_the_search() {
    let mut frames = Frames::eh();
    for function in 0..64 {
        frames = frames.fde(
            function * 16,
            16,
            &[op::def_cfa_offset(8 * (function % 7 + 1))],
        );
    }
    let table = table_of(&[RET; 1024], frames);
    assert_eq!(table.blocks(), [0, 16, 32, 48, 64]);
    for distance in 0..1024 {
        let expected = rsp(8 * (distance / 16 % 7 + 1));
        assert_eq!(table.lookup(CODE + distance), Some(expected));
    }
}

#[test]
fn entry_code_without_unwind_data_ends_the_stack() {
    let table = |entry: u64, code_bytes: usize| {
        let frames = Frames::eh()
            .fde(0, 16, &[])
            .fde(code_bytes as u64 - 16, 16, &[]);
        let synthetic = Synthetic {
            entry: CODE + entry,
            ..Synthetic::eh(&vec![RET; code_bytes], frames.finish())
        };
        rules(&build(&synthetic.image()).unwrap())
    };
    let last = [(64, rsp(8)), (80, Rule::GAP)];
    let inside = [(0, rsp(8)), (16, Rule::GAP), (32, Rule::END_OF_STACK)];
    assert_eq!(table(32, 80), [&inside[..], &last].concat());
    let at_the_start = [(0, rsp(8)), (16, Rule::END_OF_STACK)];
    assert_eq!(table(16, 80), [&at_the_start[..], &last].concat());
    let in_a_function = [(0, rsp(8)), (16, Rule::GAP)];
    assert_eq!(table(0, 80), [&in_a_function[..], &last].concat());
    // So much code has more than an entry in it.
    assert_eq!(table(16, 400)[1], (16, Rule::GAP));
    assert_eq!(table(16, 400).len(), 4);
}
