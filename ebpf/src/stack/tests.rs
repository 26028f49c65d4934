use htrace_ebpf_common::{control::MAX_FRAMES, wire::StackEnd};

use super::*;
use crate::{
    Registers,
    fake::{FakeKernel, new_thread},
};

const SP: u64 = 0x1008;

/// Two frames above the caller: `main` called from code that ends the chain.
fn chain() -> FakeKernel {
    let kernel = FakeKernel::recording();
    kernel.write(SP, 0x400100);
    kernel.write(0x1020, 0x1040);
    kernel.write(0x1028, 0x400200);
    kernel.write(0x1040, 0);
    kernel.write(0x1048, 0x400300);
    kernel
}

fn take(kernel: &FakeKernel, thread: &mut Thread, fp: u64) -> u64 {
    let registers = Registers {
        ip: 0x500000,
        sp: SP,
        fp,
        fp_at: 0,
    };
    let limit = kernel.control().max_frames;
    thread.walk.begin(kernel, &registers, limit);
    capture(kernel, thread)
}

#[test]
fn frames_are_followed_to_the_outermost() {
    let kernel = chain();
    let id = take(&kernel, &mut new_thread(), 0x1020);
    let (sent, frames, end) = kernel.stacks().remove(0);
    assert_eq!((sent, end), (id, StackEnd::Complete));
    assert_eq!(frames, [0x400100, 0x400200, 0x400300]);
}

#[test]
fn a_stack_is_sent_once() {
    let kernel = chain();
    let mut thread = new_thread();
    let first = take(&kernel, &mut thread, 0x1020);
    let again = take(&kernel, &mut thread, 0x1020);
    kernel.write(SP, 0x400101);
    let other = take(&kernel, &mut thread, 0x1020);
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert_eq!(kernel.stacks().len(), 2);
}

#[test]
fn a_stack_that_found_no_room_is_tried_again() {
    let kernel = chain();
    let mut thread = new_thread();
    kernel.fill_ring(true);
    assert_eq!(take(&kernel, &mut thread, 0x1020), 0);
    assert_eq!(kernel.counted(Counter::StackRingFull), 1);
    kernel.fill_ring(false);
    assert_ne!(take(&kernel, &mut thread, 0x1020), 0);
    assert_eq!(kernel.stacks().len(), 1);
}

#[test]
fn every_end_of_a_chain_has_its_reason() {
    let ends = [
        (0x1020, StackEnd::Complete, 3),
        (0x0ff0, StackEnd::Suspect, 1),
        (0x1024, StackEnd::Suspect, 1),
        (0x9000, StackEnd::Unreadable, 1),
        (0, StackEnd::Complete, 1),
    ];
    for (fp, end, frames) in ends {
        let kernel = chain();
        take(&kernel, &mut new_thread(), fp);
        let stack = kernel.stacks().remove(0);
        assert_eq!(
            (stack.1.len(), stack.2),
            (frames, end),
            "frame pointer {fp:#x}"
        );
    }
}

#[test]
fn a_stack_deeper_than_the_limit_is_cut_and_says_so() {
    for limit in [1, 5, MAX_FRAMES, 2 * MAX_FRAMES] {
        let kernel = FakeKernel::recording();
        kernel.set_max_frames(limit as u32);
        for frame in 0..3 * MAX_FRAMES as u64 {
            kernel.write(0x1020 + frame * 16, 0x1030 + frame * 16);
            kernel.write(0x1028 + frame * 16, 0x400000 + frame);
        }
        take(&kernel, &mut new_thread(), 0x1020);
        let stack = kernel.stacks().remove(0);
        let expected = limit.min(MAX_FRAMES);
        assert_eq!((stack.1.len(), stack.2), (expected, StackEnd::Depth));
    }
}
