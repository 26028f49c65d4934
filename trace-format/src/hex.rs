//! Lower-case hexadecimal numbers, written and read by hand because they are the hot path of both
//! directions: a trace consists of hundreds of millions of them.

/// Longest hexadecimal form of a 64-bit number.
pub const MAX_DIGITS: usize = 16;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Appends `value` in lower-case hexadecimal without prefix or leading zeros.
#[inline]
pub fn push(buffer: &mut Vec<u8>, value: u64) {
    if value < 16 {
        buffer.push(DIGITS[value as usize]);
        return;
    }
    let digits = (MAX_DIGITS * 4 - value.leading_zeros() as usize).div_ceil(4);
    let mut text = [0u8; MAX_DIGITS];
    let mut rest = value;
    for slot in text[..digits].iter_mut().rev() {
        *slot = DIGITS[(rest & 0xf) as usize];
        rest >>= 4;
    }
    buffer.extend_from_slice(&text[..digits]);
}

/// The value of one lower-case hexadecimal digit. Upper-case digits are not digits in this format.
#[inline]
#[must_use]
pub const fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// Repeats a byte over a word.
const fn repeated(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Reads up to seven digits and the line feed behind them from eight bytes, without a branch that
/// depends on how many there are. `None` when there is anything else; then the general parser has
/// to look.
///
/// Returns the number and its count of digits.
#[inline]
#[must_use]
pub fn line_of_digits(bytes: [u8; 8]) -> Option<(u32, usize)> {
    /// Set in every digit, not in a line feed.
    const IN_DIGITS: u8 = 0x20;
    let word = u64::from_le_bytes(bytes);
    let end = (!word & repeated(IN_DIGITS)).trailing_zeros();
    let digits = (end / 8) as usize;
    let terminator = word.wrapping_shr(end & !7) as u8;
    if terminator != b'\n' || digits == 0 {
        return None;
    }
    // First digit lowest; after the shift the digits fill the word's upper end.
    let shift = IN_DIGITS.trailing_zeros().wrapping_sub(end);
    let text = word.wrapping_shl(shift);
    let letters = (text >> 6) & repeated(1);
    let low = text & repeated(0x0f);
    let nibbles = low + letters * 9;
    // Upper halves: 3 in digits up to 9, 6 in letters, nothing outside of the number.
    let upper = repeated(0x30).wrapping_shl(shift) + letters * 0x30;
    let wrong_upper = (text ^ low) ^ upper;
    // Values: 10 or more in letters only, never 16.
    let wrong_value = ((nibbles + repeated(6)) ^ (letters << 4)) | nibbles;
    if wrong_upper | (wrong_value & repeated(0x10)) != 0 {
        return None;
    }
    Some((joined(nibbles), digits))
}

/// The number whose hexadecimal digits are the bytes of `nibbles`, the lowest byte first.
#[inline]
const fn joined(nibbles: u64) -> u32 {
    let bytes = (nibbles.wrapping_mul(0x1001) >> 8) & 0x00ff_00ff_00ff_00ff;
    let halves = (bytes.wrapping_mul(0x0100_0001) >> 16) & 0x0000_ffff_0000_ffff;
    (halves.wrapping_mul(1 + (1 << 48)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn writes_what_the_standard_library_formats(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let mut buffer = Vec::new();
            push(&mut buffer, value);
            prop_assert_eq!(String::from_utf8(buffer).unwrap(), format!("{value:x}"));
        }
    }

    #[test]
    fn zero_and_the_largest_number() {
        let mut buffer = Vec::new();
        push(&mut buffer, 0);
        push(&mut buffer, u64::MAX);
        assert_eq!(buffer, b"0ffffffffffffffff");
    }

    #[test]
    fn only_lower_case_digits_count() {
        assert_eq!(digit(b'f'), Some(15));
        assert_eq!(digit(b'9'), Some(9));
        for byte in *b"FgGx -\r" {
            assert_eq!(digit(byte), None);
        }
    }

    proptest! {
        #[test]
        fn a_line_of_digits_reads_as_the_general_parser_reads_it(bytes: [u8; 8], digits in 0usize..8) {
            let mut line = bytes;
            let text = format!("{:07x}", u64::from_le_bytes(bytes) & 0xfff_ffff);
            line[..digits].copy_from_slice(&text.as_bytes()[..digits]);
            line[digits] = b'\n';
            for line in [line, bytes] {
                let end = line.iter().position(|&byte| byte == b'\n');
                let expected = end.filter(|&end| end > 0).and_then(|end| {
                    let digits = line[..end].iter().map(|&byte| digit(byte));
                    let value = digits.into_iter().try_fold(0u32, |value, digit| {
                        Some((value << 4) | u32::from(digit?))
                    });
                    Some((value?, end))
                });
                prop_assert_eq!(line_of_digits(line), expected);
            }
        }
    }
}
