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
    let fp = own(kernel, walk)?;
    if fp == 0 {
        return Err(StackEnd::Complete);
    }
    if fp < walk.sp || !fp.is_multiple_of(FRAME_ALIGNMENT) {
        return Err(StackEnd::Suspect);
    }
    let record = walk.window.read_two(kernel, fp);
    [walk.bp, walk.pc] = record.ok_or(StackEnd::Unreadable)?;
    if walk.pc == 0 {
        return Err(StackEnd::Complete);
    }
    walk.sp = fp.wrapping_add(2 * SLOT);
    Ok(())
}

/// The frame's own frame pointer. Where it was saved is known only of the first frame, so that it is not
/// worth a look into the window: verifiers follow this code once for each step.
#[inline(always)]
fn own<K: Kernel>(kernel: &K, walk: &mut Walk) -> Result<u64, StackEnd> {
    if walk.bp_at != 0 {
        walk.bp = kernel.read_user(walk.bp_at).ok_or(StackEnd::Unreadable)?;
        walk.bp_at = 0;
    }
    Ok(walk.bp)
}
