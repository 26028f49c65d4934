//! What a probe does at each hit, independent of BPF.
//!
//! The logic is written over the small [`Kernel`] trait and over the state of one thread
//! ([`thread::Thread`]), so that the same source runs inside the kernel and in tests on the host.
//! This library must not know how a probe is attached, what a map is, or how the recorder uses
//! the records. It never allocates, recurses or loops without a constant bound: the BPF verifier
//! would refuse it.
//!
//! Invariants: a call is recorded once however many probes it passes; a stack is that of the entry,
//! where the registers are exactly known; a stack record precedes the first record that names it;
//! whatever cannot be recorded is counted under its reason.

#![no_std]
#![forbid(unsafe_code)]

pub mod call;
pub mod kernel;
pub mod probe;
pub mod selection;
pub mod stack;
pub mod thread;
pub mod unwind;

#[cfg(test)]
mod fake;

pub use kernel::{Kernel, Registers};
