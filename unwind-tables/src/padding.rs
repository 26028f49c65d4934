//! Recognises the filler that assemblers and linkers put between functions.
//!
//! Knows x86-64 instruction bytes and nothing else. An answer of "no" is always safe: it only
//! costs the table a row.

/// Whether `code` consists of filler alone: no-operation instructions of any length, `int3`, and
/// zero bytes.
///
/// The no-operations are `90` and `0f 1f /0` (Intel SDM, vol. 2, NOP), each with any number of
/// `66` prefixes and a `2e` segment prefix, as GNU as and LLVM emit them.
pub(crate) fn is_padding(mut code: &[u8]) -> bool {
    while let Some(length) = filler_length(code) {
        let Some(rest) = code.get(length..) else {
            return false;
        };
        code = rest;
    }
    code.is_empty()
}

/// The length of the filler instruction at the start, possibly beyond the end of `code`.
fn filler_length(code: &[u8]) -> Option<usize> {
    match code.first()? {
        0x00 | 0xcc => Some(1),
        _ => no_operation_length(code),
    }
}

fn no_operation_length(code: &[u8]) -> Option<usize> {
    let prefixes = code
        .iter()
        .take_while(|byte| matches!(byte, 0x66 | 0x2e))
        .count();
    match code.get(prefixes..)? {
        [0x90, ..] => Some(prefixes + 1),
        [0x0f, 0x1f, modrm, ..] => Some(prefixes + 3 + operand_length(*modrm)?),
        _ => None,
    }
}

/// Bytes after the ModRM byte; `None` for forms that are not used as filler.
fn operand_length(modrm: u8) -> Option<usize> {
    let with_sib = usize::from(modrm & 7 == 4);
    match (modrm >> 6, modrm >> 3 & 7) {
        (0, 0) if modrm & 7 != 5 => Some(with_sib),
        (1, 0) => Some(with_sib + 1),
        (2, 0) => Some(with_sib + 4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_assemblers_fillers_are_padding() {
        // The nine lengths that the Intel SDM recommends, and what GNU as makes of longer ones.
        let fillers: [&[u8]; 12] = [
            &[0x90],
            &[0x66, 0x90],
            &[0x0f, 0x1f, 0x00],
            &[0x0f, 0x1f, 0x40, 0x00],
            &[0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
            &[0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0],
            &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0],
            &[0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0],
            &[0xcc, 0xcc, 0xcc],
            &[0, 0, 0, 0],
        ];
        for filler in fillers {
            assert!(is_padding(filler), "{filler:02x?}");
        }
        assert!(is_padding(&fillers.concat()));
        assert!(is_padding(&[]));
    }

    #[test]
    fn code_is_not_padding() {
        assert!(!is_padding(&[0xc3]));
        assert!(!is_padding(&[0x90, 0xe8, 0, 0, 0, 0]));
        assert!(
            !is_padding(&[0xf3, 0x0f, 0x1e, 0xfa]),
            "endbr64 begins a function"
        );
        assert!(!is_padding(&[0x0f, 0x1f, 0x44, 0x00]), "cut in the middle");
        assert!(!is_padding(&[0x66, 0x66]), "prefixes of nothing");
        assert!(!is_padding(&[0x0f, 0x1f]));
    }
}
