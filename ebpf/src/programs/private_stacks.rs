//! Keeps the kernel from giving the programs stacks of their own, one a CPU.
//!
//! From Linux 6.13 a function of a tracing program with a frame of 64 bytes or more has it not on the
//! thread's kernel stack, but in memory of the CPU (`bpf_enable_priv_stack` of `kernel/bpf/verifier.c`). That
//! rests on no program being run twice at once on a CPU, which is checked for kprobes and
//! trampolines, but not for uprobes: their programs can be preempted, or sleep, and another thread
//! on that CPU then runs the same program and writes over the frames of the first. What the verifier has
//! proved no longer holds, and the kernel faults: seen on 7.2, which preempts itself.
//!
//! A program with a tail call in any of its functions is exempt (`check_max_stack_depth`, Linux 6.13 to
//! 7.2). Tail calls are looked for before anything is known of which code is alive
//! (`check_subprogs`), so one that is never executed will do.

/// Has no effect at run time; to be inlined into each program that is attached to user space.
#[inline(always)]
pub(crate) fn refuse() {
    // SAFETY: the call (of helper 12, `bpf_tail_call`) is jumped over. The verifier sees that too,
    // never checks its arguments, and removes it.
    unsafe {
        core::arch::asm!(
            "r0 = 0",
            "if r0 == 0 goto +1",
            "call 12",
            out("r0") _,
            options(nomem, nostack),
        );
    }
}
