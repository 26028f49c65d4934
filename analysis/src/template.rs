//! Shortening of C++ template arguments in function names, as heaptrack does it.

/// `name` with everything between angle brackets left out: `f<int>(Q<x>)` becomes `f<>(Q<>)`. The
/// brackets of operators (`operator<`, `operator>>`) are no brackets. A closing bracket without an
/// opening one (`operator->`) hides the rest of the name; that is heaptrack's doing, and kept so
/// that the same names come out.
#[must_use]
pub fn shorten(name: &[u8]) -> Vec<u8> {
    let mut short = Vec::with_capacity(name.len());
    let mut depth = 0i64;
    for &byte in name {
        if matches!(byte, b'<' | b'>') && belongs_to_operator(&short, byte) {
            short.push(byte);
            continue;
        }
        match byte {
            b'<' => {
                depth += 1;
                if depth == 1 {
                    short.push(b'<');
                }
            }
            b'>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            short.push(byte);
        }
    }
    short
}

/// Whether the bracket that follows `so_far` is part of an operator's name.
fn belongs_to_operator(so_far: &[u8], bracket: u8) -> bool {
    const OPERATOR: &[u8] = b"operator";
    if so_far.len() < OPERATOR.len() {
        return false;
    }
    match so_far.strip_suffix(&[bracket]) {
        Some(before) => before.ends_with(OPERATOR),
        None => so_far.ends_with(OPERATOR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_as_heaptrack_does() {
        for (name, expected) in [
            ("f<int>(Q<x>)", "f<>(Q<>)"),
            ("W* operator<< <W>(W&)", "W* operator<< <>(W&)"),
            ("H<int>::operator()<double>(x)", "H<>::operator()<>(x)"),
            ("P::operator->()", "P::operator-"),
            ("Q::operator<=>(int)", "Q::operator<="),
            ("a<b<c>>d", "a<>d"),
            ("", ""),
        ] {
            let got = String::from_utf8(shorten(name.as_bytes())).unwrap();
            assert_eq!(got, expected, "{name}");
        }
    }
}
