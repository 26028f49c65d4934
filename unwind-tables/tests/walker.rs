//! The reference walker on made-up stacks: each rule, each reason to end.

use std::collections::HashMap;

use htrace_unwind_tables::walker::{
    Backtrace, EndReason, Found, Frame, Registers, Start, Suspicion, unwind,
};
use htrace_unwind_tables::{Coverage, Rule};
use proptest::prelude::*;

const STACK: u64 = 0x7fff_0000;
const CODE: u64 = 0x40_0000;

/// Memory and rules of a process; every address in code follows a call unless told otherwise.
#[derive(Default)]
struct Process {
    memory: HashMap<u64, u64>,
    rules: HashMap<u64, Rule>,
    filtered: bool,
}

impl Process {
    fn word(mut self, address: u64, value: u64) -> Self {
        self.memory.insert(address, value);
        self
    }

    /// Code after a call, and the rule for the call.
    fn after_call(self, address: u64, rule: Option<Rule>) -> Self {
        self.rule(address - 1, rule)
            .word(address - 8, u64::from_le_bytes([0, 0, 0, 0xe8, 1, 2, 3, 4]))
    }

    fn rule(mut self, address: u64, rule: Option<Rule>) -> Self {
        self.rules.extend(rule.map(|rule| (address, rule)));
        self
    }

    fn unwind(&self, start: Start) -> Backtrace {
        let coverage = if self.filtered {
            Coverage::CallSites
        } else {
            Coverage::Everywhere
        };
        let lookup = |address| {
            Some(Found {
                rule: *self.rules.get(&address)?,
                coverage,
            })
        };
        unwind(start, 16, lookup, |address| {
            self.memory.get(&address).copied()
        })
    }
}

fn entry(sp: u64, bp: u64) -> Start {
    Start::FunctionEntry(Registers { ip: 0, sp, bp })
}

fn returns(addresses: &[u64]) -> Vec<Frame> {
    addresses
        .iter()
        .map(|address| Frame::Return(*address))
        .collect()
}

/// A stack whose only frame has the given rule; CFA and return address follow from it.
fn one_frame(rule: Option<Rule>) -> Process {
    Process::default()
        .word(STACK, CODE + 0x100)
        .after_call(CODE + 0x100, rule)
}

#[track_caller]
fn assert_end(process: &Process, frames: &[u64], end: EndReason) {
    let backtrace = process.unwind(entry(STACK, 0));
    assert_eq!(
        backtrace,
        Backtrace {
            frames: returns(frames),
            end
        }
    );
}

#[test]
fn frames_without_a_usable_rule_are_the_last() {
    let frames = [CODE + 0x100];
    assert_end(
        &one_frame(Some(Rule::END_OF_STACK)),
        &frames,
        EndReason::Complete,
    );
    assert_end(&one_frame(Some(Rule::GAP)), &frames, EndReason::Gap);
    assert_end(
        &one_frame(Some(Rule::UNSUPPORTED)),
        &frames,
        EndReason::Unsupported,
    );
    assert_end(&one_frame(None), &frames, EndReason::NoTable);
}

#[test]
fn memory_that_cannot_be_read_ends_the_walk() {
    assert_end(&Process::default(), &[], EndReason::Unreadable(STACK));
    let above = STACK + 8 + 24;
    let process = one_frame(Rule::rsp(24, 0));
    assert_end(&process, &[CODE + 0x100], EndReason::Unreadable(above - 8));
}

#[test]
fn impossible_frames_are_left_out() {
    let frames = [CODE + 0x100];
    let suspect = EndReason::Suspect;
    assert_end(
        &one_frame(Rule::rsp(16, 0)),
        &frames,
        suspect(Suspicion::Misaligned),
    );
    assert_end(
        &one_frame(Rule::rsp(0, 0)),
        &frames,
        suspect(Suspicion::NotAbove),
    );
    // rbp is 0, so that this CFA lies below the stack.
    assert_end(
        &one_frame(Rule::rbp(16, 1)),
        &frames,
        suspect(Suspicion::NotAbove),
    );
    let no_call = one_frame(Rule::rsp(24, 0))
        .word(STACK + 24, CODE + 0x200)
        .word(CODE + 0x200 - 8, 0x9090_9090_9090_9090);
    assert_end(&no_call, &frames, suspect(Suspicion::NotAfterCall));
}

#[test]
fn a_saved_rbp_is_found_through_frames_that_do_not_touch_it() {
    // The first function saves rbp at CFA - 16, the second keeps it, the third needs it.
    let (first, second, third) = (CODE + 0x100, CODE + 0x200, CODE + 0x300);
    let first_cfa = STACK + 8 + 24;
    let second_cfa = first_cfa + 16;
    let saved_rbp = second_cfa + 0x100;
    let process = one_frame(Rule::rsp(24, 1))
        .word(first_cfa - 8, second)
        .word(first_cfa - 16, saved_rbp)
        .after_call(second, Rule::rsp(16, 0))
        .word(second_cfa - 8, third)
        .after_call(third, Rule::rbp(16, 1))
        .word(saved_rbp + 8, CODE + 0x400)
        .after_call(CODE + 0x400, Some(Rule::END_OF_STACK));
    assert_end(
        &process,
        &[first, second, third, CODE + 0x400],
        EndReason::Complete,
    );
}

#[test]
fn a_slot_that_no_rule_needs_need_not_be_readable() {
    let cfa = STACK + 8 + 24;
    let process = one_frame(Rule::rsp(24, 1))
        .word(cfa - 8, CODE + 0x200)
        .after_call(CODE + 0x200, Some(Rule::END_OF_STACK));
    assert_end(&process, &[CODE + 0x100, CODE + 0x200], EndReason::Complete);
}

#[test]
fn a_realigned_frame_goes_through_rbp() {
    let (bp, cfa) = (STACK + 0x80, STACK + 0x100);
    let process = one_frame(Rule::drap(8))
        .word(bp - 8, cfa)
        .word(bp, STACK + 0x200)
        .word(cfa - 8, CODE + 0x200)
        .after_call(CODE + 0x200, Rule::rbp(16, 1))
        .word(STACK + 0x208, CODE + 0x300)
        .after_call(CODE + 0x300, Some(Rule::END_OF_STACK));
    let backtrace = process.unwind(entry(STACK, bp));
    assert_eq!(
        backtrace.frames,
        returns(&[CODE + 0x100, CODE + 0x200, CODE + 0x300])
    );
    assert_eq!(backtrace.end, EndReason::Complete);
}

/// A handler's stack, elsewhere than the interrupted code's, which is inside a PLT entry.
fn signal() -> Process {
    let trampoline = CODE + 0x100;
    let (interrupted, interrupted_sp) = (CODE + 0x20b, STACK - 0x1000);
    let context = STACK + 8;
    Process::default()
        .word(STACK, trampoline)
        .rule(trampoline - 1, Some(Rule::SIGNAL_FRAME))
        .word(context + 168, interrupted)
        .word(context + 160, interrupted_sp)
        .rule(interrupted, Rule::plt(11))
        .word(interrupted_sp + 8, CODE + 0x300)
        .after_call(CODE + 0x300, Some(Rule::END_OF_STACK))
}

#[test]
fn interrupted_code_is_looked_up_where_it_is() {
    let backtrace = signal().unwind(entry(STACK, 0));
    let expected = [
        Frame::Return(CODE + 0x100),
        Frame::Interrupted(CODE + 0x20b),
        Frame::Return(CODE + 0x300),
    ];
    assert_eq!(
        backtrace,
        Backtrace {
            frames: expected.to_vec(),
            end: EndReason::Complete
        }
    );
    let filtered = Process {
        filtered: true,
        ..signal()
    }
    .unwind(entry(STACK, 0));
    assert_eq!(filtered.frames, expected[..2]);
    assert_eq!(filtered.end, EndReason::Unsupported);
}

#[test]
fn interrupted_code_may_have_been_called_with_any_stack_of_words() {
    let process = signal()
        .rule(CODE + 0x20b, Rule::rsp(8, 0))
        .word(STACK - 0x1000, CODE + 0x300)
        .after_call(CODE + 0x300, Rule::rsp(8, 0))
        .word(STACK - 0x1000 + 8, CODE + 0x400)
        .after_call(CODE + 0x400, Rule::rsp(8, 0));
    let backtrace = process.unwind(entry(STACK, 0));
    assert_eq!(backtrace.frames.len(), 4, "{backtrace:?}");
    assert_eq!(
        backtrace.end,
        EndReason::Suspect(Suspicion::Misaligned),
        "the stack of what has made a call is aligned"
    );
}

#[test]
fn a_walk_can_begin_anywhere() {
    let process = Process::default()
        .rule(CODE, Rule::rsp(16, 0))
        .word(STACK + 8, CODE + 0x100)
        .after_call(CODE + 0x100, Some(Rule::END_OF_STACK));
    let start = Start::Anywhere(Registers {
        ip: CODE,
        sp: STACK,
        bp: 0,
    });
    let frames = vec![Frame::Interrupted(CODE), Frame::Return(CODE + 0x100)];
    assert_eq!(
        process.unwind(start),
        Backtrace {
            frames,
            end: EndReason::Complete
        }
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Memory holds addresses that are near, far, or extreme; every rule has arbitrary bits.
    #[test]
    fn arbitrary_rules_and_memory_end_within_the_limit(
        registers in any::<[u64; 3]>(),
        words in proptest::collection::vec(any::<u64>(), 1..8),
        rules in proptest::collection::vec(any::<u32>(), 1..8),
        stack in prop_oneof![Just(0), Just(STACK), Just(u64::MAX - 31)],
    ) {
        let pick = |address: u64, count: usize| (address ^ address >> 4) as usize % count;
        let lookup = |address| {
            let rule = Rule::from_bits(rules[pick(address, rules.len())]);
            Some(Found { rule, coverage: Coverage::Everywhere })
        };
        let read = |address| match words[pick(address, words.len())] {
            word if word % 3 == 0 => Some(u64::from_le_bytes([0, 0, 0, 0xe8, 0, 0, 0, 0])),
            word if word % 3 == 1 => Some(stack.wrapping_add(word % 256)),
            word => Some(word),
        };
        let [ip, sp, bp] = registers;
        for sp in [sp, stack] {
            for start in [entry(sp, bp), Start::Anywhere(Registers { ip, sp, bp })] {
                prop_assert!(unwind(start, 16, lookup, read).frames.len() <= 16);
            }
        }
    }
}
