//! The lexical rules of one line: hexadecimal fields and strings behind the record's letter.
//!
//! The rules are those of heaptrack's own readers (1.0 to 1.6), kept to the byte, because files
//! that one tool takes and the other refuses would be of no use:
//! * fields start at byte 2, whatever byte 1 is; a line of up to two bytes has none;
//! * a field ends at one space, which is consumed, or at the end of the line;
//! * a field that fails leaves the cursor where it was;
//! * an empty field (two spaces in a row) is the number 0; numbers wrap at 64 bits.

use crate::hex;

/// Why a field could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// The line ends before the field.
    Missing,
    /// A byte that is neither a lower-case hexadecimal digit nor the space that ends a field.
    NotHex {
        /// The offending byte.
        byte: u8,
        /// Its position in the line, from 0.
        position: usize,
    },
    /// A sized string announces more bytes than the line has left.
    StringTooShort,
}

/// Cursor over the fields of a line.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    line: &'a [u8],
    position: usize,
}

impl<'a> Fields<'a> {
    /// Fields of `line`, which includes the record's letter and no line feed.
    #[must_use]
    pub fn new(line: &'a [u8]) -> Self {
        let position = if line.len() > 2 { 2 } else { line.len() };
        Self { line, position }
    }

    /// Everything from the cursor to the end of the line.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        &self.line[self.position..]
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.position >= self.line.len()
    }

    /// The next hexadecimal number; wraps at 64 bits.
    ///
    /// # Errors
    /// [`FieldError::Missing`] at the end of the line, [`FieldError::NotHex`] at any other byte;
    /// the cursor stays where it was.
    pub fn hex(&mut self) -> Result<u64, FieldError> {
        if self.is_at_end() {
            return Err(FieldError::Missing);
        }
        let mut value = 0u64;
        for (at, &byte) in self.line.iter().enumerate().skip(self.position) {
            match hex::digit(byte) {
                Some(digit) => value = (value << 4) | u64::from(digit),
                None if byte == b' ' => {
                    self.position = at + 1;
                    return Ok(value);
                }
                None => return Err(FieldError::NotHex { byte, position: at }),
            }
        }
        self.position = self.line.len();
        Ok(value)
    }

    /// Everything up to the next space, which is consumed, or to the end of the line.
    pub fn word(&mut self) -> &'a [u8] {
        let rest = self.rest();
        let length = rest
            .iter()
            .position(|&byte| byte == b' ')
            .unwrap_or(rest.len());
        self.position = (self.position + length + 1).min(self.line.len());
        &rest[..length]
    }

    /// The next sized string (file version 3): length in bytes, a space, the bytes, and one byte
    /// behind them that is skipped if there is one.
    ///
    /// # Errors
    /// As [`Fields::hex`] for the length; [`FieldError::StringTooShort`] when the line has fewer
    /// bytes left. The cursor then stands behind the length.
    pub fn sized_string(&mut self) -> Result<&'a [u8], FieldError> {
        let length = self.hex()?;
        let rest = self.rest();
        let text = usize::try_from(length)
            .ok()
            .and_then(|length| rest.get(..length))
            .ok_or(FieldError::StringTooShort)?;
        self.position = (self.position + text.len() + 1).min(self.line.len());
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(line: &[u8]) -> Vec<Result<u64, FieldError>> {
        let mut fields = Fields::new(line);
        (0..3).map(|_| fields.hex()).collect()
    }

    #[test]
    fn fields_start_at_byte_two_whatever_byte_one_is() {
        assert_eq!(numbers(b"ta1 2")[..2], [Ok(1), Ok(2)]);
        assert_eq!(numbers(b"t ")[0], Err(FieldError::Missing));
        assert_eq!(numbers(b"t")[0], Err(FieldError::Missing));
    }

    #[test]
    fn a_double_space_is_a_zero() {
        assert_eq!(numbers(b"t 1  2"), [Ok(1), Ok(0), Ok(2)]);
    }

    #[test]
    fn a_failed_field_fails_again_at_the_same_byte() {
        let error = Err(FieldError::NotHex {
            byte: b'X',
            position: 3,
        });
        assert_eq!(numbers(b"t 1X 2"), [error, error, error]);
    }

    #[test]
    fn numbers_wrap_at_64_bits() {
        assert_eq!(numbers(b"+ 1ffffffffffffffff")[0], Ok(u64::MAX));
    }

    #[test]
    fn sized_strings_may_contain_spaces_and_are_checked_against_the_line() {
        let mut fields = Fields::new(b"s 5 a b c 7");
        assert_eq!(fields.sized_string(), Ok(&b"a b c"[..]));
        assert_eq!(fields.hex(), Ok(7));
        let mut fields = Fields::new(b"s 6 a b c");
        assert_eq!(fields.sized_string(), Err(FieldError::StringTooShort));
        let mut fields = Fields::new(b"s ffffffffffffffff a");
        assert_eq!(fields.sized_string(), Err(FieldError::StringTooShort));
    }
}
