//! The bit layout of a table row, shared by the table builder and the program that unwinds inside
//! the kernel.
//!
//! A [`Row`] is one `u64`, so that a binary search takes one load and one comparison a step:
//!
//! ```text
//! bit  63            32 31                     7 6        3 2      0
//!     +----------------+------------------------+----------+--------+
//!     | rel_pc         | cfa_offset / 8         | rbp_slot | kind   |
//!     +----------------+------------------------+----------+--------+
//!                      |<---------------- Rule, u32 ---------------->|
//! ```
//!
//! This file knows neither ELF nor DWARF nor maps. It needs only `core`, allocates nothing, cannot
//! panic, and depends on nothing else in the crate.

/// Bits of a rule that hold its kind.
const KIND_BITS: u32 = 3;
/// Bits of a rule that hold where rbp is saved.
const SLOT_BITS: u32 = 4;
/// Position of the offset field in a rule.
const OFFSET_SHIFT: u32 = KIND_BITS + SLOT_BITS;
/// Stack slots are 8 bytes wide; every offset counts them.
const SLOT_BYTES: u64 = 8;
/// The number of bytes that one entry of a table's block index covers (a power of two).
pub const BLOCK_BYTES: u64 = 256;
/// log2 of [`BLOCK_BYTES`].
pub const BLOCK_SHIFT: u32 = BLOCK_BYTES.trailing_zeros();
/// The largest number that [`Rule::rbp_slot`] can hold.
pub const MAX_RBP_SLOT: u8 = (1 << SLOT_BITS) - 1;
/// The largest offset from a register, in bytes, that a rule can hold (256 MiB less one slot).
pub const MAX_CFA_OFFSET: u64 = ((1 << (32 - OFFSET_SHIFT)) - 1) * SLOT_BYTES;
/// Distance from the stack pointer in a signal frame (at `__restore_rt`) to the saved rbp: x86-64
/// `struct ucontext`, `uc_mcontext.gregs[REG_RBP]`.
pub const SIGNAL_FRAME_RBP: u64 = 120;
/// As [`SIGNAL_FRAME_RBP`], for rsp.
pub const SIGNAL_FRAME_RSP: u64 = 160;
/// As [`SIGNAL_FRAME_RBP`], for rip.
pub const SIGNAL_FRAME_RIP: u64 = 168;

/// How the caller's frame follows from the registers at a program counter.
///
/// The CFA (canonical frame address) is the caller's rsp after the call returned; the return
/// address lies at CFA − 8 unless the kind says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RuleKind {
    /// CFA = rsp + offset.
    Rsp = 0,
    /// CFA = rbp + offset.
    Rbp = 1,
    /// CFA = rsp + 8, plus 8 when the low four bits of the program counter are at least
    /// [`Rule::plt_threshold`]: an entry of a procedure linkage table, after its push.
    Plt = 2,
    /// CFA = *(rbp − offset) and the caller's rbp = *rbp: a function that realigns its stack
    /// (GCC's "dynamic realign argument pointer").
    Drap = 3,
    /// The return address is declared undefined: the outermost frame; the stack is complete.
    EndOfStack = 4,
    /// No unwind data covers this address.
    Gap = 5,
    /// Unwind data exists but says something that no kind here can express exactly.
    Unsupported = 6,
    /// The frame that the kernel pushed for a signal handler: rip, rsp and rbp of the interrupted
    /// code lie at fixed distances from rsp ([`SIGNAL_FRAME_RIP`] and its siblings).
    SignalFrame = 7,
}

/// A [`RuleKind`] with its operands, in 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Rule(u32);

impl Rule {
    /// The rule of [`RuleKind::EndOfStack`].
    pub const END_OF_STACK: Self = Self::bare(RuleKind::EndOfStack);
    /// The rule of [`RuleKind::Gap`].
    pub const GAP: Self = Self::bare(RuleKind::Gap);
    /// The rule of [`RuleKind::Unsupported`].
    pub const UNSUPPORTED: Self = Self::bare(RuleKind::Unsupported);
    /// The rule of [`RuleKind::SignalFrame`].
    pub const SIGNAL_FRAME: Self = Self::bare(RuleKind::SignalFrame);

    const fn bare(kind: RuleKind) -> Self {
        Self(kind as u32)
    }

    /// CFA = rsp + `cfa_offset`, with rbp saved as [`Rule::rbp_slot`] tells.
    ///
    /// `None` when the offset is no multiple of 8 or an operand is too large.
    pub const fn rsp(cfa_offset: u64, rbp_slot: u8) -> Option<Self> {
        Self::with_operands(RuleKind::Rsp, cfa_offset, rbp_slot)
    }

    /// CFA = rbp + `cfa_offset`; otherwise as [`Rule::rsp`].
    pub const fn rbp(cfa_offset: u64, rbp_slot: u8) -> Option<Self> {
        Self::with_operands(RuleKind::Rbp, cfa_offset, rbp_slot)
    }

    /// CFA = *(rbp − `distance`), caller's rbp = *rbp; `None` as for [`Rule::rsp`].
    pub const fn drap(distance: u64) -> Option<Self> {
        Self::with_operands(RuleKind::Drap, distance, 0)
    }

    /// The rule of a procedure linkage table whose entries have pushed a word from offset
    /// `threshold` on; `None` when that is not below 16.
    pub const fn plt(threshold: u8) -> Option<Self> {
        if threshold >= 16 {
            return None;
        }
        Self::with_operands(RuleKind::Plt, threshold as u64 * SLOT_BYTES, 0)
    }

    const fn with_operands(kind: RuleKind, offset: u64, rbp_slot: u8) -> Option<Self> {
        if !offset.is_multiple_of(SLOT_BYTES) || offset > MAX_CFA_OFFSET || rbp_slot > MAX_RBP_SLOT
        {
            return None;
        }
        let slots = (offset / SLOT_BYTES) as u32;
        Some(Self(
            slots << OFFSET_SHIFT | (rbp_slot as u32) << KIND_BITS | kind as u32,
        ))
    }

    /// The rule with these bits, whatever they are; see [`Rule::is_well_formed`].
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits drawn at the top of this module.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// What kind of rule this is.
    pub const fn kind(self) -> RuleKind {
        match self.0 & ((1 << KIND_BITS) - 1) {
            0 => RuleKind::Rsp,
            1 => RuleKind::Rbp,
            2 => RuleKind::Plt,
            3 => RuleKind::Drap,
            4 => RuleKind::EndOfStack,
            5 => RuleKind::Gap,
            6 => RuleKind::Unsupported,
            _ => RuleKind::SignalFrame,
        }
    }

    /// Where the caller's rbp is: 0 = still in rbp; n = saved at CFA − 8 − 8·n.
    ///
    /// Means something for [`RuleKind::Rsp`] and [`RuleKind::Rbp`] only.
    pub const fn rbp_slot(self) -> u8 {
        (self.0 >> KIND_BITS & MAX_RBP_SLOT as u32) as u8
    }

    /// The distance in bytes of the caller's saved rbp below the CFA; `None` when rbp is unchanged.
    pub const fn rbp_below_cfa(self) -> Option<u64> {
        match self.rbp_slot() {
            0 => None,
            slot => Some(SLOT_BYTES + SLOT_BYTES * slot as u64),
        }
    }

    /// The offset from the base register in bytes, for the kinds that have one.
    pub const fn cfa_offset(self) -> u64 {
        (self.0 >> OFFSET_SHIFT) as u64 * SLOT_BYTES
    }

    /// For [`RuleKind::Plt`]: from which offset in a 16-byte entry on the word is pushed.
    pub const fn plt_threshold(self) -> u8 {
        (self.0 >> OFFSET_SHIFT) as u8
    }

    /// Whether the constructors above could have made this rule: operands that mean nothing for
    /// the kind are zero.
    pub const fn is_well_formed(self) -> bool {
        match self.kind() {
            RuleKind::Rsp | RuleKind::Rbp => true,
            RuleKind::Drap => self.rbp_slot() == 0,
            RuleKind::Plt => self.rbp_slot() == 0 && self.0 >> OFFSET_SHIFT < 16,
            _ => self.0 >> KIND_BITS == 0,
        }
    }
}

/// A rule and the address, relative to the table's base, from which on it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Row(u64);

impl Row {
    /// A row that begins at `rel_pc`.
    pub const fn new(rel_pc: u32, rule: Rule) -> Self {
        Self((rel_pc as u64) << 32 | rule.0 as u64)
    }

    /// The row with these bits.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits drawn at the top of this module.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The first address, relative to the table's base, at which the rule holds.
    pub const fn rel_pc(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The rule.
    pub const fn rule(self) -> Rule {
        Rule(self.0 as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_keeps_its_operands() {
        let rule = Rule::rsp(MAX_CFA_OFFSET, MAX_RBP_SLOT).unwrap();
        assert_eq!(rule.kind(), RuleKind::Rsp);
        assert_eq!(rule.cfa_offset(), MAX_CFA_OFFSET);
        assert_eq!(rule.rbp_below_cfa(), Some(128));
        let rule = Rule::rbp(16, 1).unwrap();
        assert_eq!((rule.kind(), rule.cfa_offset()), (RuleKind::Rbp, 16));
        assert_eq!(rule.rbp_below_cfa(), Some(16));
        assert_eq!(Rule::rsp(8, 0).unwrap().rbp_below_cfa(), None);
        assert_eq!(Rule::drap(8).unwrap().cfa_offset(), 8);
        assert_eq!(Rule::plt(11).unwrap().plt_threshold(), 11);
    }

    #[test]
    fn what_does_not_fit_is_no_rule() {
        assert_eq!(Rule::rsp(12, 0), None);
        assert_eq!(Rule::rsp(MAX_CFA_OFFSET + 8, 0), None);
        assert_eq!(Rule::rbp(16, MAX_RBP_SLOT + 1), None);
        assert_eq!(Rule::plt(16), None);
    }

    #[test]
    fn the_layout_is_fixed() {
        let rule = Rule::rbp(16, 1).unwrap();
        assert_eq!(rule.bits(), 2 << 7 | 1 << 3 | 1);
        assert_eq!(Row::new(0x1234, rule).bits(), 0x1234_0000_0109);
        assert_eq!(Row::new(u32::MAX, Rule::GAP).rel_pc(), u32::MAX);
        assert_eq!(Row::new(7, Rule::SIGNAL_FRAME).rule(), Rule::SIGNAL_FRAME);
    }

    #[test]
    fn stray_operands_are_noticed() {
        for kind in 4..8 {
            assert!(Rule::from_bits(kind).is_well_formed());
            assert!(!Rule::from_bits(kind | 1 << 3).is_well_formed());
            assert!(!Rule::from_bits(kind | 1 << 31).is_well_formed());
        }
        assert!(!Rule::from_bits(RuleKind::Drap as u32 | 1 << 3).is_well_formed());
        assert!(!Rule::from_bits(RuleKind::Plt as u32 | 16 << 7).is_well_formed());
    }
}
