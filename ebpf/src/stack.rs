//! Takes the stack of a call on entry, and gives it an id.
//!
//! [`walk_frame_pointers`] is the one walker there is so far. It follows the chain of saved frame
//! pointers, so code built without them is skipped or ends the stack. Every end has a reason.

use htrace_ebpf_common::{
    control::MAX_FRAMES,
    counters::Counter,
    wire::{Kind, StackEnd, StackRecord},
};

use crate::kernel::{Kernel, Registers};

/// Takes the stack at the entry of a function, sends it if it is new, and returns its id; 0 if it
/// could not be sent.
pub fn capture<K: Kernel>(
    kernel: &K,
    record: &mut StackRecord,
    registers: &Registers,
    return_address: u64,
) -> u64 {
    record.frames[0] = return_address;
    let (frames, end) = walk_frame_pointers(kernel, registers, &mut record.frames);
    let id = stack_id(&record.frames, frames, end);
    if kernel.stack_is_known(id) {
        return id;
    }
    record.header = kernel.header(Kind::Stack, end as u8);
    record.id = id;
    if !kernel.emit_stack(record, frames) {
        kernel.count(Counter::StackRingFull);
        return 0;
    }
    kernel.stack_became_known(id);
    id
}

/// Follows saved frame pointers from the caller on, whose return address is already in
/// `frames[0]`. Returns the number of frames and why they end there.
///
/// A frame pointer of 0 marks the outermost frame (System V ABI for x86-64, 3.4.1). Frames lie
/// above each other, so each saved frame pointer must be higher than the one before.
#[expect(
    clippy::needless_range_loop,
    reason = "the verifier bounds an index, but not a pointer compared with another"
)]
fn walk_frame_pointers<K: Kernel>(
    kernel: &K,
    registers: &Registers,
    frames: &mut [u64; MAX_FRAMES],
) -> (usize, StackEnd) {
    let mut fp = registers.fp;
    let mut low = registers.sp;
    for index in 1..MAX_FRAMES {
        if fp == 0 {
            return (index, StackEnd::Complete);
        }
        if fp <= low || !fp.is_multiple_of(16) {
            return (index, StackEnd::Suspect);
        }
        let (Some(next), Some(address)) = (kernel.read_user(fp), kernel.read_user(fp + 8)) else {
            return (index, StackEnd::Unreadable);
        };
        if address == 0 {
            return (index, StackEnd::Complete);
        }
        frames[index] = address;
        low = fp;
        fp = next;
    }
    (MAX_FRAMES, StackEnd::Depth)
}

/// A 64-bit id of the frames and their end. One multiplication a frame by an odd constant and a
/// fold of the high half: each step is a bijection of the state, so stacks that differ in one
/// frame never collide, and others do with a probability of 2^-64.
#[expect(
    clippy::needless_range_loop,
    reason = "the verifier bounds an index, but not a pointer compared with another"
)]
fn stack_id(frames: &[u64; MAX_FRAMES], count: usize, end: StackEnd) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut id = (count as u64) << 8 | end as u64;
    for index in 0..MAX_FRAMES {
        if index >= count {
            break;
        }
        id = (id ^ frames[index]).wrapping_mul(ODD);
        id ^= id >> 32;
    }
    // 0 stands for 'no stack'.
    if id == 0 { ODD } else { id }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeKernel, new_thread};

    /// Two frames above the caller: `main` called from code that ends the chain.
    fn chain() -> FakeKernel {
        let kernel = FakeKernel::recording();
        kernel.write(0x1020, 0x1040);
        kernel.write(0x1028, 0x400200);
        kernel.write(0x1040, 0);
        kernel.write(0x1048, 0x400300);
        kernel
    }

    fn registers() -> Registers {
        Registers {
            ip: 0x500000,
            sp: 0x1000,
            fp: 0x1020,
        }
    }

    #[test]
    fn frames_are_followed_to_the_outermost() {
        let kernel = chain();
        let mut thread = new_thread();
        let id = capture(&kernel, &mut thread.stack, &registers(), 0x400100);
        let (sent, frames, end) = kernel.stacks().remove(0);
        assert_eq!((sent, end), (id, StackEnd::Complete));
        assert_eq!(frames, [0x400100, 0x400200, 0x400300]);
    }

    #[test]
    fn a_stack_is_sent_once() {
        let kernel = chain();
        let mut thread = new_thread();
        let first = capture(&kernel, &mut thread.stack, &registers(), 0x400100);
        let again = capture(&kernel, &mut thread.stack, &registers(), 0x400100);
        let other = capture(&kernel, &mut thread.stack, &registers(), 0x400101);
        assert_eq!(first, again);
        assert_ne!(first, other);
        assert_eq!(kernel.stacks().len(), 2);
    }

    #[test]
    fn a_stack_that_found_no_room_is_tried_again() {
        let kernel = chain();
        let mut thread = new_thread();
        kernel.fill_ring(true);
        assert_eq!(
            capture(&kernel, &mut thread.stack, &registers(), 0x400100),
            0
        );
        assert_eq!(kernel.counted(Counter::StackRingFull), 1);
        kernel.fill_ring(false);
        assert_ne!(
            capture(&kernel, &mut thread.stack, &registers(), 0x400100),
            0
        );
        assert_eq!(kernel.stacks().len(), 1);
    }

    #[test]
    fn every_end_has_its_reason() {
        let ends = [
            (0x1020, StackEnd::Complete, 3),
            (0x0ff0, StackEnd::Suspect, 1),
            (0x1024, StackEnd::Suspect, 1),
            (0x9000, StackEnd::Unreadable, 1),
            (0, StackEnd::Complete, 1),
        ];
        for (fp, end, frames) in ends {
            let kernel = chain();
            let mut thread = new_thread();
            capture(
                &kernel,
                &mut thread.stack,
                &Registers { fp, ..registers() },
                0x400100,
            );
            let stack = kernel.stacks().remove(0);
            assert_eq!(
                (stack.1.len(), stack.2),
                (frames, end),
                "frame pointer {fp:#x}"
            );
        }
    }

    #[test]
    fn a_stack_deeper_than_a_record_is_cut_and_says_so() {
        let kernel = FakeKernel::recording();
        for frame in 0..2 * MAX_FRAMES as u64 {
            kernel.write(0x1020 + frame * 16, 0x1030 + frame * 16);
            kernel.write(0x1028 + frame * 16, 0x400000 + frame);
        }
        let mut thread = new_thread();
        capture(&kernel, &mut thread.stack, &registers(), 1);
        let stack = kernel.stacks().remove(0);
        assert_eq!((stack.1.len(), stack.2), (MAX_FRAMES, StackEnd::Depth));
    }
}
