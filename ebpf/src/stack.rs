//! Takes the stack of a call on entry, and sends it once.

use htrace_ebpf_common::{counters::Counter, wire::Kind};

use crate::{kernel::Kernel, thread::Thread};

/// Walks the stack from where the thread's walk has begun, sends it if it is new, and returns its
/// id; 0 if it could not be sent.
#[inline(always)]
pub fn capture<K: Kernel>(kernel: &K, thread: &mut Thread) -> u64 {
    kernel.walk(thread);
    thread.walk.finish();
    let id = thread.walk.stack_id();
    if thread.has_sent_stack(id) {
        return id;
    }
    if kernel.stack_is_known(id) {
        thread.note_sent_stack(id);
        return id;
    }
    thread.stack.header = thread.header(kernel, Kind::Stack, thread.walk.end());
    thread.stack.id = id;
    if !kernel.emit_stack(&thread.stack, thread.walk.frames()) {
        kernel.count(Counter::StackRingFull);
        return 0;
    }
    kernel.stack_became_known(id);
    thread.note_sent_stack(id);
    id
}

#[cfg(test)]
mod tests;
