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

/// Set in every digit and in a space, not in a line feed.
const NOT_IN_LINE_FEED: u8 = 0x20;

/// A bit for each byte of `block`, the lowest for the first, that may be a line feed: it is no
/// digit, space or sign. What else it may be remains to be seen.
#[inline]
#[must_use]
pub fn possible_line_feeds(block: &[u8; 64]) -> u64 {
    let (words, _) = block.as_chunks::<8>();
    let marks = words.iter().map(|&word| {
        let absent = !u64::from_le_bytes(word) & repeated(NOT_IN_LINE_FEED);
        // Gathers the eight marks in the highest byte, in order: no two of the products' bits meet.
        (absent >> NOT_IN_LINE_FEED.trailing_zeros()).wrapping_mul(0x0102_0408_1020_4080) >> 56
    });
    marks
        .zip((0..64).step_by(8))
        .fold(0, |all, (marks, at)| all | (marks << at))
}

/// The number whose one to seven digits are the last bytes of `word`, the lowest byte being the
/// first; `None` where one is no lower-case hexadecimal digit. Without a branch that depends on
/// how many there are.
#[inline(always)]
#[must_use]
pub const fn digits_at_end(word: u64, digits: usize) -> Option<u32> {
    /// From a letter, once [`ZERO`] is taken off, to its value.
    const LETTER: u64 = ((b'a' ^ ZERO) - 10) as u64;
    const ZERO: u8 = b'0';
    // Neither none nor eight, which would not fit beside an event's kind.
    if digits.wrapping_sub(1) >= 7 {
        return None;
    }
    let of_number = u64::MAX << (64 - 8 * digits);
    let text = (word ^ repeated(ZERO)) & of_number;
    let letters = (text >> 6) & repeated(1);
    // A byte below LETTER borrows from the next, and is itself wrong afterwards.
    let values = text.wrapping_sub(letters * LETTER);
    // None above 15; 10 and more in letters only.
    let beyond = values & repeated(0xf0);
    let wrong_kind = (values.wrapping_add(repeated(6)) ^ (letters << 4)) & repeated(0x10);
    if beyond | wrong_kind != 0 {
        return None;
    }
    Some(joined(values))
}

/// The number whose hexadecimal digits are the bytes of `values`, the lowest byte first.
#[inline]
const fn joined(values: u64) -> u32 {
    let bytes = (values.wrapping_mul(0x1001) >> 8) & 0x00ff_00ff_00ff_00ff;
    let halves = bytes.wrapping_mul(0x0100_0001) >> 16;
    ((halves as u32) << 16) | ((halves >> 32) as u32 & 0xffff)
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
        fn digits_read_as_the_general_parser_reads_them(bytes: [u8; 8], digits in 0usize..=8) {
            let text = format!("{:08x}", u64::from_le_bytes(bytes) as u32);
            let text = *text.as_bytes().first_chunk().unwrap();
            for bytes in [text, bytes] {
                let digits_alone = bytes[8 - digits..].iter().map(|&byte| digit(byte));
                let value = digits_alone.into_iter().try_fold(0u32, |value, digit| {
                    Some((value << 4) | u32::from(digit?))
                });
                let expected = value.filter(|_| (1..8).contains(&digits));
                prop_assert_eq!(digits_at_end(u64::from_le_bytes(bytes), digits), expected);
            }
        }

        #[test]
        fn no_line_feed_is_missed_and_no_part_of_an_event_is_taken_for_one(bytes: [u8; 64]) {
            let found = possible_line_feeds(&bytes);
            for (at, byte) in bytes.into_iter().enumerate() {
                let is_marked = (found >> at) & 1 == 1;
                prop_assert!(is_marked || byte != b'\n');
                prop_assert!(!is_marked || !b"+- 0123456789abcdef".contains(&byte));
            }
        }
    }
}
