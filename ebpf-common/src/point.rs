//! What a probe inside a function is to know of its place: the number that a link carries.
//!
//! At the entry of a function all is where the ABI says, and the number is that of the function
//! alone ([`Function::number`]). Behind it the stack pointer has moved, and size and result lie in
//! registers that the recorder has found by reading the code.

use crate::function::Function;

/// A general register by its number in instructions: rax 0, rcx 1, rdx 2, rbx 3, rsp 4, rbp 5,
/// rsi 6, rdi 7, r8 to r15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Register(u8);

impl Register {
    /// Where integer functions leave their result.
    pub const RAX: Self = Self(0);

    /// Where functions find their first three arguments: rdi, rsi, rdx (System V ABI for x86-64).
    pub const ARGUMENTS: [Self; 3] = [Self(7), Self(6), Self(2)];

    /// The register of a number; only the lowest four bits count.
    #[must_use]
    pub const fn new(number: u8) -> Self {
        Self(number % 16)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// The place of a probe in a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The function; `None` for probes that need not know.
    pub function: Option<Function>,
    /// The register that holds the requested size; `None` at the entry, where arguments are.
    pub size_in: Option<Register>,
    /// The register that holds the result; `None` before there is one.
    pub result_in: Option<Register>,
    /// How many words the stack pointer lies below the return address.
    pub stack_words: u16,
    /// How many words below the return address the caller's rbp is saved; 0 if it still is in its
    /// register.
    pub rbp_words: u16,
}

const REGISTER_BITS: u32 = 5;
const WORDS_BITS: u32 = 12;
const SIZE_AT: u32 = 8;
const RESULT_AT: u32 = SIZE_AT + REGISTER_BITS;
const STACK_AT: u32 = RESULT_AT + REGISTER_BITS;
const RBP_AT: u32 = STACK_AT + WORDS_BITS;

impl Point {
    /// Distances from the return address must be less.
    pub const MAX_WORDS: u16 = 1 << WORDS_BITS;

    /// All of it in one number. Distances that do not fit are cut: see [`Self::MAX_WORDS`].
    #[must_use]
    pub const fn bits(self) -> u64 {
        let function = match self.function {
            Some(function) => function.number(),
            None => 0,
        };
        function
            | of_register(self.size_in) << SIZE_AT
            | of_register(self.result_in) << RESULT_AT
            | of_words(self.stack_words) << STACK_AT
            | of_words(self.rbp_words) << RBP_AT
    }

    /// The place with that number.
    #[must_use]
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            function: Function::from_number(field(bits, 0, SIZE_AT)),
            size_in: to_register(field(bits, SIZE_AT, REGISTER_BITS)),
            result_in: to_register(field(bits, RESULT_AT, REGISTER_BITS)),
            stack_words: field(bits, STACK_AT, WORDS_BITS) as u16,
            rbp_words: field(bits, RBP_AT, WORDS_BITS) as u16,
        }
    }
}

const fn field(bits: u64, at: u32, length: u32) -> u64 {
    bits >> at & ((1 << length) - 1)
}

const fn of_words(words: u16) -> u64 {
    (words % Point::MAX_WORDS) as u64
}

/// 0 stands for no register.
const fn of_register(register: Option<Register>) -> u64 {
    match register {
        Some(register) => 1 + register.0 as u64,
        None => 0,
    }
}

#[inline(always)]
const fn to_register(bits: u64) -> Option<Register> {
    match bits {
        0 => None,
        bits => Some(Register::new((bits - 1) as u8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_the_number_of_its_function() {
        let entry = Point {
            function: Some(Function::Realloc),
            ..Point::default()
        };
        assert_eq!(entry.bits(), Function::Realloc.number());
        assert_eq!(Point::from_bits(entry.bits()), entry);
        assert_eq!(Point::from_bits(0), Point::default());
    }

    #[test]
    fn every_field_has_bits_of_its_own() {
        for number in 0..16 {
            let point = Point {
                function: Some(Function::OperatorNew),
                size_in: Some(Register::new(number)),
                result_in: Some(Register::new(15 - number)),
                stack_words: Point::MAX_WORDS - 1,
                rbp_words: u16::from(number),
            };
            assert_eq!(Point::from_bits(point.bits()), point);
        }
    }
}
