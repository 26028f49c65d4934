//! The call-site filter on real files: no address after a call that iced-x86 decodes may get
//! another rule.

#![expect(
    clippy::print_stdout,
    reason = "a test prints what it compared and skipped"
)]

mod common;
#[expect(dead_code, reason = "this test needs a part of it")]
#[path = "common/synthetic.rs"]
mod synthetic;

use htrace_unwind_tables::{Coverage, Rule, RuleKind, Segment, UnwindTable, build};
use iced_x86::{Decoder, DecoderOptions};

use crate::synthetic::{CODE, Frames, Synthetic, op};

#[test]
fn no_call_site_loses_its_rule() {
    for (name, path) in common::real_files() {
        let data = std::fs::read(&path).unwrap();
        let table = build(&data).unwrap();
        let filtered = table.filter_call_sites(&data).unwrap();
        assert_eq!(filtered.coverage(), Coverage::CallSites);
        let mut calls = 0;
        for_each_call_end(&table, &data, |end| {
            calls += 1;
            assert_eq!(
                filtered.lookup(end - 1),
                table.lookup(end - 1),
                "{name} at {end:#x}"
            );
        });
        let (before, after) = (table.rows().len(), filtered.rows().len());
        println!("{name}: {calls} calls, {before} rows reduced to {after}");
        assert!(calls > 100, "{name} has hardly any calls");
        assert!(after * 2 < before, "{name}: the filter hardly filters");
        assert_planted_rules_stay(&table, &filtered);
    }
}

/// Decodes all code, starting anew at each row, which is an instruction's start.
fn for_each_call_end(table: &UnwindTable, data: &[u8], mut call_end: impl FnMut(u64)) {
    let starts = table
        .rows()
        .iter()
        .map(|row| table.base() + u64::from(row.rel_pc()));
    let starts: Vec<u64> = starts.collect();
    for stretch in starts.windows(2) {
        for segment in table.segments() {
            let start = stretch[0].max(segment.address);
            let end = stretch[1].min(segment.address + segment.size);
            if start < end {
                decode(code(segment, data, start, end), start, &mut call_end);
            }
        }
    }
}

fn code<'data>(segment: &Segment, data: &'data [u8], start: u64, end: u64) -> &'data [u8] {
    let offset = |address: u64| (address - segment.address + segment.file_offset) as usize;
    &data[offset(start)..offset(end)]
}

fn decode(code: &[u8], address: u64, call_end: &mut impl FnMut(u64)) {
    for instruction in Decoder::with_ip(64, code, address, DecoderOptions::NONE).iter() {
        if instruction.is_call_near() || instruction.is_call_near_indirect() {
            call_end(instruction.next_ip());
        }
    }
}

/// Return addresses that the kernel or `makecontext` plants follow no call.
fn assert_planted_rules_stay(table: &UnwindTable, filtered: &UnwindTable) {
    for row in table.rows() {
        if matches!(
            row.rule().kind(),
            RuleKind::SignalFrame | RuleKind::EndOfStack
        ) {
            let address = table.base() + u64::from(row.rel_pc());
            assert_eq!(filtered.lookup(address), Some(row.rule()));
        }
    }
}

#[test]
fn rows_without_a_call_merge_into_their_neighbours() {
    let mut code = [0x90; 64];
    // A call that ends in the second row of the first function, and one as its last instruction.
    code[10] = 0xe8;
    code[27] = 0xe8;
    let frames = Frames::eh()
        .fde(
            0,
            32,
            &[
                op::advance(1),
                op::def_cfa_offset(16),
                op::advance(20),
                op::def_cfa_offset(24),
                op::advance(2),
                op::def_cfa_offset(32),
            ],
        )
        .fde(32, 32, &[]);
    let image = Synthetic::eh(&code, frames.finish()).image();
    let filtered = build(&image).unwrap().filter_call_sites(&image).unwrap();
    let rule = |distance| filtered.lookup(CODE + distance).unwrap();
    assert_eq!(rule(14), Rule::rsp(16, 0).unwrap());
    assert_eq!(rule(31), Rule::rsp(32, 0).unwrap());
    assert_eq!(
        filtered.rows().len(),
        4,
        "base, two rows with calls, end: {:?}",
        filtered.rows()
    );
    assert!(
        filtered.filter_call_sites(&image[..0x1000]).is_err(),
        "another file's bytes"
    );
}
