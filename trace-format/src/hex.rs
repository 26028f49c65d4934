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
}
