//! Unwinds a stack by tables, in plain Rust: what the unwinder in the kernel must do, written to
//! be read and tested.
//!
//! Knows rules and addresses of a running process, not ELF or maps: the caller translates
//! addresses to tables ("lookup") and reads memory. Invariants:
//! - every backtrace ends with a reason, and only [`EndReason::Complete`] means that it is whole;
//! - a frame that fails a check that is independent of unwind data is left out, because a wrong
//!   stack is worse than a short one.

mod backtrace;

pub use self::backtrace::{Backtrace, EndReason, Found, Frame, Registers, Start, Suspicion};

use crate::call_pattern::may_end_call;
use crate::encoding::{Rule, RuleKind, SIGNAL_FRAME_RBP, SIGNAL_FRAME_RIP, SIGNAL_FRAME_RSP};
use crate::table::Coverage;

/// The System V ABI for x86-64 (3.2.2) has rsp a multiple of this before each call, and the CFA
/// is that value.
const FRAME_ALIGNMENT: u64 = 16;

/// Functions that are called from one file alone may do with this: code of the vdso, which the
/// kernel compiles with `-mpreferred-stack-boundary=3`, and assembly. A signal tells exactly where
/// it was, so what it has interrupted need not be doubted for that.
const WORD_ALIGNMENT: u64 = 8;

/// Unwinds from `start` at most `max_frames` frames.
///
/// `lookup` gives the rule for a [`Frame::lookup_address`] in the process, `None` where there is
/// no table. `read` gives the 8 bytes of memory at an address as a little-endian number, `None`
/// where they cannot be read; it is asked for stack and, to check return addresses, for code.
pub fn unwind(
    start: Start,
    max_frames: usize,
    lookup: impl FnMut(u64) -> Option<Found>,
    read: impl FnMut(u64) -> Option<u64>,
) -> Backtrace {
    let mut walker = Walker {
        lookup,
        read,
        frames: Vec::new(),
    };
    let Err(end) = walker.walk(start, max_frames);
    Backtrace {
        frames: walker.frames,
        end,
    }
}

/// Where a frame's rbp is. It is read only when a rule needs it: most frames do not, and the slot
/// cannot change during the walk.
#[derive(Clone, Copy)]
enum Rbp {
    Value(u64),
    SavedAt(u64),
}

#[derive(Clone, Copy)]
struct State {
    frame: Frame,
    sp: u64,
    bp: Rbp,
}

struct Walker<L, R> {
    lookup: L,
    read: R,
    frames: Vec<Frame>,
}

impl<L, R> Walker<L, R>
where
    L: FnMut(u64) -> Option<Found>,
    R: FnMut(u64) -> Option<u64>,
{
    fn walk(
        &mut self,
        start: Start,
        max_frames: usize,
    ) -> Result<std::convert::Infallible, EndReason> {
        let mut state = self.first(start)?;
        loop {
            let found = (self.lookup)(state.frame.lookup_address());
            self.check_return_address(state.frame, found)?;
            if self.frames.len() == max_frames {
                return Err(EndReason::Depth);
            }
            self.frames.push(state.frame);
            let rule = usable_rule(state.frame, found)?;
            state = self.step(state, rule)?;
        }
    }

    fn first(&mut self, start: Start) -> Result<State, EndReason> {
        match start {
            Start::FunctionEntry(Registers { sp, bp, .. }) => {
                let frame = Frame::Return(self.read(sp)?);
                Ok(State {
                    frame,
                    sp: sp.wrapping_add(8),
                    bp: Rbp::Value(bp),
                })
            }
            Start::Anywhere(Registers { ip, sp, bp }) => Ok(State {
                frame: Frame::Interrupted(ip),
                sp,
                bp: Rbp::Value(bp),
            }),
        }
    }

    /// From a frame to its caller.
    fn step(&mut self, state: State, rule: Rule) -> Result<State, EndReason> {
        let State { frame, sp, bp } = state;
        let offset = rule.cfa_offset();
        match rule.kind() {
            RuleKind::Rsp => self.call_frame(state, sp.wrapping_add(offset), saved(bp, rule, sp)),
            RuleKind::Rbp => {
                let base = self.rbp(bp)?;
                self.call_frame(state, base.wrapping_add(offset), saved(bp, rule, base))
            }
            RuleKind::Plt => {
                let pushed = frame.address() % 16 >= u64::from(rule.plt_threshold());
                self.call_frame(state, sp.wrapping_add(8 + 8 * u64::from(pushed)), bp)
            }
            RuleKind::Drap => {
                let base = self.rbp(bp)?;
                let cfa = self.read(base.wrapping_sub(offset))?;
                self.call_frame(state, cfa, Rbp::SavedAt(base))
            }
            RuleKind::SignalFrame => self.interrupted_frame(sp),
            RuleKind::EndOfStack => Err(EndReason::Complete),
            RuleKind::Gap => Err(EndReason::Gap),
            RuleKind::Unsupported => Err(EndReason::Unsupported),
        }
    }

    /// The caller of the frame whose CFA is given.
    fn call_frame(&mut self, callee: State, cfa: u64, bp: Rbp) -> Result<State, EndReason> {
        if cfa <= callee.sp {
            return Err(EndReason::Suspect(Suspicion::NotAbove));
        }
        let alignment = match callee.frame {
            Frame::Return(_) => FRAME_ALIGNMENT,
            Frame::Interrupted(_) => WORD_ALIGNMENT,
        };
        if !cfa.is_multiple_of(alignment) {
            return Err(EndReason::Suspect(Suspicion::Misaligned));
        }
        let frame = Frame::Return(self.read(cfa.wrapping_sub(8))?);
        Ok(State { frame, sp: cfa, bp })
    }

    /// The code that a signal interrupted. Its stack may be another one, so nothing is known about
    /// where its stack pointer lies.
    fn interrupted_frame(&mut self, sp: u64) -> Result<State, EndReason> {
        let frame = Frame::Interrupted(self.read(sp.wrapping_add(SIGNAL_FRAME_RIP))?);
        let bp = Rbp::SavedAt(sp.wrapping_add(SIGNAL_FRAME_RBP));
        Ok(State {
            frame,
            sp: self.read(sp.wrapping_add(SIGNAL_FRAME_RSP))?,
            bp,
        })
    }

    /// Return addresses follow calls, except for those that the kernel or `makecontext` made.
    fn check_return_address(
        &mut self,
        frame: Frame,
        found: Option<Found>,
    ) -> Result<(), EndReason> {
        let planted = found.is_some_and(|found| {
            matches!(
                found.rule.kind(),
                RuleKind::SignalFrame | RuleKind::EndOfStack
            )
        });
        match frame {
            Frame::Return(address) if !planted => {
                if may_end_call(self.read(address.wrapping_sub(8))?) {
                    Ok(())
                } else {
                    Err(EndReason::Suspect(Suspicion::NotAfterCall))
                }
            }
            _ => Ok(()),
        }
    }

    fn rbp(&mut self, bp: Rbp) -> Result<u64, EndReason> {
        match bp {
            Rbp::Value(value) => Ok(value),
            Rbp::SavedAt(address) => self.read(address),
        }
    }

    fn read(&mut self, address: u64) -> Result<u64, EndReason> {
        (self.read)(address).ok_or(EndReason::Unreadable(address))
    }
}

/// Where the caller's rbp is, given the base register's value that the rule's offset counts from.
fn saved(bp: Rbp, rule: Rule, base: u64) -> Rbp {
    match rule.rbp_below_cfa() {
        None => bp,
        Some(below) => Rbp::SavedAt(base.wrapping_add(rule.cfa_offset()).wrapping_sub(below)),
    }
}

fn usable_rule(frame: Frame, found: Option<Found>) -> Result<Rule, EndReason> {
    match (found, frame) {
        (None, _) => Err(EndReason::NoTable),
        (
            Some(Found {
                coverage: Coverage::CallSites,
                ..
            }),
            Frame::Interrupted(_),
        ) => Err(EndReason::Unsupported),
        (Some(found), _) => Ok(found.rule),
    }
}
