//! Versions as the tools print them.

use std::fmt;

/// Major, minor and patch level. Orders as versions do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32, pub(crate) u32, pub(crate) u32);

impl Version {
    /// Reads `1`, `1.2` or `1.2.3`, with anything behind it (`-nightly`, `+dfsg1`). What is
    /// missing counts as 0.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let number = text
            .trim()
            .split(|c: char| !c.is_ascii_digit() && c != '.')
            .next()?;
        let mut parts = number.split('.');
        let major = parts.next()?.parse().ok()?;
        let mut next = || parts.next().map_or(Some(0), |part| part.parse().ok());
        Some(Self(major, next()?, next()?))
    }

    /// The version in the line `KEY: VERSION` of `text`, as in `rustc -vV`.
    pub(crate) fn of_key(text: &str, key: &str) -> Option<Self> {
        let value = |line: &str| line.strip_prefix(key)?.strip_prefix(':').map(str::to_owned);
        Self::parse(&text.lines().find_map(value)?)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_up_to_their_tail() {
        assert_eq!(Version::parse("0.10.4"), Some(Version(0, 10, 4)));
        assert_eq!(
            Version::parse("1.97.0-nightly (e50aa6fba)"),
            Some(Version(1, 97, 0))
        );
        assert_eq!(Version::parse(" 22.1"), Some(Version(22, 1, 0)));
        assert_eq!(Version::parse("7"), Some(Version(7, 0, 0)));
    }

    #[test]
    fn no_version_is_none() {
        for text in ["", "nightly", ".5", "1..2", "99999999999"] {
            assert_eq!(Version::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn versions_order_by_number() {
        assert!(Version(0, 9, 9) < Version(0, 10, 0));
        assert!(Version(6, 6, 0) > Version(5, 17, 3));
    }

    #[test]
    fn the_llvm_of_a_compiler() {
        let words = "rustc 1.96.0 (ac68faa20 2026-05-25)\nrelease: 1.96.0\nLLVM version: 22.1.8\n";
        assert_eq!(
            Version::of_key(words, "LLVM version"),
            Some(Version(22, 1, 8))
        );
        assert_eq!(Version::of_key(words, "host"), None);
    }
}
