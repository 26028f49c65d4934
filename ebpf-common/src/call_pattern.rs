//! Recognises, from the bytes alone, whether an address can follow a near call.
//!
//! Used twice: to keep only those rows of a table that a return address can need, and as an
//! independent check on return addresses found while unwinding. It errs to one side only: an
//! address after a real near call always answers yes.
//!
//! Like the row encoding, this file needs only `core` and depends on nothing else in the crate.

/// The longest near call that is recognised, in bytes, without prefixes (which come before it and
/// so do not matter).
pub const LONGEST_CALL: u64 = 7;

/// Whether a near call can end with the given bytes.
///
/// `before` holds the 8 bytes before the address in question as a little-endian number, so that
/// the last of them is the most significant. The forms are those of the Intel SDM, vol. 2, CALL:
/// `E8 rel32` and `FF /2` with every addressing mode of 64-bit code. A 16-bit displacement
/// (`66 E8` on AMD processors) is not among them: no toolchain emits it in 64-bit code.
pub const fn may_end_call(before: u64) -> bool {
    direct(before) || indirect(before)
}

/// The `n`th byte before the address, from 1.
const fn byte_before(before: u64, n: u32) -> u8 {
    (before >> (64 - 8 * n)) as u8
}

const fn direct(before: u64) -> bool {
    byte_before(before, 5) == 0xe8
}

const fn indirect(before: u64) -> bool {
    contains_ff(before)
        && (indirect_of_length(before, 2)
            || indirect_of_length(before, 3)
            || indirect_of_length(before, 4)
            || indirect_of_length(before, 6)
            || indirect_of_length(before, 7))
}

/// Whether any byte is `FF`: spares most addresses of a code scan the five comparisons.
const fn contains_ff(bytes: u64) -> bool {
    // The usual search for a zero byte, in the complement.
    let zeros_in_complement = (!bytes).wrapping_sub(0x0101_0101_0101_0101) & bytes;
    zeros_in_complement & 0x8080_8080_8080_8080 != 0
}

const fn indirect_of_length(before: u64, length: u32) -> bool {
    if byte_before(before, length) != 0xff {
        return false;
    }
    let modrm = byte_before(before, length - 1);
    // With two bytes there is no SIB byte, and `encoded_length` says so by another length.
    let sib = if length > 2 {
        byte_before(before, length - 2)
    } else {
        0
    };
    modrm >> 3 & 7 == 2 && encoded_length(modrm, sib) == length
}

/// Length of an `FF` instruction: opcode, ModRM, SIB, displacement (Intel SDM, vol. 2, 2.1.5).
const fn encoded_length(modrm: u8, sib: u8) -> u32 {
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let has_sib = mode != 3 && rm == 4;
    let without_base = mode == 0 && (rm == 5 || (has_sib && sib & 7 == 5));
    let displacement = match mode {
        _ if without_base => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    2 + has_sib as u32 + displacement
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;

    use iced_x86::{Decoder, DecoderOptions};
    use proptest::prelude::*;

    use super::*;

    fn before(bytes: &[u8]) -> u64 {
        let mut last = [0x90; 8];
        last[8 - bytes.len()..].copy_from_slice(bytes);
        u64::from_le_bytes(last)
    }

    fn near_call_length(code: &[u8]) -> Option<usize> {
        let instruction = Decoder::new(64, code, DecoderOptions::NONE).decode();
        let is_call = instruction.is_call_near() || instruction.is_call_near_indirect();
        is_call.then(|| instruction.len())
    }

    #[test]
    fn every_indirect_call_is_recognised_and_nothing_else() {
        let mut calls = 0;
        for modrm in 0..=255 {
            for sib in 0..=255 {
                let code = [0xff, modrm, sib, 0x11, 0x22, 0x33, 0x44, 0x55];
                let call = near_call_length(&code);
                calls += usize::from(call.is_some());
                for length in 2..=7 {
                    let found = indirect_of_length(before(&code[..length]), length as u32);
                    assert_eq!(found, call == Some(length), "{:02x?}", &code[..length]);
                }
            }
        }
        assert_eq!(calls, 32 * 256);
    }

    #[test]
    fn an_ff_byte_is_found_wherever_it_is() {
        for position in 0..8 {
            for other in [0, 1, 0x7f, 0x80, 0xfe] {
                let mut bytes = [other; 8];
                assert!(!contains_ff(u64::from_le_bytes(bytes)));
                bytes[position] = 0xff;
                assert!(contains_ff(u64::from_le_bytes(bytes)));
            }
        }
    }

    #[test]
    fn direct_calls_are_recognised() {
        assert!(may_end_call(before(&[0xe8, 0, 0, 0, 0])));
        assert!(may_end_call(before(&[0x66, 0x66, 0x48, 0xe8, 1, 2, 3, 4])));
        assert!(!may_end_call(before(&[0xe9, 0, 0, 0, 0])));
        assert!(
            !may_end_call(before(&[0xff, 0xe0])),
            "an indirect jump is no call"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn a_decoded_call_is_always_recognised(
            prefixes in proptest::collection::vec(any::<u8>(), 0..4),
            opcode in prop_oneof![Just(0xe8_u8), Just(0xff)],
            rest in any::<[u8; 8]>(),
        ) {
            let code = [&prefixes[..], &[opcode], &rest].concat();
            if let Some(length) = near_call_length(&code) {
                let mut padded = vec![0; 8];
                padded.extend(&code[..length]);
                let last: [u8; 8] = padded[padded.len() - 8..].try_into().unwrap();
                prop_assert!(may_end_call(u64::from_le_bytes(last)), "{:02x?}", &code[..length]);
            }
        }
    }
}
