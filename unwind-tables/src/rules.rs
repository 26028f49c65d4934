//! Maps one row of evaluated call frame information to a [`Rule`].
//!
//! Knows DWARF register rules and x86-64, not ELF or tables. Only what a rule expresses exactly
//! becomes one; everything else is [`Rule::UNSUPPORTED`]. Nothing is guessed: "no rule for the
//! return address" is not "undefined", and only the latter ends a stack.

use gimli::{
    CfaRule, EndianSlice, LittleEndian, Register, RegisterRule, UnwindExpression, UnwindSection,
    UnwindTableRow, X86_64,
};

use crate::encoding::{Rule, SIGNAL_FRAME_RBP, SIGNAL_FRAME_RIP, SIGNAL_FRAME_RSP};

pub(crate) type Slice<'data> = EndianSlice<'data, LittleEndian>;

/// `DW_OP_breg6`: rbp plus an offset.
const BREG_RBP: u8 = 0x76;
/// `DW_OP_breg7`: rsp plus an offset.
const BREG_RSP: u8 = 0x77;
const DEREF: u8 = 0x06;
/// `DW_OP_lit0`; the literals up to 15 follow.
const LIT0: u8 = 0x30;

/// The rule for `row`; `trampoline` is whether the augmentation marks a signal frame ('S').
pub(crate) fn rule_of<'data, S>(row: &UnwindTableRow<usize>, section: &S, trampoline: bool) -> Rule
where
    S: UnwindSection<Slice<'data>>,
{
    let exact = if trampoline {
        signal_frame(row, section)
    } else {
        ordinary_frame(row, section)
    };
    exact.unwrap_or(Rule::UNSUPPORTED)
}

fn ordinary_frame<'data, S>(row: &UnwindTableRow<usize>, section: &S) -> Option<Rule>
where
    S: UnwindSection<Slice<'data>>,
{
    match row.register(X86_64::RA)? {
        RegisterRule::Undefined => return Some(Rule::END_OF_STACK),
        RegisterRule::Offset(-8) => {}
        _ => return None,
    }
    if !restores_rsp_to_cfa(row) {
        return None;
    }
    let saved_rbp = row.register(X86_64::RBP);
    match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            let slot = rbp_slot(saved_rbp.as_ref())?;
            register_rule(*register, u64::try_from(*offset).ok()?, slot)
        }
        CfaRule::Expression(expression) => {
            let cfa = bytes_of(*expression, section)?;
            match plt_threshold(cfa) {
                Some(threshold) if rbp_slot(saved_rbp.as_ref()) == Some(0) => Rule::plt(threshold),
                Some(_) => None,
                None => drap(cfa, &saved_rbp?, section),
            }
        }
    }
}

/// Without a rule of its own, rsp becomes the CFA; any other rule for it is out of reach.
fn restores_rsp_to_cfa(row: &UnwindTableRow<usize>) -> bool {
    matches!(
        row.register(X86_64::RSP),
        None | Some(RegisterRule::ValOffset(0))
    )
}

fn register_rule(register: Register, offset: u64, slot: u8) -> Option<Rule> {
    match register {
        X86_64::RSP => Rule::rsp(offset, slot),
        X86_64::RBP => Rule::rbp(offset, slot),
        _ => None,
    }
}

/// Which slot below the return address holds the caller's rbp; 0 when it is still in rbp.
fn rbp_slot(rule: Option<&RegisterRule<usize>>) -> Option<u8> {
    match rule {
        None | Some(RegisterRule::SameValue) => Some(0),
        Some(RegisterRule::Offset(offset)) => {
            let below_return_address = offset.checked_add(8)?.checked_neg()?;
            if below_return_address <= 0 || below_return_address % 8 != 0 {
                return None;
            }
            u8::try_from(below_return_address / 8).ok()
        }
        Some(_) => None,
    }
}

/// GNU ld's expression for `.plt`: `rsp + 8 + ((rip & 15) >= n) * 8`.
fn plt_threshold(expression: &[u8]) -> Option<u8> {
    // breg7 8, breg16 0, lit15, and, lit<n>, ge, lit3, shl, plus
    let [
        BREG_RSP,
        8,
        0x80,
        0,
        0x3f,
        0x1a,
        literal,
        0x2a,
        0x33,
        0x24,
        0x22,
    ] = *expression
    else {
        return None;
    };
    literal
        .checked_sub(LIT0)
        .filter(|threshold| *threshold < 16)
}

/// GCC's realigned frames: CFA = *(rbp − n), and the caller's rbp lies where rbp points to.
fn drap<'data, S>(cfa: &[u8], saved_rbp: &RegisterRule<usize>, section: &S) -> Option<Rule>
where
    S: UnwindSection<Slice<'data>>,
{
    let RegisterRule::Expression(rbp) = saved_rbp else {
        return None;
    };
    if base_and_offset(bytes_of(*rbp, section)?, BREG_RBP)? != 0 {
        return None;
    }
    let offset = base_and_offset(cfa.strip_suffix(&[DEREF])?, BREG_RBP)?;
    Rule::drap(u64::try_from(offset.checked_neg()?).ok()?)
}

/// The frame that Linux pushes for a signal handler, as glibc describes it for `__restore_rt`:
/// each register is saved at its place in `struct ucontext`, and the CFA is the saved rsp.
fn signal_frame<'data, S>(row: &UnwindTableRow<usize>, section: &S) -> Option<Rule>
where
    S: UnwindSection<Slice<'data>>,
{
    let saved_at = |register, distance: u64| {
        let Some(RegisterRule::Expression(place)) = row.register(register) else {
            return false;
        };
        let place = bytes_of(place, section).and_then(|place| base_and_offset(place, BREG_RSP));
        place.and_then(|place| u64::try_from(place).ok()) == Some(distance)
    };
    let CfaRule::Expression(cfa) = row.cfa() else {
        return None;
    };
    let cfa = base_and_offset(bytes_of(*cfa, section)?.strip_suffix(&[DEREF])?, BREG_RSP)?;
    let matches = u64::try_from(cfa) == Ok(SIGNAL_FRAME_RSP)
        && saved_at(X86_64::RA, SIGNAL_FRAME_RIP)
        && saved_at(X86_64::RBP, SIGNAL_FRAME_RBP)
        && (restores_rsp_to_cfa(row) || saved_at(X86_64::RSP, SIGNAL_FRAME_RSP));
    matches.then_some(Rule::SIGNAL_FRAME)
}

fn bytes_of<'data, S>(expression: UnwindExpression<usize>, section: &S) -> Option<&'data [u8]>
where
    S: UnwindSection<Slice<'data>>,
{
    expression
        .get(section)
        .ok()
        .map(|expression| expression.0.slice())
}

/// The offset of an expression that is one "base register plus offset" operation.
fn base_and_offset(expression: &[u8], operation: u8) -> Option<i64> {
    let (first, operand) = expression.split_first()?;
    if *first != operation {
        return None;
    }
    let mut operand = Slice::new(operand, LittleEndian);
    let offset = gimli::Reader::read_sleb128(&mut operand).ok()?;
    operand.is_empty().then_some(offset)
}
