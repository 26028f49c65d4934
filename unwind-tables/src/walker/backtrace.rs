//! What goes into a walk and what comes out of it.
//!
//! "Minus one" for return addresses happens in [`Frame::lookup_address`] and nowhere else.

use crate::encoding::Rule;
use crate::table::Coverage;

/// The registers that unwinding needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// rip
    pub ip: u64,
    /// rsp
    pub sp: u64,
    /// rbp
    pub bp: u64,
}

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At a function's first instruction: the return address is at rsp, and no table is needed to
    /// know it. The first frame is the caller; `ip` is not used.
    FunctionEntry(Registers),
    /// Anywhere. The first frame is `ip` itself.
    Anywhere(Registers),
}

/// One frame of a backtrace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Code that was interrupted by a signal, or where unwinding began: the next instruction.
    Interrupted(u64),
    /// A return address: the instruction after a call.
    Return(u64),
}

impl Frame {
    /// The instruction pointer or return address.
    pub const fn address(self) -> u64 {
        match self {
            Self::Interrupted(address) | Self::Return(address) => address,
        }
    }

    /// The address by which to look up rules, functions and lines. A call may be the last
    /// instruction of its function, so a return address is looked up one byte earlier.
    pub const fn lookup_address(self) -> u64 {
        match self {
            Self::Interrupted(address) => address,
            Self::Return(address) => address.wrapping_sub(1),
        }
    }
}

/// What a look-up yields where there is a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The rule at the address.
    pub rule: Rule,
    /// For which addresses the table that it comes from answers rightly.
    pub coverage: Coverage,
}

/// Why a backtrace ends where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The last frame is the outermost one.
    Complete,
    /// There are more frames than the limit.
    Depth,
    /// The last frame is in code for which there is no table.
    NoTable,
    /// The last frame is in code that its module's unwind data does not cover.
    Gap,
    /// The last frame is in code whose unwind rule no table can express, or was interrupted where
    /// its table answers for call sites only.
    Unsupported,
    /// Memory at this address could not be read.
    Unreadable(u64),
    /// A check failed that does not rely on unwind data.
    Suspect(Suspicion),
}

/// What is wrong with the frame that would come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// Its CFA does not lie above the stack pointer of the frame below.
    NotAbove,
    /// Its CFA is not a multiple of 16.
    Misaligned,
    /// Its return address does not follow a call instruction.
    NotAfterCall,
}

/// Frames from the innermost outwards, and why there are no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backtrace {
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// Why the last one is the last.
    pub end: EndReason,
}
