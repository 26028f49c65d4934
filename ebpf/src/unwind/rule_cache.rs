//! Remembers the rules of addresses: an array of words, each an address and its rule.
//!
//! Address and rule are in the same word, so that they are always read and written together, by
//! however many threads. The address is spread by a bijection of 47 bits; 16 bits of the result
//! are the index, the other 31 stand in the word, so that no other address is ever taken for it.

use htrace_ebpf_common::{counters::Counter, encoding::Rule};

use super::lookup::Lookup;
use crate::kernel::Kernel;

/// Words in the cache.
pub const CACHE_WORDS: u32 = 1 << INDEX_BITS;

const INDEX_BITS: u32 = 16;
/// User addresses on x86-64 with four levels of page tables.
const ADDRESS_BITS: u32 = 47;
const TAG_BITS: u32 = ADDRESS_BITS - INDEX_BITS;
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Set in words that hold a rule; empty words are 0.
const IN_USE: u64 = 1 << TAG_BITS;

/// Where an address's rule is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    index: u32,
    tag: u64,
}

impl Place {
    /// `None` for addresses that do not fit.
    const fn of(address: u64) -> Option<Self> {
        if address >> ADDRESS_BITS != 0 {
            return None;
        }
        let spread = address.wrapping_mul(ODD) & ((1 << ADDRESS_BITS) - 1);
        Some(Self {
            index: (spread >> TAG_BITS) as u32,
            tag: spread & ((1 << TAG_BITS) - 1) | IN_USE,
        })
    }

    const fn rule(self, word: u64) -> Option<Rule> {
        if word >> 32 == self.tag {
            Some(Rule::from_bits(word as u32))
        } else {
            None
        }
    }

    const fn word(self, rule: Rule) -> u64 {
        self.tag << 32 | rule.bits() as u64
    }
}

/// Looks up the rule for an address. What is remembered was checked to be a return address, so
/// the address of an interrupted instruction is looked up anew.
#[inline(always)]
pub fn look_up<K: Kernel>(kernel: &K, address: u64, interrupted: bool) -> Lookup {
    let place = match Place::of(address) {
        Some(place) if !interrupted => place,
        _ => return kernel.find_rule(address, interrupted),
    };
    if let Some(rule) = place.rule(kernel.remembered_word(place.index)) {
        return Lookup::found(rule);
    }
    kernel.count(Counter::RuleMisses);
    let found = kernel.find_rule(address, false);
    if let Ok(rule) = found.rule() {
        kernel.remember_word(place.index, place.word(rule));
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_word_is_nobodys() {
        let place = Place::of(0).unwrap();
        assert_eq!(place.rule(0), None);
        assert_eq!(place.rule(place.word(Rule::GAP)), Some(Rule::GAP));
        assert_eq!(Place::of(1 << 47), None);
        assert_eq!(Place::of(u64::MAX), None);
    }

    proptest! {
        #[test]
        fn no_two_addresses_share_a_place(a in 0..1_u64 << 47, distance in 1..1_u64 << 20) {
            let b = (a + distance) % (1 << 47);
            prop_assert_ne!(Place::of(a), Place::of(b));
            let place = Place::of(a).unwrap();
            prop_assert!(place.index < CACHE_WORDS);
            prop_assert!(place.tag >> 32 == 0);
        }
    }
}
