//! Walks by the chain of saved frame pointers, one frame a step: where unwind tables cannot be
//! used, or on request.
//!
//! Code that was built without frame pointers is skipped or ends the stack. A frame pointer of 0
//! marks the outermost frame (System V ABI for x86-64, 3.4.1). Frames lie above each other, so
//! each saved frame pointer must be higher than the one before.

use htrace_ebpf_common::{control::MAX_FRAMES, wire::StackEnd};

use super::{FRAME_ALIGNMENT, Progress, SLOT, Walk};
use crate::kernel::Kernel;

/// Adds one frame and goes on to its caller.
#[inline(always)]
pub fn step<K: Kernel>(kernel: &K, walk: &mut Walk, frames: &mut [u64; MAX_FRAMES]) -> Progress {
    let stepped = frame(kernel, walk, frames);
    walk.after(stepped)
}

#[inline(always)]
fn frame<K: Kernel>(
    kernel: &K,
    walk: &mut Walk,
    frames: &mut [u64; MAX_FRAMES],
) -> Result<(), StackEnd> {
    walk.push(frames)?;
    let fp = walk.rbp(kernel)?;
    if fp == 0 {
        return Err(StackEnd::Complete);
    }
    if fp < walk.sp || !fp.is_multiple_of(FRAME_ALIGNMENT) {
        return Err(StackEnd::Suspect);
    }
    walk.bp = walk.read(kernel, fp)?;
    walk.pc = walk.read(kernel, fp.wrapping_add(SLOT))?;
    if walk.pc == 0 {
        return Err(StackEnd::Complete);
    }
    walk.sp = fp.wrapping_add(2 * SLOT);
    Ok(())
}
