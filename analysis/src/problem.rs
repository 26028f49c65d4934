//! What can be wrong with a file: problems that reading survives, and errors that end it.

use htrace_trace_format::fields::FieldError;
use htrace_trace_format::record::Malformed;
use htrace_trace_format::{Place, ReadError};

/// Something wrong that was skipped or read as well as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem<'a> {
    /// A field of a record of kind `letter` could not be read.
    Field {
        /// The record's letter.
        letter: u8,
        /// Why.
        error: FieldError,
    },
    /// A line that is no usable record.
    Malformed(Malformed<'a>),
    /// An event names an allocation info that does not exist.
    InfoOutOfRange {
        /// The number in the file.
        index: u32,
        /// How many infos exist.
        known: usize,
        /// Whether the event is a deallocation.
        deallocation: bool,
    },
    /// Time runs backwards.
    DecreasingTime {
        /// The stamp.
        new: i64,
        /// The one before.
        old: i64,
    },
    /// A line of a suppression list that is no suppression (trimmed).
    BadSuppression(&'a [u8]),
    /// A second command line in one file.
    DuplicateCommand,
}

/// Takes problems as they are found.
pub trait Diagnostics {
    /// There is a problem at `place`.
    fn problem(&mut self, place: Place, problem: &Problem<'_>);
}

/// Ignores every problem.
impl Diagnostics for () {
    fn problem(&mut self, _place: Place, _problem: &Problem<'_>) {}
}

/// What ends reading.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The reader could not go on.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A second command line, which heaptrack takes for corruption.
    #[error("the file has a second command line ({place})")]
    DuplicateCommand {
        /// The second one.
        place: Place,
    },
    /// The file is a raw trace, which has to be interpreted first.
    #[error("this is a raw trace that has to be interpreted first ({place})")]
    RawFile {
        /// The first raw record.
        place: Place,
        /// The line.
        line: Vec<u8>,
    },
    /// heaptrack would crash or hang here; only where its behaviour is asked for.
    #[error("heaptrack_print crashes on this file: {reason} ({place})")]
    WouldCrash {
        /// Where.
        place: Place,
        /// On what.
        reason: &'static str,
    },
    /// The file's tables need more memory than allowed.
    #[error("the tables of this file need more than {limit} bytes of memory ({place})")]
    TooLarge {
        /// Where the limit was passed.
        place: Place,
        /// The limit.
        limit: usize,
    },
}

/// The first problems in words and the number of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProblemLog {
    /// The first problems, with their places.
    pub first: Vec<String>,
    /// How many there were.
    pub count: u64,
}

/// Problems that are kept in words; a damaged file has millions, all alike.
const KEPT_PROBLEMS: usize = 10;

impl Diagnostics for ProblemLog {
    fn problem(&mut self, place: Place, problem: &Problem<'_>) {
        // A line that suppresses nothing takes nothing from the trace.
        let harmless = matches!(problem, Problem::BadSuppression(_));
        self.count += u64::from(!harmless);
        if self.first.len() < KEPT_PROBLEMS {
            self.first.push(format!("{place}: {}", describe(problem)));
        }
    }
}

/// A problem in words, without its place.
fn describe(problem: &Problem<'_>) -> String {
    match problem {
        Problem::Field { letter, error } => {
            format!(
                "a field of the {} record {}",
                letter.escape_ascii(),
                describe_field(*error)
            )
        }
        Problem::Malformed(malformed) => {
            format!("not a usable record: {}", excerpt(malformed.line))
        }
        Problem::InfoOutOfRange {
            index,
            known,
            deallocation,
        } => {
            let event = if *deallocation {
                "deallocation"
            } else {
                "allocation"
            };
            format!("the {event} names info {index}, but the file has defined {known}")
        }
        Problem::DecreasingTime { new, old } => {
            format!("time runs backwards, from {old} to {new} ms")
        }
        Problem::BadSuppression(line) => format!("not a suppression: {}", excerpt(line)),
        Problem::DuplicateCommand => "a second command line".into(),
    }
}

fn describe_field(error: FieldError) -> String {
    match error {
        FieldError::Missing => "is missing".into(),
        FieldError::NotHex { byte, position } => {
            format!("has '{}' at column {}", byte.escape_ascii(), position + 1)
        }
        FieldError::StringTooShort => "is longer than its line".into(),
    }
}

/// The start of a line, safe to print.
fn excerpt(line: &[u8]) -> String {
    const LONGEST: usize = 60;
    match line.get(..LONGEST) {
        Some(start) => format!("{}…", start.escape_ascii()),
        None => line.escape_ascii().to_string(),
    }
}
