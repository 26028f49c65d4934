//! The walker beside the reference walker of `htrace-unwind-tables`, on the same made-up stacks.

extern crate std;
use std::{vec, vec::Vec};

use htrace_unwind_tables::{
    Coverage, Rule,
    walker::{self, EndReason, Found, Start},
};
use proptest::prelude::*;

use super::*;
use crate::{
    fake::{FakeKernel, new_thread},
    thread::Thread,
};

const STACK: u64 = 0x7fff_0000;
const STACK_WORDS: u64 = 96;
const CODE: u64 = 0x40_0000;
const FUNCTIONS: u64 = 12;

/// The address behind a function's only call.
fn behind_call(function: u64) -> u64 {
    CODE + 0x100 * function + 0x20
}

fn walked(kernel: &FakeKernel, registers: Registers) -> (Vec<u64>, StackEnd) {
    let mut thread = new_thread();
    thread
        .walk
        .begin(kernel, &registers, kernel.control().max_frames);
    kernel.walk(&mut thread);
    let frames = thread.stack.frames[..thread.walk.frames()].to_vec();
    (frames, StackEnd::from_byte(thread.walk.end()).unwrap())
}

/// As [`walked`], by a thread that has been here before.
fn walked_by(
    thread: &mut Thread,
    kernel: &FakeKernel,
    registers: Registers,
) -> (Vec<u64>, StackEnd) {
    let limit = kernel.control().max_frames;
    thread.walk.begin(kernel, &registers, limit);
    kernel.walk(thread);
    thread.walk.finish();
    let frames = thread.stack.frames[..thread.walk.frames()].to_vec();
    (frames, StackEnd::from_byte(thread.walk.end()).unwrap())
}

fn expected(kernel: &FakeKernel, registers: Registers) -> (Vec<u64>, StackEnd) {
    let start = Start::FunctionEntry(walker::Registers {
        ip: registers.ip,
        sp: registers.sp,
        bp: registers.fp,
    });
    let backtrace = walker::unwind(
        start,
        kernel.control().max_frames as usize,
        |address| kernel.rule(address),
        |address| kernel.word(address),
    );
    let frames = backtrace.frames.iter().map(|frame| frame.address());
    (frames.collect(), end_of(backtrace.end))
}

fn end_of(reason: EndReason) -> StackEnd {
    match reason {
        EndReason::Complete => StackEnd::Complete,
        EndReason::Depth => StackEnd::Depth,
        EndReason::NoTable => StackEnd::NoTable,
        EndReason::Gap => StackEnd::Gap,
        EndReason::Unsupported => StackEnd::Unsupported,
        EndReason::Unreadable(_) => StackEnd::Unreadable,
        EndReason::Suspect(_) => StackEnd::Suspect,
    }
}

fn rules() -> impl Strategy<Value = Option<Found>> {
    let rule = prop_oneof![
        6 => (1..5_u64, 0..4_u8).prop_map(|(n, slot)| Rule::rsp(n * 16, slot)),
        1 => (0..9_u64, 0..4_u8).prop_map(|(n, slot)| Rule::rsp(n * 8, slot)),
        3 => (1..3_u64, 0..3_u8).prop_map(|(n, slot)| Rule::rbp(n * 16, slot)),
        1 => (0..4_u64).prop_map(|n| Rule::drap(n * 8)),
        1 => (0..16_u8).prop_map(Rule::plt),
        1 => Just(Some(Rule::SIGNAL_FRAME)),
        1 => prop_oneof![
            Just(Some(Rule::END_OF_STACK)),
            Just(Some(Rule::GAP)),
            Just(Some(Rule::UNSUPPORTED)),
            Just(None),
        ],
    ];
    let coverage = prop_oneof![3 => Just(Coverage::Everywhere), 1 => Just(Coverage::CallSites)];
    (rule, coverage).prop_map(|(rule, coverage)| rule.map(|rule| Found { rule, coverage }))
}

/// Two words of a stack: anything, and where a frame's return address may lie, mostly one.
fn words() -> impl Strategy<Value = [u64; 2]> {
    let return_address = prop_oneof![
        30 => (0..FUNCTIONS).prop_map(behind_call),
        1 => prop_oneof![Just(0), any::<u64>(), Just(CODE + 3)],
    ];
    (pointer(), return_address).prop_map(|(pointer, address)| [pointer, address])
}

fn pointer() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0..STACK_WORDS / 2).prop_map(|n| STACK + 16 * n),
        1 => (0..STACK_WORDS).prop_map(|n| STACK + 8 * n),
        1 => any::<u64>(),
    ]
}

fn processes() -> impl Strategy<Value = (FakeKernel, Registers)> {
    let calls = prop::collection::vec(prop::bool::weighted(0.95), FUNCTIONS as usize);
    let rules = prop::collection::vec(rules(), FUNCTIONS as usize);
    let stack = prop::collection::vec(words(), STACK_WORDS as usize / 2);
    (calls, rules, stack, pointer(), 1..40_u32).prop_map(|(calls, rules, stack, fp, limit)| {
        let kernel = FakeKernel::recording();
        kernel.set_max_frames(limit);
        kernel.set_rule(0, None);
        for (function, (call, rule)) in (0..).zip(calls.into_iter().zip(rules)) {
            let behind = behind_call(function);
            let code = if call { 0xe8 << 24 } else { 0x90 << 24 };
            kernel.write(behind - 8, code);
            kernel.set_rule(behind - 1, rule);
            kernel.set_rule(behind, rule);
        }
        for (index, word) in (0..).zip(stack.concat()) {
            kernel.write(STACK + 8 * index, word);
        }
        let registers = Registers {
            ip: CODE,
            sp: STACK + 8,
            fp,
            fp_at: 0,
        };
        (kernel, registers)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn walks_are_those_of_the_reference((kernel, registers) in processes()) {
        let expected = expected(&kernel, registers);
        prop_assert_eq!(&walked(&kernel, registers), &expected);
        // And again, with rules remembered.
        prop_assert_eq!(walked(&kernel, registers), expected);
    }

    #[test]
    fn what_a_thread_predicts_changes_no_walk(
        (kernel, registers) in processes(),
        changes in prop::collection::vec(prop::collection::vec((0..STACK_WORDS / 2, words()), 0..4), 1..5),
    ) {
        let mut thread = new_thread();
        for changed in changes {
            let found = walked_by(&mut thread, &kernel, registers);
            prop_assert_eq!(found, expected(&kernel, registers));
            for (pair, [low, high]) in changed {
                kernel.write(STACK + 16 * pair, low);
                kernel.write(STACK + 16 * pair + 8, high);
            }
        }
    }
}

/// `inner` called by `outer`, which is the outermost.
fn two_frames() -> (FakeKernel, Registers) {
    let kernel = FakeKernel::recording();
    let found = |rule| {
        Some(Found {
            rule,
            coverage: Coverage::Everywhere,
        })
    };
    kernel.write(STACK + 8, behind_call(0));
    kernel.write(STACK + 24, behind_call(1));
    kernel.set_rule(behind_call(0) - 1, Rule::rsp(16, 0).and_then(found));
    kernel.set_rule(behind_call(1) - 1, found(Rule::END_OF_STACK));
    kernel.write(behind_call(0) - 8, 0xe8 << 24);
    kernel.write(behind_call(1) - 8, 0xe8 << 24);
    (
        kernel,
        Registers {
            ip: CODE,
            sp: STACK + 8,
            fp: 0,
            fp_at: 0,
        },
    )
}

#[test]
fn made_up_stacks_are_deep_enough_to_prove_something() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut depths = Vec::new();
    for _ in 0..200 {
        let (kernel, registers) = processes().new_tree(&mut runner).unwrap().current();
        depths.push(walked(&kernel, registers).0.len());
    }
    assert!(
        depths.iter().filter(|depth| **depth >= 4).count() > 40,
        "{depths:?}"
    );
}

#[test]
fn a_replaced_return_address_is_translated_back() {
    for slot in [STACK + 8, STACK + 24] {
        let (kernel, registers) = two_frames();
        kernel.replace_return_address(slot, 0x7fff_f000_0000);
        let (frames, end) = walked(&kernel, registers);
        assert_eq!(frames, [behind_call(0), behind_call(1)]);
        assert_eq!(end, StackEnd::Complete);
        assert_eq!(kernel.counted(Counter::Trampolines), 1);
    }
}

#[test]
fn what_a_signal_interrupts_may_have_been_called_with_any_stack_of_words() {
    let (kernel, registers) = two_frames();
    let rule = |rule| {
        Some(Found {
            rule,
            coverage: Coverage::Everywhere,
        })
    };
    // The caller is where the kernel lets handlers return to; what it has interrupted lies at 2.
    kernel.set_rule(behind_call(0) - 1, rule(Rule::SIGNAL_FRAME));
    let (context, interrupted_sp) = (STACK + 16, STACK + 512);
    kernel.write(context + SIGNAL_FRAME_RIP, behind_call(2));
    kernel.write(context + SIGNAL_FRAME_RSP, interrupted_sp);
    kernel.write(context + SIGNAL_FRAME_RBP, 0);
    kernel.set_rule(behind_call(2), Rule::rsp(8, 0).and_then(rule));
    kernel.write(interrupted_sp, behind_call(1));
    let (frames, end) = walked(&kernel, registers);
    assert_eq!(frames, [behind_call(0), behind_call(2), behind_call(1)]);
    assert_eq!(end, StackEnd::Complete);
    assert_eq!((frames, end), expected(&kernel, registers));
}

#[test]
fn remembered_rules_need_no_second_look() {
    let (kernel, registers) = two_frames();
    walked(&kernel, registers);
    let misses = kernel.counted(Counter::RuleMisses);
    assert_eq!(misses, 2);
    walked(&kernel, registers);
    assert_eq!(kernel.counted(Counter::RuleMisses), misses);
}

#[test]
fn a_deep_stack_of_one_function_is_cut_at_the_limit() {
    let kernel = FakeKernel::recording();
    let rule = Rule::rsp(16, 0).map(|rule| Found {
        rule,
        coverage: Coverage::Everywhere,
    });
    kernel.set_rule(behind_call(0) - 1, rule);
    kernel.write(behind_call(0) - 8, 0xe8 << 24);
    for frame in 0..2 * MAX_FRAMES as u64 {
        kernel.write(STACK + 8 + 16 * frame, behind_call(0));
    }
    let registers = Registers {
        ip: CODE,
        sp: STACK + 8,
        fp: 0,
        fp_at: 0,
    };
    let (frames, end) = walked(&kernel, registers);
    assert_eq!((frames.len(), end), (MAX_FRAMES, StackEnd::Depth));
}

/// As [`two_frames`], but `inner` has no unwind data and keeps a frame pointer.
fn generated_frame() -> (FakeKernel, Registers) {
    let (kernel, registers) = two_frames();
    let gap = Found {
        rule: Rule::GAP,
        coverage: Coverage::Everywhere,
    };
    kernel.set_rule(behind_call(0) - 1, Some(gap));
    kernel.write(STACK + 16, 0);
    let registers = Registers {
        fp: STACK + 16,
        ..registers
    };
    (kernel, registers)
}

#[test]
fn frame_pointers_are_followed_without_unwind_data_only_when_asked_for() {
    let (kernel, registers) = generated_frame();
    let cut = (vec![behind_call(0)], StackEnd::Gap);
    assert_eq!(walked(&kernel, registers), cut);
    kernel.guess_frame_pointers();
    let whole = vec![behind_call(0), behind_call(1)];
    assert_eq!(walked(&kernel, registers), (whole, StackEnd::Guessed));
}

#[test]
fn a_frame_pointer_that_cannot_be_one_ends_the_stack_for_the_reason_before() {
    let (kernel, registers) = generated_frame();
    kernel.guess_frame_pointers();
    for fp in [0, STACK + 8, STACK + 20, u64::MAX - 7] {
        let (frames, end) = walked(&kernel, Registers { fp, ..registers });
        assert_eq!((frames.len(), end), (1, StackEnd::Gap), "{fp:#x}");
    }
}

#[test]
fn a_guess_that_leads_to_no_return_address_is_not_taken() {
    let (kernel, registers) = generated_frame();
    kernel.guess_frame_pointers();
    let rule = kernel.rule(behind_call(0) - 1);
    kernel.write(behind_call(1) - 8, 0x90 << 24);
    kernel.set_rule(behind_call(1) - 1, rule);
    let (frames, end) = walked(&kernel, registers);
    assert_eq!((frames.len(), end), (1, StackEnd::Suspect));
}
