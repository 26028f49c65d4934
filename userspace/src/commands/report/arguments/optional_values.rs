//! Options whose value may be left out, which the parser of the command line cannot tell from
//! options in front of a file.

use std::ffi::{OsStr, OsString};

use super::values::parse_bool;

/// An option whose value may be left out.
struct OptionalValue {
    letter: u8,
    name: &'static str,
    /// The value when none is given.
    default: &'static str,
}

const OPTIONAL_VALUES: [OptionalValue; 9] = [
    OptionalValue {
        letter: b't',
        name: "shorten-templates",
        default: "1",
    },
    OptionalValue {
        letter: b'm',
        name: "merge-backtraces",
        default: "1",
    },
    OptionalValue {
        letter: b'p',
        name: "print-peaks",
        default: "1",
    },
    OptionalValue {
        letter: b'a',
        name: "print-allocators",
        default: "1",
    },
    OptionalValue {
        letter: b'T',
        name: "print-temporary",
        default: "1",
    },
    OptionalValue {
        letter: b'l',
        name: "print-leaks",
        default: "1",
    },
    OptionalValue {
        letter: b'n',
        name: "peak-limit",
        default: "10",
    },
    OptionalValue {
        letter: b's',
        name: "sub-peak-limit",
        default: "5",
    },
    OptionalValue {
        letter: 0,
        name: "print-suppressions",
        default: "1",
    },
];

/// Gives every option with an optional value its value, as `--name=value`: the one attached, else
/// the next word if it can be one, else the default. So `-l FILE` reads as people mean it, where
/// heaptrack_print takes FILE for the value of `-l`.
#[must_use]
pub(crate) fn with_values(words: Vec<OsString>) -> Vec<OsString> {
    let mut rewritten = Vec::with_capacity(words.len());
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        if word == "--" {
            rewritten.push(word);
            rewritten.extend(words);
            break;
        }
        let Some((option, attached)) = optional_value(&word) else {
            rewritten.push(word);
            continue;
        };
        let value = attached
            .or_else(|| words.next_if(|next| can_be_value(option, next)))
            .unwrap_or_else(|| option.default.into());
        let mut whole = OsString::from(format!("--{}=", option.name));
        whole.push(value);
        rewritten.push(whole);
    }
    rewritten
}

/// The option that `word` names, and the value attached to it (`-l1`, `--print-leaks=1`).
fn optional_value(word: &OsStr) -> Option<(&'static OptionalValue, Option<OsString>)> {
    let word = word.to_str()?;
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.into())),
            None => (long, None),
        };
        let option = OPTIONAL_VALUES.iter().find(|option| option.name == name)?;
        return Some((option, value));
    }
    let (&letter, value) = word.strip_prefix('-')?.as_bytes().split_first()?;
    let option = OPTIONAL_VALUES
        .iter()
        .find(|option| option.letter == letter && letter.is_ascii())?;
    let value = word
        .get(word.len() - value.len()..)
        .filter(|value| !value.is_empty());
    Some((option, value.map(OsString::from)))
}

fn can_be_value(option: &OptionalValue, word: &OsStr) -> bool {
    let Some(word) = word.to_str() else {
        return false;
    };
    if option.name.ends_with("limit") {
        word.parse::<u64>().is_ok()
    } else {
        parse_bool(word).is_ok()
    }
}
