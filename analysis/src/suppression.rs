//! Leak suppressions: lists of patterns, the matching of a pattern, and taking matched leaks off.
//!
//! The pattern language is LeakSanitizer's as heaptrack understands it: a pattern is searched
//! anywhere in a name; `^` at the start and `$` tie it down, `*` stands for anything. There is no
//! backtracking.

use memchr::memmem::{self, Finder};

use crate::profile::Profile;
use htrace_trace_format::{Frame, StringIndex};

/// Leaks of system libraries that nobody can do anything about. The list, its order and its
/// duplicate are heaptrack's.
pub const BUILTIN: [&str; 8] = [
    "__nss_module_allocate",
    "__gconv_read_conf",
    "__new_exitfn",
    "tzset_internal",
    "dl_open_worker",
    "g_main_context_new",
    "g_main_context_new",
    "g_thread_self",
];

/// What one line of a suppression file means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuppressionLine<'a> {
    /// A pattern.
    Pattern(&'a [u8]),
    /// Empty, a comment, or an empty pattern.
    Nothing,
    /// Not a suppression; the trimmed line.
    Invalid(&'a [u8]),
}

/// Reads one line of a suppression file.
#[must_use]
pub fn parse_line(line: &[u8]) -> SuppressionLine<'_> {
    let line = trim(line);
    if line.is_empty() || line.starts_with(b"#") {
        return SuppressionLine::Nothing;
    }
    match line.strip_prefix(b"leak:") {
        Some([]) => SuppressionLine::Nothing,
        Some(pattern) => SuppressionLine::Pattern(pattern),
        None => SuppressionLine::Invalid(line),
    }
}

/// Reads a whole suppression file; `invalid` is told of lines that are none.
pub fn parse_file(text: &[u8], mut invalid: impl FnMut(&[u8])) -> Vec<Vec<u8>> {
    let mut patterns = Vec::new();
    for line in text.split(|&byte| byte == b'\n') {
        match parse_line(line) {
            SuppressionLine::Pattern(pattern) => patterns.push(pattern.to_vec()),
            SuppressionLine::Nothing => {}
            SuppressionLine::Invalid(line) => invalid(line),
        }
    }
    patterns
}

fn trim(mut text: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r');
    while let Some((first, rest)) = text.split_first()
        && is_space(first)
    {
        text = rest;
    }
    while let Some((last, rest)) = text.split_last()
        && is_space(last)
    {
        text = rest;
    }
    text
}

/// Whether `pattern` matches `text`. The empty pattern matches every text but the empty one.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    if pattern == text {
        return true;
    }
    if text.is_empty() {
        return false;
    }
    let (mut rest, mut anchored) = match pattern.strip_prefix(b"^") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let mut text = text;
    let mut star = false;
    while let Some(&first) = rest.first() {
        match first {
            b'*' => {
                (anchored, star) = (false, true);
                rest = &rest[1..];
            }
            b'$' => return text.is_empty() || star,
            _ => {
                let end = rest.iter().position(|&byte| matches!(byte, b'*' | b'$'));
                let (literal, behind) = rest.split_at(end.unwrap_or(rest.len()));
                let Some(found) = memmem::find(text, literal) else {
                    return false;
                };
                if text.is_empty() || (anchored && found != 0) {
                    return false;
                }
                text = &text[found + literal.len()..];
                rest = behind;
                (anchored, star) = (false, false);
            }
        }
    }
    true
}

/// What one pattern took off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppressed {
    /// The pattern.
    pub pattern: Vec<u8>,
    /// Backtraces that it matched.
    pub matches: u64,
    /// Leaked bytes of those.
    pub leaked: i64,
}

/// Position in a list of patterns.
type Position = Option<u32>;

/// Takes the leaks of every backtrace that a pattern matches off the profile. Of several patterns
/// the first in the list counts. Returns the patterns that matched, in list order.
pub fn apply(profile: &mut Profile, patterns: &[Vec<u8>]) -> Vec<Suppressed> {
    let by_node = positions_of_nodes(profile, patterns);
    let mut used: Vec<Suppressed> = patterns
        .iter()
        .map(|pattern| Suppressed {
            pattern: pattern.clone(),
            matches: 0,
            leaked: 0,
        })
        .collect();
    for entry in &mut profile.entries {
        let position = entry.trace.position().and_then(|node| *by_node.get(node)?);
        let Some(used) = position.and_then(|position| used.get_mut(position as usize)) else {
            continue;
        };
        used.matches += 1;
        used.leaked = used.leaked.wrapping_add(entry.costs.leaked);
        profile.suppressed = profile.suppressed.wrapping_add(entry.costs.leaked);
        profile.total.leaked = profile.total.leaked.wrapping_sub(entry.costs.leaked);
        entry.costs.leaked = 0;
    }
    used.retain(|used| used.matches > 0);
    used
}

/// The first pattern that matches any name on the way from each node to the root.
fn positions_of_nodes(profile: &Profile, patterns: &[Vec<u8>]) -> Vec<Position> {
    let tables = &profile.tables;
    let patterns: Vec<_> = patterns
        .iter()
        .map(|pattern| (pattern.as_slice(), Finder::new(first_literal(pattern))))
        .collect();
    let of_string: Vec<Position> = tables
        .strings
        .iter()
        .map(|(_, text)| first_match(&patterns, text))
        .collect();
    let string = |index: StringIndex| -> Position {
        index
            .position()
            .and_then(|position| *of_string.get(position)?)
    };
    let frame = |frame: &Frame| string(frame.function).or_else(|| string(frame.file));
    let of_ip: Vec<Position> = tables
        .ips()
        .iter()
        .map(|ip| {
            string(ip.module)
                .or_else(|| frame(&ip.frame))
                .or_else(|| tables.inlined(ip).iter().find_map(frame))
        })
        .collect();
    let mut of_node: Vec<Position> = Vec::with_capacity(tables.nodes().len());
    for node in tables.nodes() {
        let inherited = node
            .parent
            .position()
            .and_then(|parent| *of_node.get(parent)?);
        let own = || node.ip.position().and_then(|ip| *of_ip.get(ip)?);
        of_node.push(inherited.or_else(own));
    }
    of_node
}

fn first_match(patterns: &[(&[u8], Finder<'_>)], text: &[u8]) -> Position {
    let position = patterns
        .iter()
        .position(|(pattern, literal)| literal.find(text).is_some() && matches(pattern, text));
    position.and_then(|position| u32::try_from(position).ok())
}

/// The first text that every match of `pattern` contains; nearly no name contains it, and looking
/// for it prepared is quick.
fn first_literal(pattern: &[u8]) -> &[u8] {
    let start = pattern
        .iter()
        .position(|byte| !matches!(byte, b'^' | b'*' | b'$'));
    let rest = &pattern[start.unwrap_or(pattern.len())..];
    let end = rest.iter().position(|byte| matches!(byte, b'*' | b'$'));
    &rest[..end.unwrap_or(rest.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_searched_anywhere_unless_tied_down() {
        for (pattern, text, expected) in [
            ("foo", "a foo b", true),
            ("foo", "fo", false),
            ("^foo", "foobar", true),
            ("^foo", "a foo", false),
            ("foo$", "a foo", true),
            ("foo$", "foo b", false),
            ("a*c", "xabbcx", true),
            ("a*$", "xab", true),
            ("^*b", "ab", true),
            ("b$", "abcb", false),
            ("", "x", true),
            ("", "", true),
            ("x", "", false),
            ("a$ignored", "a", true),
            ("*", "x", true),
        ] {
            let got = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(got, expected, "{pattern:?} in {text:?}");
        }
    }

    #[test]
    fn a_file_yields_its_patterns_and_names_bad_lines() {
        let text = b"# comment\n\n leak:foo \nleak:\nbad line\t\r\nleak: spaced";
        let mut invalid = Vec::new();
        let patterns = parse_file(text, |line| invalid.push(line.to_vec()));
        assert_eq!(patterns, [b"foo".to_vec(), b" spaced".to_vec()]);
        assert_eq!(invalid, [b"bad line".to_vec()]);
    }
}
