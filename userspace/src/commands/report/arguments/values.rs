//! What the words behind options mean.

use htrace_analysis::CostKind;
use htrace_analysis::request::{Format, View};
use htrace_analysis::tree::Direction;

/// A time since the start in milliseconds: `1500ms`, `1.5s`, `1.5` (seconds) or `2m`.
pub(super) fn parse_time(word: &str) -> Result<i64, String> {
    let (number, factor) = if let Some(number) = word.strip_suffix("ms") {
        (number, 1.0)
    } else if let Some(number) = word.strip_suffix('m') {
        (number, 60_000.0)
    } else {
        (word.strip_suffix('s').unwrap_or(word), 1000.0)
    };
    match number.parse::<f64>() {
        Ok(time) if time >= 0.0 && time.is_finite() => Ok((time * factor).round() as i64),
        _ => Err("a time is a number with ms, s or m behind it, such as 1.5s".into()),
    }
}

pub(super) fn parse_format(word: &str) -> Result<Format, String> {
    match word {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err("valid choices are text and json".into()),
    }
}

pub(super) fn parse_view(word: &str) -> Result<View, String> {
    match word {
        "top-down" => Ok(View::Tree(Direction::TopDown)),
        "bottom-up" => Ok(View::Tree(Direction::BottomUp)),
        "callers" => Ok(View::CallersAndCallees),
        _ => Err("valid choices are top-down, bottom-up and callers".into()),
    }
}

/// The words that heaptrack_print takes for yes and no, in any case.
pub(super) fn parse_bool(word: &str) -> Result<bool, String> {
    match word.to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => Ok(true),
        "0" | "off" | "no" | "false" => Ok(false),
        _ => Err("valid choices are 'on|off', 'yes|no', '1|0' and 'true|false'".into()),
    }
}

/// The cost that a word names.
///
/// # Errors
/// The words that would do.
pub fn parse_cost(word: &str) -> Result<CostKind, String> {
    CostKind::from_name(word)
        .ok_or_else(|| "valid choices are allocations, temporary, leaked and peak".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (word, milliseconds) in [
            ("1.5s", 1500),
            ("200ms", 200),
            ("2", 2000),
            ("2m", 120_000),
            ("0", 0),
        ] {
            assert_eq!(parse_time(word), Ok(milliseconds), "{word}");
        }
        for word in ["", "s", "-1s", "1h", "nan", "infs"] {
            assert!(parse_time(word).is_err(), "{word}");
        }
    }
}
