//! Reads what `heaptrack_print` and `htrace-bpf report` print: the totals and
//! the ranked sections, as text.

use std::collections::BTreeMap;

/// One printed report.
#[derive(Debug, Clone)]
pub struct Report {
    /// The whole text.
    pub text: String,
}

/// Title lines of the sections.
pub const SECTIONS: [&str; 4] = [
    "MOST CALLS TO ALLOCATION FUNCTIONS",
    "PEAK MEMORY CONSUMERS",
    "MEMORY LEAKS",
    "MOST TEMPORARY ALLOCATIONS",
];

const TOTALS: [&str; 7] = [
    "total runtime",
    "calls to allocation functions",
    "temporary memory allocations",
    "peak heap memory consumption",
    "peak RSS (including heaptrack overhead)",
    "total memory leaked",
    "suppressed leaks",
];

impl Report {
    /// Takes a report's standard output.
    pub fn new(stdout: &[u8]) -> Self {
        Self {
            text: String::from_utf8_lossy(stdout).into_owned(),
        }
    }

    /// The summary lines: what stands before the colon, and what behind.
    pub fn totals(&self) -> BTreeMap<&str, &str> {
        self.text
            .lines()
            .filter_map(|line| line.split_once(": "))
            .filter(|(name, _)| TOTALS.contains(name))
            .collect()
    }

    /// A total as printed, without the rate in parentheses.
    ///
    /// # Panics
    /// When the report lacks it.
    pub fn total(&self, name: &str) -> &str {
        let totals = self.totals();
        let value = totals
            .get(name)
            .unwrap_or_else(|| panic!("no `{name}` in the report:\n{}", self.text));
        value.split(" (").next().unwrap_or(value)
    }

    /// The calls of the summary.
    ///
    /// # Panics
    /// When the report lacks them.
    pub fn calls(&self) -> i64 {
        self.total("calls to allocation functions")
            .parse()
            .expect("calls are a number")
    }

    /// The groups of a section in order: the text from each label to the empty
    /// line that ends it.
    pub fn groups(&self, section: &str) -> Vec<&str> {
        let Some(start) = self.text.find(&format!("{section}\n")) else {
            return Vec::new();
        };
        let body = &self.text[start + section.len() + 1..];
        // Each section ends with an empty line beyond that of its last group.
        let end = body.find("\n\n\n").map_or(body.len(), |end| end + 1);
        body[..end]
            .split("\n\n")
            .map(str::trim_end)
            .filter(|group| !group.is_empty())
            .collect()
    }

    /// The first group of a section: its label and leaf, then its entries sorted by their text.
    /// Entries of equal cost stand in an order that each program chooses.
    pub fn first_group(&self, section: &str) -> Vec<String> {
        let groups = self.groups(section);
        let mut parts = vec![String::new()];
        for line in groups.first().copied().unwrap_or_default().lines() {
            if line.ends_with(" from:") {
                parts.push(String::new());
            }
            if let Some(part) = parts.last_mut() {
                part.push_str(line);
                part.push('\n');
            }
        }
        parts[1..].sort();
        parts
    }

    /// The leaf function of each group of a section.
    pub fn leaves(&self, section: &str) -> Vec<&str> {
        self.groups(section)
            .iter()
            .filter_map(|group| group.lines().nth(1))
            .collect()
    }
}

/// A size as both programs print it: 1000 steps, two decimals above a
/// thousand bytes.
pub fn size(bytes: i64) -> String {
    let mut value = bytes as f64;
    let mut units = ["B", "K", "M", "G", "T"].iter();
    let mut unit = units.next();
    while value.abs() > 1000.0 {
        let Some(next) = units.next() else { break };
        value /= 1000.0;
        unit = Some(next);
    }
    match unit {
        Some(&"B") | None => format!("{bytes}B"),
        Some(unit) => format!("{value:.2}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Report, size};

    #[test]
    fn entries_of_a_group_are_told_apart_and_sorted() {
        let text = "MEMORY LEAKS\n3B leaked over 2 calls from\neat\n1B leaked over 1 calls from:\n\
            \x20   b\n1B leaked over 1 calls from:\n    a\n\n\n";
        let report = Report::new(text.as_bytes());
        let parts = report.first_group("MEMORY LEAKS");
        assert_eq!(parts.len(), 3);
        assert!(parts[0].ends_with("eat\n"), "{parts:?}");
        assert!(
            parts[1].ends_with("    a\n") && parts[2].ends_with("    b\n"),
            "{parts:?}"
        );
    }

    const TEXT: &str = "reading file\n\nMOST CALLS TO ALLOCATION FUNCTIONS\n\
        3 calls to allocation functions with 1.06K peak consumption from\neat\n  in /opt/demo\n\
        2 calls with 64B peak consumption from:\n    main\n\n\
        1 calls to allocation functions with 0B peak consumption from\ndrink\n  in /opt/demo\n\n\n\
        MEMORY LEAKS\n7B leaked over 1 calls from\nlose\n\n\n\
        total runtime: 0.03s.\ncalls to allocation functions: 7 (218/s)\ntotal memory leaked: 7B\n";

    #[test]
    fn finds_totals_and_groups() {
        let report = Report::new(TEXT.as_bytes());
        assert_eq!(report.calls(), 7);
        assert_eq!(report.total("total memory leaked"), "7B");
        assert_eq!(
            report.leaves("MOST CALLS TO ALLOCATION FUNCTIONS"),
            ["eat", "drink"]
        );
        assert_eq!(report.leaves("MEMORY LEAKS"), ["lose"]);
        assert!(report.leaves("PEAK MEMORY CONSUMERS").is_empty());
    }

    #[test]
    fn prints_sizes_as_heaptrack_does() {
        let printed = [0, 1000, 1001, 1375, 1_000_000, 1_000_001].map(size);
        assert_eq!(
            printed,
            ["0B", "1000B", "1.00K", "1.38K", "1000.00K", "1.00M"]
        );
    }
}
