//! What the look-up of a frame's address yields, in one word: a BPF function returns no more.

use htrace_ebpf_common::{encoding::Rule, wire::StackEnd};

const HAS_RULE: u64 = 1 << 32;
const IS_LAST: u64 = 2 << 32;
const IS_REFUSED: u64 = 3 << 32;

/// A rule, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Lookup(u64);

impl Lookup {
    /// How to find the caller.
    #[must_use]
    pub const fn found(rule: Rule) -> Self {
        Self(HAS_RULE | rule.bits() as u64)
    }

    /// The frame is the last one that can be found.
    #[must_use]
    pub const fn last(end: StackEnd) -> Self {
        Self(IS_LAST | end as u64)
    }

    /// The address cannot be a frame's.
    #[must_use]
    pub const fn refused(end: StackEnd) -> Self {
        Self(IS_REFUSED | end as u64)
    }

    /// The value with these bits.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// True if there is a rule.
    #[must_use]
    pub const fn has_rule(self) -> bool {
        self.0 >> 32 == HAS_RULE >> 32
    }

    /// An error if the address cannot be a frame's.
    #[inline(always)]
    pub const fn is_frame(self) -> Result<(), StackEnd> {
        if self.0 >> 32 == IS_REFUSED >> 32 {
            return Err(self.end());
        }
        Ok(())
    }

    /// The rule, or why the stack ends here.
    #[inline(always)]
    pub const fn rule(self) -> Result<Rule, StackEnd> {
        if !self.has_rule() {
            return Err(self.end());
        }
        Ok(Rule::from_bits(self.0 as u32))
    }

    const fn end(self) -> StackEnd {
        match StackEnd::from_byte(self.0 as u8) {
            Some(end) => end,
            None => StackEnd::Suspect,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_is_told_from_the_others() {
        let rule = Rule::from_bits(u32::MAX);
        let found = Lookup::found(rule);
        assert_eq!((found.rule(), found.is_frame()), (Ok(rule), Ok(())));
        let last = Lookup::last(StackEnd::Jit);
        assert_eq!((last.rule(), last.is_frame()), (Err(StackEnd::Jit), Ok(())));
        let refused = Lookup::refused(StackEnd::Suspect);
        assert_eq!(refused.is_frame(), Err(StackEnd::Suspect));
        assert!(!refused.has_rule());
        assert_eq!(Lookup::from_bits(found.bits()), found);
    }
}
