//! What a target says about itself: `key=value` lines of its standard output.

use std::collections::BTreeMap;

/// The numbers that a target printed.
#[derive(Debug, Clone)]
pub struct Truth {
    values: BTreeMap<String, i64>,
    text: String,
}

impl Truth {
    /// Takes every line of the form `key=number`; other lines are the target's
    /// own business.
    pub fn parse(stdout: &[u8]) -> Self {
        let text = String::from_utf8_lossy(stdout).into_owned();
        let values = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .filter_map(|(key, value)| Some((key.to_owned(), value.parse().ok()?)))
            .collect();
        Self { values, text }
    }

    /// The number of that name.
    ///
    /// # Panics
    /// When the target did not print it.
    pub fn get(&self, key: &str) -> i64 {
        *self
            .values
            .get(key)
            .unwrap_or_else(|| panic!("the target did not print `{key}`:\n{}", self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::Truth;

    #[test]
    fn takes_numbers_and_skips_other_lines() {
        let truth = Truth::parse(b"ready\ncalls=12\nleaked=-3\nname=x\n");
        assert_eq!(truth.get("calls"), 12);
        assert_eq!(truth.get("leaked"), -3);
    }

    #[test]
    #[should_panic(expected = "did not print `peak`")]
    fn names_what_is_missing() {
        Truth::parse(b"calls=12\n").get("peak");
    }
}
