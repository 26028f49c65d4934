//! Names of code that was made at run time, as programs tell them to perf(1): a file of lines
//! `START SIZE NAME`, numbers in hexadecimal (Linux's `tools/perf/Documentation/jit-interface.txt`).
//!
//! Pure: text in, names out. Code is thrown away and made anew at the same addresses, so a later
//! line takes the place of all that it overlaps. The target writes the file: lines that are none
//! are skipped, and memory is bounded.

use std::collections::BTreeMap;

/// Ranges that are kept at most.
const MOST_RANGES: usize = 1 << 20;

/// Bytes of a name that are kept.
const MOST_OF_NAME: usize = 1024;

/// Ranges of addresses and their names; they do not overlap.
#[derive(Clone, Debug, Default)]
pub struct PerfMap {
    /// By the first address.
    ranges: BTreeMap<u64, Range>,
}

#[derive(Clone, Debug)]
struct Range {
    /// First address behind it.
    end: u64,
    name: Box<str>,
}

impl PerfMap {
    /// Takes over whole lines, which come after all of before.
    pub fn add_lines(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n') {
            if let Some((start, range)) = parse(line) {
                self.add(start, range);
            }
        }
    }

    /// The name of the function at an address.
    #[must_use]
    pub fn name(&self, address: u64) -> Option<&str> {
        let (_, range) = self.ranges.range(..=address).next_back()?;
        (address < range.end).then_some(&*range.name)
    }

    fn add(&mut self, start: u64, range: Range) {
        while let Some((&other, overlapped)) = self.ranges.range(..range.end).next_back()
            && overlapped.end > start
        {
            self.ranges.remove(&other);
        }
        if self.ranges.len() < MOST_RANGES {
            self.ranges.insert(start, range);
        }
    }
}

fn parse(line: &[u8]) -> Option<(u64, Range)> {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let start = hexadecimal(words.next()?)?;
    let end = start.checked_add(hexadecimal(words.next()?)?)?;
    let name = words.next()?.trim_ascii();
    let name = String::from_utf8_lossy(name.get(..MOST_OF_NAME).unwrap_or(name));
    let range = Range {
        end,
        name: name.into(),
    };
    (start < end && !range.name.is_empty()).then_some((start, range))
}

/// Some programs write `0x` before a number.
fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    // `from_str_radix` takes a sign.
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_hold_to_the_end_of_their_range_and_later_lines_win() {
        let mut map = PerfMap::default();
        map.add_lines(b"1000 10 JS:*f a.js:1:2\n0x1010 0x10 second\n");
        assert_eq!(map.name(0x100f), Some("JS:*f a.js:1:2"));
        assert_eq!(map.name(0x1010), Some("second"));
        assert_eq!((map.name(0xfff), map.name(0x1020)), (None, None));
        map.add_lines(b"1008 10 new\n");
        let found = [0x1007, 0x1008, 0x1017, 0x1018].map(|address| map.name(address));
        assert_eq!(found, [None, Some("new"), Some("new"), None]);
    }

    #[test]
    fn lines_that_are_none_are_skipped() {
        let mut map = PerfMap::default();
        map.add_lines(
            b"\n1000\n1000 10\n1000 10 \n1000 0 empty\nffffffffffffffff 2 over\n+1 1 sign\n\
              1 11111111111111111 large\nx 1 n\n2000 1 \xff\xfe\n",
        );
        assert_eq!(map.ranges.len(), 1);
        assert_eq!(map.name(0x2000), Some("\u{fffd}\u{fffd}"));
    }

    proptest! {
        /// Against a list that is searched from its end, and forgets what is overlapped.
        #[test]
        fn names_are_those_of_the_naive_model(
            lines in proptest::collection::vec((0..60_u64, 1..20_u64), 0..40),
        ) {
            let mut map = PerfMap::default();
            let mut model: Vec<(u64, u64, usize)> = Vec::new();
            for (number, (start, size)) in lines.into_iter().enumerate() {
                map.add_lines(format!("{start:x} {size:x} f{number}").as_bytes());
                model.retain(|(from, to, _)| *to <= start || *from >= start + size);
                model.push((start, start + size, number));
            }
            for address in 0..90 {
                let expected = model.iter().find(|(from, to, _)| (*from..*to).contains(&address));
                let expected = expected.map(|(_, _, number)| format!("f{number}"));
                prop_assert_eq!(map.name(address), expected.as_deref());
            }
        }
    }
}
