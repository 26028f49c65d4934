//! heaptrack_print's command line, with the rules of boost's program_options 1.74 and its
//! messages.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::{ArgumentPath, Sections};
use crate::cost::CostKind;
use crate::report::Style;

/// Our own words for heaptrack_print's options.
pub(super) const HELP: &str = "\
htrace-bpf in the place of heaptrack_print: analyzes heap traces.

Options:
  -f [ --file ] arg                          the trace; may also stand without -f
  -d [ --diff ] arg                          subtract this trace
  -t [ --shorten-templates ] [=arg(=1)] (=1) leave out template arguments
  -m [ --merge-backtraces ] [=arg(=1)] (=1)  merge backtraces by the allocating function
  -p [ --print-peaks ] [=arg(=1)] (=1)       rank by memory held at the peak
  -a [ --print-allocators ] [=arg(=1)] (=1)  rank by number of allocations
  -T [ --print-temporary ] [=arg(=1)] (=1)   rank by number of temporary allocations
  -l [ --print-leaks ] [=arg(=1)] (=0)       rank by memory never freed
  -n [ --peak-limit ] [=arg(=10)] (=10)      entries of a ranking
  -s [ --sub-peak-limit ] [=arg(=5)] (=5)    backtraces of a merged entry
  -H [ --print-histogram ] arg               file for a histogram of sizes
  --flamegraph-cost-type arg (=0)            allocations, temporary, leaked or peak
  -F [ --print-flamegraph ] arg              file for folded stacks
  -M [ --print-massif ] arg                  file for Massif snapshots
  --massif-threshold arg (=1)                percentage below which places are summed up
  --massif-detailed-freq arg (=2)            every how many snapshots there is a tree
  --filter-bt-function arg                   only backtraces through this function
  --suppressions arg                         file of leak suppressions
  --disable-embedded-suppressions            ignore suppressions embedded in the target
  --disable-builtin-suppressions             ignore suppressions for system libraries
  --print-suppressions [=arg(=1)] (=0)       show what was suppressed
  -h [ --help ]                              show this text
  -v [ --version ]                           show the version
";

/// What the command line asks for.
#[derive(Debug)]
pub(super) struct Arguments {
    pub(super) file: ArgumentPath,
    pub(super) diff: Option<ArgumentPath>,
    pub(super) report: Sections,
    pub(super) histogram: Option<ArgumentPath>,
    pub(super) flamegraph: Option<ArgumentPath>,
    pub(super) flamegraph_cost: CostKind,
    pub(super) massif: Option<ArgumentPath>,
    pub(super) massif_threshold: f64,
    pub(super) massif_detailed_frequency: u64,
    pub(super) filter_function: Option<Vec<u8>>,
    pub(super) suppressions: Option<ArgumentPath>,
    pub(super) embedded_suppressions: bool,
    pub(super) builtin_suppressions: bool,
}

/// A command line that makes sense.
#[derive(Debug)]
pub(super) enum Parsed {
    Run(Box<Arguments>),
    Help,
    Version,
}

/// How many values an option takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arity {
    None,
    One,
    /// At most one, and this one when there is none.
    Optional(&'static str),
}

struct Known {
    name: &'static str,
    letter: Option<u8>,
    arity: Arity,
}

const fn known(name: &'static str, letter: u8, arity: Arity) -> Known {
    Known {
        name,
        letter: if letter == 0 { None } else { Some(letter) },
        arity,
    }
}

const KNOWN: [Known; 23] = [
    known("file", b'f', Arity::One),
    known("diff", b'd', Arity::One),
    known("shorten-templates", b't', Arity::Optional("1")),
    known("merge-backtraces", b'm', Arity::Optional("1")),
    known("print-peaks", b'p', Arity::Optional("1")),
    known("print-allocators", b'a', Arity::Optional("1")),
    known("print-temporary", b'T', Arity::Optional("1")),
    known("print-leaks", b'l', Arity::Optional("1")),
    known("peak-limit", b'n', Arity::Optional("10")),
    known("sub-peak-limit", b's', Arity::Optional("5")),
    known("print-histogram", b'H', Arity::One),
    known("flamegraph-cost-type", 0, Arity::One),
    known("print-flamegraph", b'F', Arity::One),
    known("print-massif", b'M', Arity::One),
    known("massif-threshold", 0, Arity::One),
    known("massif-detailed-freq", 0, Arity::One),
    known("filter-bt-function", 0, Arity::One),
    known("suppressions", 0, Arity::One),
    known("disable-embedded-suppressions", 0, Arity::None),
    known("disable-builtin-suppressions", 0, Arity::None),
    known("print-suppressions", 0, Arity::Optional("1")),
    known("help", b'h', Arity::None),
    known("version", b'v', Arity::None),
];

/// Reads the command line.
///
/// # Errors
/// boost's message.
pub(super) fn parse(words: &[OsString]) -> Result<Parsed, String> {
    let given = Given::collect(words)?;
    if given.has("help") {
        return Ok(Parsed::Help);
    }
    if given.has("version") {
        return Ok(Parsed::Version);
    }
    let Some(file) = given.path("file") else {
        return Err("the option '--file' is required but missing".into());
    };
    given
        .into_arguments(file)
        .map(|arguments| Parsed::Run(Box::new(arguments)))
}

/// Options and their values in order of the command line.
struct Given {
    values: Vec<(&'static str, OsString)>,
}

impl Given {
    fn collect(words: &[OsString]) -> Result<Self, String> {
        let mut given = Self { values: Vec::new() };
        let mut words = words.iter().peekable();
        let mut positional = Vec::new();
        while let Some(word) = words.next() {
            if word == "--" {
                positional.extend(words.by_ref().cloned());
                break;
            }
            let Some((option, attached, shown)) = as_option(word)? else {
                positional.push(word.clone());
                continue;
            };
            let next = || words.next_if(|next| !next.as_bytes().starts_with(b"-"));
            let value = value_of(option, attached, &shown, next)?;
            given.values.push((option.name, value));
        }
        given
            .values
            .extend(positional.into_iter().map(|path| ("file", path)));
        given.check()?;
        Ok(given)
    }

    /// Every option at most once, every value of its type.
    fn check(&self) -> Result<(), String> {
        for (position, (name, _)) in self.values.iter().enumerate() {
            if self.values[..position]
                .iter()
                .any(|(earlier, _)| earlier == name)
            {
                return Err(format!(
                    "option '--{name}' cannot be specified more than once"
                ));
            }
        }
        for (name, _) in &self.values {
            match *name {
                "peak-limit" | "sub-peak-limit" | "massif-detailed-freq" => {
                    self.unsigned(name, 0)?;
                }
                "massif-threshold" => {
                    self.double(name, 0.0)?;
                }
                "flamegraph-cost-type" => {
                    self.cost()?;
                }
                name if matches!(arity(name), Arity::Optional(_)) => {
                    self.boolean(name, false)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn value(&self, name: &str) -> Option<&OsStr> {
        self.values
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.as_os_str())
    }

    fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    fn path(&self, name: &str) -> Option<ArgumentPath> {
        self.value(name).map(ArgumentPath::from)
    }

    fn boolean(&self, name: &str, default: bool) -> Result<bool, String> {
        let Some(value) = self.value(name) else {
            return Ok(default);
        };
        let lower = value.to_string_lossy().to_ascii_lowercase();
        match lower.as_str() {
            "" | "1" | "on" | "yes" | "true" => Ok(true),
            "0" | "off" | "no" | "false" => Ok(false),
            _ => Err(format!(
                "{}. Valid choices are 'on|off', 'yes|no', '1|0' and 'true|false'",
                invalid(name, value)
            )),
        }
    }

    /// A negative number wraps, as in C++.
    fn unsigned(&self, name: &str, default: u64) -> Result<u64, String> {
        let Some(value) = self.value(name) else {
            return Ok(default);
        };
        let text = value.to_str().unwrap_or("x");
        let (negative, digits) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        match digits.parse::<u64>() {
            Ok(number) if all_digits => Ok(if negative {
                number.wrapping_neg()
            } else {
                number
            }),
            _ => Err(invalid(name, value)),
        }
    }

    fn double(&self, name: &str, default: f64) -> Result<f64, String> {
        let Some(value) = self.value(name) else {
            return Ok(default);
        };
        let text = value.to_str().unwrap_or("x");
        let plain = !text.ends_with(['e', 'E']) && !text.starts_with(char::is_whitespace);
        text.parse()
            .ok()
            .filter(|_| plain)
            .ok_or_else(|| invalid(name, value))
    }

    fn cost(&self) -> Result<CostKind, String> {
        let name = "flamegraph-cost-type";
        let Some(value) = self.value(name) else {
            return Ok(CostKind::Allocations);
        };
        value
            .to_str()
            .and_then(CostKind::from_name)
            .ok_or_else(|| invalid(name, value))
    }

    fn into_arguments(self, file: ArgumentPath) -> Result<Arguments, String> {
        Ok(Arguments {
            file,
            diff: self.path("diff"),
            report: Sections {
                style: Style::Heaptrack,
                merge: self.boolean("merge-backtraces", true)?,
                shorten_templates: self.boolean("shorten-templates", true)?,
                allocators: self.boolean("print-allocators", true)?,
                peaks: self.boolean("print-peaks", true)?,
                leaks: self.boolean("print-leaks", false)?,
                temporary: self.boolean("print-temporary", true)?,
                peak_limit: self.unsigned("peak-limit", 10)?,
                sub_peak_limit: self.unsigned("sub-peak-limit", 5)?,
                suppressions: self.boolean("print-suppressions", false)?,
                min_cost: 0,
            },
            histogram: self.path("print-histogram"),
            flamegraph: self.path("print-flamegraph"),
            flamegraph_cost: self.cost()?,
            massif: self.path("print-massif"),
            massif_threshold: self.double("massif-threshold", 1.0)?,
            massif_detailed_frequency: self.unsigned("massif-detailed-freq", 2)?,
            filter_function: self
                .value("filter-bt-function")
                .map(|text| text.as_bytes().to_vec()),
            suppressions: self.path("suppressions"),
            embedded_suppressions: !self.has("disable-embedded-suppressions"),
            builtin_suppressions: !self.has("disable-builtin-suppressions"),
        })
    }
}

fn arity(name: &str) -> Arity {
    KNOWN
        .iter()
        .find(|known| known.name == name)
        .map_or(Arity::None, |known| known.arity)
}

fn invalid(name: &str, value: &OsStr) -> String {
    format!(
        "the argument ('{}') for option '--{name}' is invalid",
        value.to_string_lossy()
    )
}

/// An option, the value attached to it, and the option as a message shows it.
type GivenOption = (&'static Known, Option<OsString>, String);

/// Takes a word for an option if it looks like one.
fn as_option(word: &OsStr) -> Result<Option<GivenOption>, String> {
    let bytes = word.as_bytes();
    if let Some(long) = bytes.strip_prefix(b"--") {
        return long_option(long).map(Some);
    }
    match bytes {
        [b'-', letter, value @ ..] => {
            let known = KNOWN.iter().find(|known| known.letter == Some(*letter));
            let known = known.ok_or_else(|| {
                format!("unrecognised option '{}'", String::from_utf8_lossy(bytes))
            })?;
            let attached = (!value.is_empty()).then(|| OsString::from_vec(value.to_vec()));
            Ok(Some((known, attached, format!("--{}", known.name))))
        }
        _ => Ok(None),
    }
}

fn long_option(long: &[u8]) -> Result<GivenOption, String> {
    let (name, value) = match long.iter().position(|&byte| byte == b'=') {
        Some(at) => (
            &long[..at],
            Some(OsString::from_vec(long[at + 1..].to_vec())),
        ),
        None => (long, None),
    };
    let name = String::from_utf8_lossy(name).into_owned();
    if value.as_ref().is_some_and(|value| value.is_empty()) {
        return Err(format!(
            "the argument for option '--{name}' should follow immediately after the equal sign"
        ));
    }
    let known = find_long(&name)?;
    Ok((known, value, format!("--{}", known.name)))
}

/// The option with that name, or the only one that starts with it.
fn find_long(name: &str) -> Result<&'static Known, String> {
    if let Some(known) = KNOWN.iter().find(|known| known.name == name) {
        return Ok(known);
    }
    let candidates: Vec<&Known> = KNOWN
        .iter()
        .filter(|known| known.name.starts_with(name))
        .collect();
    match candidates[..] {
        [only] => Ok(only),
        [] => Err(format!("unrecognised option '--{name}'")),
        _ => Err(ambiguous(name, &candidates)),
    }
}

fn ambiguous(name: &str, candidates: &[&Known]) -> String {
    let mut names: Vec<String> = candidates
        .iter()
        .map(|known| format!("'--{}'", known.name))
        .collect();
    names.sort();
    let (last, others) = names
        .split_last()
        .map_or((String::new(), &[][..]), |(last, others)| {
            (last.clone(), others)
        });
    let comma = if others.len() > 1 { "," } else { "" };
    let others = others.join(", ");
    format!("option '--{name}' is ambiguous and matches {others}{comma} and {last}")
}

/// The value of an option: the one attached, or the next word where that is no option.
fn value_of<'a>(
    option: &Known,
    attached: Option<OsString>,
    shown: &str,
    mut next: impl FnMut() -> Option<&'a OsString>,
) -> Result<OsString, String> {
    match (option.arity, attached) {
        (Arity::None, Some(_)) => Err(format!("option '{shown}' does not take any arguments")),
        (Arity::None, None) => Ok(OsString::new()),
        (_, Some(value)) => Ok(value),
        (Arity::One, None) => next()
            .cloned()
            .ok_or_else(|| format!("the required argument for option '{shown}' is missing")),
        (Arity::Optional(default), None) => Ok(next().map_or_else(|| default.into(), Clone::clone)),
    }
}
