//! Calls as a target makes them, replayed against a fake kernel.

extern crate std;

use std::vec;

use super::*;
use crate::fake::{FakeKernel, Sent, new_thread};

/// Where the allocator's functions lie, and where its code returns to inside itself.
const ALLOCATOR: u64 = 0x50_0000;
const INSIDE_ALLOCATOR: u64 = 0x50_1000;
const APPLICATION: u64 = 0x10_0000;
const TRAMPOLINE: u64 = 0x7fff_f000;

struct Target {
    kernel: FakeKernel,
    thread: Thread,
}

impl Target {
    fn new() -> Self {
        Self {
            kernel: FakeKernel::recording(),
            thread: new_thread(),
        }
    }

    /// Enters a function whose return address stands at `sp`.
    fn enter(&mut self, sp: u64, return_address: u64, call: Call) {
        self.kernel.write(sp, return_address);
        let registers = Registers {
            ip: ALLOCATOR,
            sp,
            fp: 0,
            fp_at: 0,
        };
        enter(
            &self.kernel,
            &mut self.thread,
            &registers,
            &call,
            Result::UNKNOWN,
        );
        self.kernel.write(sp, TRAMPOLINE);
    }

    /// Enters an `operator new`, whose return address stays where it is.
    fn enter_new(&mut self, sp: u64, size: u64) {
        self.enter(sp, APPLICATION, Call::operator_new(size));
        self.kernel.write(sp, APPLICATION);
    }

    fn leave_at_ret(&mut self, sp: u64, value: u64) {
        leave_at_ret(&self.kernel, &mut self.thread, sp, value);
    }

    fn leave(&mut self, sp: u64, value: u64) {
        leave(&self.kernel, &mut self.thread, sp, value);
    }

    fn free(&mut self, sp: u64, return_address: u64, pointer: u64) {
        self.kernel.write(sp, return_address);
        let registers = Registers {
            ip: ALLOCATOR,
            sp,
            fp: 0,
            fp_at: 0,
        };
        release(&self.kernel, Some(&mut self.thread), &registers, pointer);
    }

    fn sent(&self) -> vec::Vec<Sent> {
        self.kernel.sent()
    }

    fn counted(&self, counter: Counter) -> u64 {
        self.kernel.counted(counter)
    }
}

#[test]
fn a_call_becomes_an_allocation_when_it_returns() {
    let mut target = Target::new();
    target.enter(0x1000, APPLICATION, Call::malloc(24));
    assert_eq!(target.sent(), []);
    target.leave(0x1000, 0xa0);
    assert_eq!(
        target.sent(),
        [Sent::Allocation {
            pointer: 0xa0,
            size: 24
        }]
    );
}

#[test]
fn the_stack_precedes_the_allocation() {
    let mut target = Target::new();
    target.enter(0x1000, APPLICATION, Call::malloc(24));
    target.leave(0x1000, 0xa0);
    assert_eq!(target.kernel.order()[0], Sent::Stack);
}

#[test]
fn room_is_looked_for_once_in_many_records_but_always_by_strangers() {
    let mut target = Target::new();
    for pointer in 1..=1000 {
        target.free(0x1000, APPLICATION, pointer * 16);
    }
    // 16 bytes a record, a look in 512.
    assert_eq!(target.kernel.looks(), 1000 * 16 / 512);
    let registers = Registers::default();
    release(&target.kernel, None, &registers, 16);
    assert_eq!(target.kernel.looks(), 1000 * 16 / 512 + 1);
}

#[test]
fn the_clock_is_read_when_the_timer_has_ticked() {
    let mut target = Target::new();
    let mut stamps = vec![];
    for (ticks, clock) in [(false, 7), (true, 8), (false, 9), (true, 9)] {
        if ticks {
            target.kernel.tick(clock);
        }
        let header = target.thread.header(&target.kernel, Kind::Free, 0);
        stamps.push(header.clock);
    }
    assert_eq!(stamps, [0, 8, 8, 9]);
}

#[test]
fn null_is_no_allocation() {
    let mut target = Target::new();
    for call in [
        Call::malloc(1),
        Call::calloc(u64::MAX, 2),
        Call::realloc(0, 9),
    ] {
        target.enter(0x1000, APPLICATION, call);
        target.leave(0x1000, 0);
    }
    assert_eq!(target.sent(), []);
    assert_eq!(target.counted(Counter::Failed), 3);
}

#[test]
fn sizes_are_products_and_saturate() {
    assert_eq!(Call::calloc(3, 7).size, 21);
    assert_eq!(Call::reallocarray(1, 3, 7).size, 21);
    assert_eq!(Call::reallocarray(1, u64::MAX, 2).size, u64::MAX);
}

#[test]
fn posix_memalign_returns_through_its_argument() {
    let mut target = Target::new();
    target.kernel.write(0x2000, 0xb0);
    target.enter(0x1000, APPLICATION, Call::posix_memalign(0x2000, 64));
    target.leave(0x1000, 0xffff_ffff_0000_0000);
    assert_eq!(
        target.sent(),
        [Sent::Allocation {
            pointer: 0xb0,
            size: 64
        }]
    );

    target.enter(0x1000, APPLICATION, Call::posix_memalign(0x2000, 64));
    target.leave(0x1000, 22);
    assert_eq!(
        (target.sent(), target.counted(Counter::Failed)),
        (vec![], 1)
    );

    target.enter(0x1000, APPLICATION, Call::posix_memalign(0x9000, 64));
    target.leave(0x1000, 0);
    assert_eq!(
        (target.sent(), target.counted(Counter::PointerUnreadable)),
        (vec![], 1)
    );
}

#[test]
fn realloc_begins_before_the_old_block_can_be_reused() {
    let mut target = Target::new();
    target.enter(0x1000, APPLICATION, Call::realloc(0xa0, 50));
    assert_eq!(target.sent(), [Sent::ReallocBegin { pointer: 0xa0 }]);
    target.leave(0x1000, 0xb0);
    assert_eq!(
        target.sent(),
        [Sent::realloc(Outcome::Moved, 0xa0, 0xb0, 50)]
    );
}

#[test]
fn realloc_fails_or_frees() {
    let mut target = Target::new();
    for (size, outcome) in [(50, Outcome::Failed), (0, Outcome::Freed)] {
        target.enter(0x1000, APPLICATION, Call::realloc(0xa0, size));
        target.leave(0x1000, 0);
        assert_eq!(target.sent()[1], Sent::realloc(outcome, 0xa0, 0, size));
    }
}

#[test]
fn realloc_of_null_is_an_allocation() {
    let mut target = Target::new();
    target.enter(0x1000, APPLICATION, Call::realloc(0, 50));
    target.leave(0x1000, 0xb0);
    assert_eq!(
        target.sent(),
        [Sent::Allocation {
            pointer: 0xb0,
            size: 50
        }]
    );
}

#[test]
fn calls_inside_the_allocator_count_once() {
    let mut target = Target::new();
    target.enter(0x1000, APPLICATION, Call::aligned(64));
    target.enter(0x0f80, INSIDE_ALLOCATOR, Call::malloc(128));
    target.leave(0x0f80, 0xa0);
    target.leave(0x1000, 0xa0);
    assert_eq!(
        target.sent(),
        [Sent::Allocation {
            pointer: 0xa0,
            size: 64
        }]
    );
    assert_eq!(target.counted(Counter::Nested), 1);
    assert_eq!(target.counted(Counter::ReturnWithoutEntry), 0);
}

#[test]
fn a_function_that_ends_in_a_jump_to_another_counts_once() {
    let mut target = Target::new();
    target.enter(0x1000, APPLICATION, Call::realloc(0, 50));
    target.enter(0x1000, TRAMPOLINE, Call::malloc(50));
    target.leave(0x1000, 0xa0);
    target.leave(0x1000, 0xa0);
    assert_eq!(
        target.sent(),
        [Sent::Allocation {
            pointer: 0xa0,
            size: 50
        }]
    );
    assert_eq!(target.counted(Counter::ReturnWithoutEntry), 0);
}

#[test]
fn malloc_that_jumps_to_itself_counts_once() {
    let mut target = Target::new();
    target.kernel.write(0x1000, APPLICATION);
    target.kernel.replace_return_address(0x1000, TRAMPOLINE);
    target.enter(0x1000, APPLICATION, Call::malloc(50));
    target.enter(0x1000, TRAMPOLINE, Call::malloc(50));
    target.leave(0x1000, 0xa0);
    target.leave(0x1000, 0xa0);
    let block = Sent::Allocation {
        pointer: 0xa0,
        size: 50,
    };
    assert_eq!(target.sent(), [block]);
    assert_eq!(target.counted(Counter::ReturnWithoutEntry), 0);
    assert_eq!(target.counted(Counter::Abandoned), 0);
    target.leave(0x1000, 0xa0);
    assert_eq!(target.counted(Counter::ReturnWithoutEntry), 1);
}

#[test]
fn the_free_inside_realloc_to_zero_is_not_another() {
    let mut target = Target::new();
    target.enter(0x1000, APPLICATION, Call::realloc(0xa0, 0));
    target.free(0x0f80, INSIDE_ALLOCATOR, 0xa0);
    target.leave(0x1000, 0);
    let begin = Sent::ReallocBegin { pointer: 0xa0 };
    assert_eq!(
        target.sent(),
        [begin, Sent::realloc(Outcome::Freed, 0xa0, 0, 0)]
    );
}

#[test]
fn a_signal_handler_inside_a_call_is_recorded_on_its_own() {
    let mut target = Target::new();
    target.enter(0x8000, APPLICATION, Call::realloc(0xa0, 9));
    // The handler's frames lie below the signal frame; its calls come from the application or,
    // through strdup for instance, from the allocator's library.
    target.enter(0x7000, APPLICATION, Call::malloc(5));
    target.leave(0x7000, 0xb0);
    target.enter(0x7000, INSIDE_ALLOCATOR, Call::malloc(6));
    target.leave(0x7000, 0xc0);
    target.free(0x7000, INSIDE_ALLOCATOR, 0xb0);
    target.leave(0x8000, 0xd0);
    assert_eq!(
        target.sent(),
        [
            Sent::ReallocBegin { pointer: 0xa0 },
            Sent::Allocation {
                pointer: 0xb0,
                size: 5
            },
            Sent::Allocation {
                pointer: 0xc0,
                size: 6
            },
            Sent::Free { pointer: 0xb0 },
            Sent::realloc(Outcome::Moved, 0xa0, 0xd0, 9),
        ]
    );
}

#[test]
fn malloc_contains_no_calls_so_a_handler_just_below_it_is_recorded() {
    let mut target = Target::new();
    target.enter(0x1000, APPLICATION, Call::malloc(1));
    target.enter(0x0fc0, INSIDE_ALLOCATOR, Call::malloc(2));
    target.leave(0x0fc0, 0xa0);
    target.leave(0x1000, 0xb0);
    assert_eq!(target.sent().len(), 2);
}

#[test]
fn a_call_left_by_longjmp_is_replaced_and_counted() {
    let mut target = Target::new();
    target.enter(0x1000, APPLICATION, Call::realloc(0xa0, 9));
    target.enter(0x1000, APPLICATION, Call::realloc(0, 9));
    target.leave(0x1000, 0xb0);
    assert_eq!(target.counted(Counter::Abandoned), 1);
    assert_eq!(
        target.sent()[1],
        Sent::Allocation {
            pointer: 0xb0,
            size: 9
        }
    );
}

#[test]
fn calls_that_began_before_the_start_are_left_out() {
    let mut target = Target::new();
    target.kernel.set_phase(Control::ARMING);
    target.enter(0x1000, APPLICATION, Call::malloc(1));
    target.free(0x0f00, APPLICATION, 0xa0);
    target.kernel.set_phase(Control::RECORDING);
    target.leave(0x1000, 0xa0);
    assert_eq!(target.sent(), []);
    assert_eq!(target.counted(Counter::BeforeStart), 1);
}

#[test]
fn nothing_is_recorded_after_the_stop() {
    let mut target = Target::new();
    target.enter(0x1000, APPLICATION, Call::malloc(1));
    target.kernel.set_phase(Control::STOPPED);
    target.leave(0x1000, 0xa0);
    target.free(0x1000, APPLICATION, 0xa0);
    // Its entry probe was taken away first.
    target.leave(0x1000, 0xa0);
    assert_eq!(target.sent(), []);
    assert_eq!(target.counted(Counter::ReturnWithoutEntry), 0);
}

#[test]
fn free_of_null_is_nothing() {
    let mut target = Target::new();
    target.free(0x1000, APPLICATION, 0);
    assert_eq!(target.sent(), []);
}

#[test]
fn what_finds_no_room_is_counted_by_reason() {
    let mut target = Target::new();
    target.kernel.fill_ring(true);
    target.enter(0x1000, APPLICATION, Call::malloc(1));
    target.leave(0x1000, 0xa0);
    target.free(0x1000, APPLICATION, 0xa0);
    target.enter(0x1000, APPLICATION, Call::realloc(0xa0, 1));
    target.leave(0x1000, 0xb0);
    assert_eq!(target.counted(Counter::StackRingFull), 2);
    assert_eq!(target.counted(Counter::AllocationRingFull), 1);
    assert_eq!(target.counted(Counter::FreeRingFull), 1);
    // One call: its begin is not another one.
    assert_eq!(target.counted(Counter::ReallocRingFull), 1);
    assert_eq!(target.counted(Counter::ReallocBeginRingFull), 1);
}

#[test]
fn a_return_without_entry_is_counted() {
    let mut target = Target::new();
    target.leave(0x1000, 0xa0);
    assert_eq!(target.sent(), []);
    assert_eq!(target.counted(Counter::ReturnWithoutEntry), 1);
}

#[test]
fn operator_new_ends_at_its_ret() {
    let mut target = Target::new();
    target.enter_new(0x1000, 24);
    target.leave_at_ret(0x1000, 0xa0);
    let allocation = Sent::Allocation {
        pointer: 0xa0,
        size: 24,
    };
    assert_eq!(target.sent(), [allocation]);
    assert_eq!(target.counted(Counter::Abandoned), 0);
}

#[test]
fn a_ret_of_shared_code_ends_operator_new_alone() {
    let mut target = Target::new();
    target.leave_at_ret(0x1000, 0xa0);
    target.enter(0x1000, APPLICATION, Call::malloc(24));
    target.leave_at_ret(0x0f00, 0xa0);
    target.leave_at_ret(0x1000, 0xa0);
    assert_eq!(target.sent(), []);
    target.leave(0x1000, 0xa0);
    assert_eq!(target.sent().len(), 1);
    assert_eq!(target.counted(Counter::ReturnWithoutEntry), 0);
}

#[test]
fn calls_inside_operator_new_are_allocations_of_their_own() {
    let mut target = Target::new();
    target.enter_new(0x1000, 24);
    // The exception object, or what a new-handler allocates.
    target.enter(0x0fc0, INSIDE_ALLOCATOR, Call::malloc(136));
    target.leave(0x0fc0, 0xb0);
    target.free(0x0fc0, INSIDE_ALLOCATOR, 0xb0);
    target.leave_at_ret(0x1000, 0xa0);
    assert_eq!(target.sent().len(), 3);
    assert_eq!(target.counted(Counter::Nested), 0);
}

#[test]
fn exceptions_out_of_operator_new_cost_no_later_call() {
    let mut target = Target::new();
    for slot in (0x1000..0x1400).step_by(0x80) {
        target.enter_new(slot, 24);
        // Unwound; what stood there is overwritten by other calls.
        target.kernel.write(slot, 0);
    }
    // As deep as calls can be inside each other.
    let slots = [0x0f00, 0x0e00, 0x0d00];
    target.enter(slots[0], APPLICATION, Call::malloc(1));
    target.enter_new(slots[1], 2);
    target.enter(slots[2], APPLICATION, Call::malloc(3));
    target.leave(slots[2], 0xc0);
    target.leave_at_ret(slots[1], 0xb0);
    target.leave(slots[0], 0xa0);
    assert_eq!(target.sent().len(), 3);
    assert_eq!(target.counted(Counter::ReturnWithoutEntry), 0);
    assert!(target.counted(Counter::Abandoned) > 0);
}

#[test]
fn live_calls_of_operator_new_are_not_forgotten() {
    let mut target = Target::new();
    let slots = [0x1000, 0x0f00, 0x0e00, 0x0d00];
    for slot in slots {
        target.enter_new(slot, 8);
    }
    for slot in slots.into_iter().rev() {
        target.leave_at_ret(slot, slot);
    }
    assert_eq!(target.sent().len(), slots.len());
    assert_eq!(target.counted(Counter::Abandoned), 0);
}

#[test]
fn what_is_left_out_still_ends_older_blocks() {
    let mut target = Target::new();
    target.kernel.set(|control| control.min_size = 100);
    target.enter(0x1000, APPLICATION, Call::malloc(99));
    target.leave(0x1000, 0xa0);
    target.enter(0x1000, APPLICATION, Call::realloc(0xb0, 50));
    target.leave(0x1000, 0xc0);
    target.enter(0x1000, APPLICATION, Call::realloc(0xd0, 50));
    target.leave(0x1000, 0);
    target.free(0x1000, APPLICATION, 0xe0);
    assert_eq!(
        target.sent(),
        [
            Sent::ReallocBegin { pointer: 0xb0 },
            Sent::realloc(Outcome::Freed, 0xb0, 0xc0, 50),
            Sent::ReallocBegin { pointer: 0xd0 },
            Sent::realloc(Outcome::Failed, 0xd0, 0, 50),
            Sent::Free { pointer: 0xe0 },
        ]
    );
    assert_eq!(target.counted(Counter::ReturnWithoutEntry), 0);
}

#[test]
fn a_pause_records_ends_alone() {
    let mut target = Target::new();
    target.kernel.set_phase(Control::PAUSED);
    target.enter(0x1000, APPLICATION, Call::malloc(24));
    target.leave(0x1000, 0xa0);
    target.free(0x1000, APPLICATION, 0xb0);
    assert_eq!(target.sent(), [Sent::Free { pointer: 0xb0 }]);
}

/// A point inside a function, at which size and result are known.
fn pass(target: &mut Target, sp: u64, size: u64, result: u64) {
    target.kernel.write(sp, APPLICATION);
    let registers = Registers {
        ip: ALLOCATOR,
        sp,
        ..Registers::default()
    };
    let call = Call::operator_new(size);
    enter(
        &target.kernel,
        &mut target.thread,
        &registers,
        &call,
        Result {
            is_known: true,
            value: result,
        },
    );
}

#[test]
fn a_point_inside_records_the_whole_call() {
    let mut target = Target::new();
    pass(&mut target, 0x1000, 24, 0xa0);
    let whole = Sent::Allocation {
        pointer: 0xa0,
        size: 24,
    };
    assert_eq!(target.sent(), [whole]);
    pass(&mut target, 0x1000, 24, 0);
    pass(&mut target, 0x1000, 24, 0xa8);
    assert_eq!(target.sent(), [], "null, and what is no block");
    assert_eq!(target.counted(Counter::Failed), 2);
}

#[test]
fn a_point_inside_is_nested_where_the_allocator_calls() {
    let mut target = Target::new();
    target.enter(0x1000, APPLICATION, Call::realloc(0, 24));
    target.kernel.write(0xf80, INSIDE_ALLOCATOR);
    let registers = Registers {
        ip: ALLOCATOR,
        sp: 0xf80,
        ..Registers::default()
    };
    let call = Call::operator_new(24);
    enter(
        &target.kernel,
        &mut target.thread,
        &registers,
        &call,
        Result {
            is_known: true,
            value: 0xa0,
        },
    );
    assert_eq!(target.sent(), []);
    target.leave(0x1000, 0xa0);
    assert_eq!(target.sent().len(), 1);
    // Nothing waits for a return that is not probed.
    target.leave(0x1000, 0xa0);
    assert_eq!(target.counted(Counter::ReturnWithoutEntry), 1);
}

#[test]
fn what_a_point_has_begun_another_one_ends_only_for_the_same_caller() {
    let mut target = Target::new();
    target.enter_new(0x1000, 24);
    // The call has failed unseen; another function that shares its code is called from elsewhere.
    target.kernel.write(0x1000, INSIDE_ALLOCATOR);
    target.leave_at_ret(0x1000, 0xa0);
    assert_eq!(target.sent(), []);
    target.enter_new(0x1000, 24);
    target.leave_at_ret(0x1000, 0xa0);
    assert_eq!(target.sent().len(), 1);
}

#[test]
fn a_whole_call_takes_what_was_begun_along() {
    let mut target = Target::new();
    target.enter_new(0x1000, 24);
    pass(&mut target, 0x1000, 24, 0xa0);
    assert_eq!(target.sent().len(), 1);
    target.leave_at_ret(0x1000, 0xa0);
    assert_eq!(target.sent(), []);
}
