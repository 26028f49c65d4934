//! The command line of `report`: heaptrack_print's options and ours.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::bail;
use htrace_analysis::CostKind;
use htrace_analysis::massif::MassifOptions;
use htrace_analysis::report::{ReportOptions as Sections, Style};
use htrace_analysis::request::{Format, Request, Suppressions, View};
use htrace_analysis::tree::{Direction, TreeOptions};
use htrace_analysis::window::Window;

/// Print what a heap trace adds up to: who allocates most, at the peak, temporarily, and what
/// leaks.
#[derive(Debug, clap::Parser)]
#[command(name = "htrace-bpf report")]
pub struct ReportOptions {
    /// The trace: zstd, gzip or plain, by content; - reads standard input.
    #[arg(value_name = "FILE")]
    positional: Option<PathBuf>,
    /// The trace, as an option.
    #[arg(short, long)]
    file: Option<PathBuf>,
    /// Subtract this trace: print what FILE has more or less.
    #[arg(short, long, value_name = "BASE")]
    diff: Option<PathBuf>,
    /// Shorten template identifiers.
    #[arg(short = 't', long, value_name = "BOOL", default_value = "1", value_parser = parse_bool, require_equals = true, action = clap::ArgAction::Set)]
    shorten_templates: bool,
    /// Merge backtraces by the function that allocates.
    #[arg(short = 'm', long, value_name = "BOOL", default_value = "1", value_parser = parse_bool, require_equals = true, action = clap::ArgAction::Set)]
    merge_backtraces: bool,
    /// Print the backtraces that held most memory at the peak.
    #[arg(short = 'p', long, value_name = "BOOL", default_value = "1", value_parser = parse_bool, require_equals = true, action = clap::ArgAction::Set)]
    print_peaks: bool,
    /// Print the backtraces that allocate most often.
    #[arg(short = 'a', long, value_name = "BOOL", default_value = "1", value_parser = parse_bool, require_equals = true, action = clap::ArgAction::Set)]
    print_allocators: bool,
    /// Print the backtraces of most temporary allocations.
    #[arg(short = 'T', long, value_name = "BOOL", default_value = "1", value_parser = parse_bool, require_equals = true, action = clap::ArgAction::Set)]
    print_temporary: bool,
    /// Print the backtraces of memory that was never freed.
    #[arg(short = 'l', long, value_name = "BOOL", default_value = "0", value_parser = parse_bool, require_equals = true, action = clap::ArgAction::Set)]
    print_leaks: bool,
    /// Entries of a ranking.
    #[arg(
        short = 'n',
        long,
        alias = "top",
        value_name = "N",
        default_value = "10",
        require_equals = true
    )]
    peak_limit: u64,
    /// Backtraces of a merged entry.
    #[arg(
        short = 's',
        long,
        value_name = "N",
        default_value = "5",
        require_equals = true
    )]
    sub_peak_limit: u64,
    /// Write a histogram of allocation sizes to this file.
    #[arg(short = 'H', long, value_name = "PATH")]
    print_histogram: Option<PathBuf>,
    /// Write folded stacks for flame graphs to this file.
    #[arg(short = 'F', long, value_name = "PATH")]
    print_flamegraph: Option<PathBuf>,
    /// The cost of folded stacks: allocations, temporary, leaked or peak.
    #[arg(long, value_name = "COST", default_value = "allocations", value_parser = parse_cost)]
    flamegraph_cost_type: CostKind,
    /// Write Massif snapshots, for ms_print, to this file.
    #[arg(short = 'M', long, value_name = "PATH")]
    print_massif: Option<PathBuf>,
    /// Percentage of the live memory below which Massif sums places up.
    #[arg(long, value_name = "PERCENT", default_value = "1")]
    massif_threshold: f64,
    /// Every how many Massif snapshots there is a tree; 0 for never.
    #[arg(long, value_name = "N", default_value = "2")]
    massif_detailed_freq: u64,
    /// Only backtraces through functions whose name contains TEXT.
    #[arg(long, value_name = "TEXT")]
    filter_bt_function: Option<String>,
    /// Only backtraces through modules whose path contains TEXT.
    #[arg(long, value_name = "TEXT")]
    filter_module: Option<String>,
    /// Leave out ranking entries that cost less.
    #[arg(long, value_name = "COST", default_value = "0")]
    min_cost: u64,
    /// A file of leak suppressions, one `leak:PATTERN` a line.
    #[arg(long, value_name = "PATH")]
    suppressions: Option<PathBuf>,
    /// Ignore suppressions that the target has embedded.
    #[arg(long)]
    disable_embedded_suppressions: bool,
    /// Ignore suppressions for leaks of system libraries.
    #[arg(long)]
    disable_builtin_suppressions: bool,
    /// Print what was suppressed by which pattern.
    #[arg(long, value_name = "BOOL", default_value = "0", value_parser = parse_bool, require_equals = true, action = clap::ArgAction::Set)]
    print_suppressions: bool,
    /// Only the ranking by this cost: allocations, temporary, leaked or peak.
    #[arg(long, value_name = "COST", value_parser = parse_cost)]
    sort: Option<CostKind>,
    /// How to print: text or json (see docs/report-json.md).
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
    format: Format,
    /// Only what was allocated from this time on, such as 1.5s or 200ms since the start.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    from: Option<i64>,
    /// Only what was allocated before this time.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    to: Option<i64>,
    /// Print how old leaked memory is.
    #[arg(long)]
    leak_ages: bool,
    /// Print inclusive costs: top-down, bottom-up or callers; may be given several times.
    #[arg(long, value_name = "VIEW", value_parser = parse_view)]
    tree: Vec<View>,
    /// The cost of trees.
    #[arg(long, value_name = "COST", default_value = "peak", value_parser = parse_cost)]
    tree_cost: CostKind,
    /// Leave out tree nodes below this percentage.
    #[arg(long, value_name = "PERCENT", default_value = "1")]
    tree_threshold: f64,
    /// Look for the modules of a raw trace under this directory.
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    pub sysroot: PathBuf,
    /// Refuse a damaged or truncated file instead of reporting what could be read.
    #[arg(long)]
    strict: bool,
}

impl ReportOptions {
    /// What the options ask for.
    ///
    /// # Errors
    /// When there is no file, or two.
    pub fn into_request(self) -> anyhow::Result<Request> {
        let window = self.window()?;
        let report = self.sections();
        let file = match (self.positional, self.file) {
            (Some(file), None) | (None, Some(file)) => file,
            (None, None) => bail!("no trace given; try: htrace-bpf report FILE"),
            (Some(one), Some(two)) => {
                bail!("two traces given: {} and {}", one.display(), two.display())
            }
        };
        Ok(Request {
            file,
            base: self.diff,
            report,
            histogram: self.print_histogram,
            flamegraph: self.print_flamegraph,
            flamegraph_cost: self.flamegraph_cost_type,
            massif: self.print_massif,
            massif_options: MassifOptions {
                style: Style::Mended,
                threshold: self.massif_threshold,
                detailed_frequency: self.massif_detailed_freq,
            },
            filter_function: self.filter_bt_function,
            filter_module: self.filter_module,
            suppressions: Suppressions {
                file: self.suppressions,
                embedded: !self.disable_embedded_suppressions,
                builtin: !self.disable_builtin_suppressions,
            },
            strict: self.strict,
            format: self.format,
            window,
            leak_ages: self.leak_ages,
            views: self.tree,
            tree: TreeOptions {
                kind: self.tree_cost,
                shorten_templates: self.shorten_templates,
                min_percent: self.tree_threshold,
                limit: usize::try_from(self.peak_limit).unwrap_or(usize::MAX),
            },
        })
    }

    fn sections(&self) -> Sections {
        Sections {
            style: Style::Mended,
            merge: self.merge_backtraces,
            shorten_templates: self.shorten_templates,
            allocators: self.wants(CostKind::Allocations),
            peaks: self.wants(CostKind::Peak),
            leaks: self.wants(CostKind::Leaked),
            temporary: self.wants(CostKind::Temporary),
            peak_limit: self.peak_limit,
            sub_peak_limit: self.sub_peak_limit,
            suppressions: self.print_suppressions,
            min_cost: self.min_cost,
        }
    }

    /// Whether the ranking by a cost is wanted.
    fn wants(&self, kind: CostKind) -> bool {
        match (self.sort, kind) {
            (Some(only), kind) => only == kind,
            (None, CostKind::Allocations) => self.print_allocators,
            (None, CostKind::Peak) => self.print_peaks,
            (None, CostKind::Leaked) => self.print_leaks,
            (None, CostKind::Temporary) => self.print_temporary,
        }
    }

    fn window(&self) -> anyhow::Result<Option<Window>> {
        if self.from.is_none() && self.to.is_none() {
            return Ok(None);
        }
        let window = Window {
            from: self.from.unwrap_or(0),
            to: self.to.unwrap_or(i64::MAX),
        };
        if window.from >= window.to {
            bail!("--from must be before --to");
        }
        Ok(Some(window))
    }

    /// The folder that the trace argument names, if it is one.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        let path = self.positional.as_ref().or(self.file.as_ref())?;
        path.is_dir().then_some(path)
    }
}

/// A time since the start in milliseconds: `1500ms`, `1.5s`, `1.5` (seconds) or `2m`.
fn parse_time(word: &str) -> Result<i64, String> {
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

fn parse_format(word: &str) -> Result<Format, String> {
    match word {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err("valid choices are text and json".into()),
    }
}

fn parse_view(word: &str) -> Result<View, String> {
    match word {
        "top-down" => Ok(View::Tree(Direction::TopDown)),
        "bottom-up" => Ok(View::Tree(Direction::BottomUp)),
        "callers" => Ok(View::CallersAndCallees),
        _ => Err("valid choices are top-down, bottom-up and callers".into()),
    }
}

/// The words that heaptrack_print takes for yes and no, in any case.
fn parse_bool(word: &str) -> Result<bool, String> {
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
pub(super) fn with_values(words: Vec<OsString>) -> Vec<OsString> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn parse(line: &str) -> ReportOptions {
        let words = with_values(line.split(' ').map(OsString::from).collect());
        ReportOptions::try_parse_from(std::iter::once("report".into()).chain(words)).unwrap()
    }

    #[test]
    fn leaks_are_asked_for_in_every_way_that_people_write() {
        for line in [
            "-l 1 f",
            "-l1 f",
            "--print-leaks=1 f",
            "--print-leaks f",
            "-l f",
            "f -l",
            "f -l yes",
        ] {
            let options = parse(line);
            assert!(options.print_leaks, "{line}");
            assert_eq!(options.positional, Some("f".into()), "{line}");
        }
        assert!(!parse("-l 0 f").print_leaks);
        assert!(!parse("-l0 -f f").print_leaks);
    }

    #[test]
    fn limits_take_numbers_and_leave_files_alone() {
        assert_eq!(parse("-n3 -s 7 f").peak_limit, 3);
        assert_eq!(parse("-n 3 -s 7 f").sub_peak_limit, 7);
        assert_eq!(parse("-n f").peak_limit, 10);
        assert_eq!(parse("--top=4 f").peak_limit, 4);
    }

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
        let window = parse("--from 1s --to 2s f").into_request().unwrap().window;
        assert_eq!(
            window,
            Some(Window {
                from: 1000,
                to: 2000
            })
        );
        assert!(parse("--from 2s --to 1s f").into_request().is_err());
    }

    #[test]
    fn sort_leaves_one_ranking() {
        let sections = parse("--sort leaked f").into_request().unwrap().report;
        assert!(sections.leaks && !sections.peaks && !sections.allocators && !sections.temporary);
    }

    #[test]
    fn words_behind_a_double_dash_are_no_options() {
        assert_eq!(with_values(vec!["--".into(), "-l".into()]), ["--", "-l"]);
        assert_eq!(parse("-- -l").positional, Some("-l".into()));
    }

    #[test]
    fn exactly_one_file_is_needed() {
        assert!(parse("a").into_request().is_ok());
        assert!(parse("-f a").into_request().is_ok());
        assert!(parse("-f a b").into_request().is_err());
        assert!(parse("-l").into_request().is_err());
    }
}
