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

    /// True if the mappings were locked, so that another look-up may find more.
    #[must_use]
    pub const fn is_locked(self) -> bool {
        self.0 == Self::last(StackEnd::Locked).0
    }

    const fn end(self) -> StackEnd {
        match StackEnd::from_byte(self.0 as u8) {
            Some(end) => end,
            None => StackEnd::Suspect,
        }
    }
}

/// How often a look-up is repeated.
const TRIES: u32 = 4;

/// Repeats a look-up while the mappings are locked. `wait` returns when they are free, or false if
/// there is no use in going on. Somebody else may lock them again, so there is a bound.
#[inline(always)]
pub fn patiently(find: impl Fn() -> Lookup, wait: impl Fn() -> bool) -> Lookup {
    for _ in 0..TRIES {
        let found = find();
        if !found.is_locked() || !wait() {
            return found;
        }
    }
    find()
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    /// Looks up patiently what is locked so many times. Returns what is found, and how often it
    /// was looked up.
    fn find_locked(times: u32, wait: bool) -> (Lookup, u32) {
        let tries = Cell::new(0);
        let find = || {
            tries.set(tries.get() + 1);
            match tries.get() <= times {
                true => Lookup::last(StackEnd::Locked),
                false => Lookup::found(Rule::END_OF_STACK),
            }
        };
        (patiently(find, || wait), tries.get())
    }

    #[test]
    fn what_is_locked_is_looked_up_again() {
        let found = Lookup::found(Rule::END_OF_STACK);
        assert_eq!(find_locked(0, true), (found, 1));
        assert_eq!(find_locked(3, true), (found, 4));
    }

    #[test]
    fn not_forever_and_not_by_who_is_killed() {
        let locked = Lookup::last(StackEnd::Locked);
        assert_eq!(find_locked(u32::MAX, true), (locked, TRIES + 1));
        assert_eq!(find_locked(1, false), (locked, 1));
    }

    #[test]
    fn other_ends_are_final() {
        for end in [StackEnd::Jit, StackEnd::NoTable, StackEnd::Gap] {
            assert!(!Lookup::last(end).is_locked());
        }
        assert!(!Lookup::refused(StackEnd::Locked).is_locked());
    }

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
