//! What htrace-bpf's files say beyond heaptrack's format, stored in comment lines.
//!
//! A note is a line `# htrace-bpf: KEY VALUE…`; other readers skip it because it is a comment.
//! Vocabulary (values are decimal or text, separated by one space):
//!
//! | line | meaning |
//! |---|---|
//! | `version 0.1.0` | htrace-bpf of that version wrote the file; always the second line |
//! | `attached 1234` | recorded by attaching to the process 1234 |
//! | `started 1700000000000` | wall-clock start of the recording, milliseconds since 1970 |
//! | `lost ring-full 17` | 17 events were lost for that reason |
//! | `left-out functions 17 4000` | 17 allocations of 4000 bytes in all were left out by choice; without bytes: calls, also such as failed |
//! | `paused 1200 3400` | from 1200 ms to 3400 ms after the start only frees were recorded |
//! | `stack-end no-unwind-data 5` | the stacks of 5 allocations end for that reason |
//! | `stack-cut no-unwind-data 5 /usr/bin/x` | so do 5 in code of that module (none for unknown code) |
//! | `exit code 3`, `exit signal 9`, `exit detached` | how the target ended |
//! | `complete` | the recording was finished in order; always the last line |
//!
//! Counts of the same key and reason add up, so a recorder may write them as it goes. Unknown keys
//! are to be ignored. A file with `version` and without `complete` was cut short.

use std::fmt;

const PREFIX: &str = " htrace-bpf: ";

/// One note. Reasons are words without spaces, lower case, joined by `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note<'a> {
    /// Version of htrace-bpf that wrote the file.
    Version(&'a str),
    /// Process id that was attached to.
    Attached(u32),
    /// Wall-clock start, milliseconds since 1970.
    Started(u64),
    /// Events lost for a reason.
    Lost {
        /// Why.
        reason: &'a str,
        /// How many.
        count: u64,
    },
    /// Allocations that were left out by choice.
    LeftOut {
        /// Which choice: the option's name, or `paused`.
        reason: &'a str,
        /// How many.
        count: u64,
        /// Bytes in all, where they were counted.
        bytes: Option<u64>,
    },
    /// A time in which only frees were recorded, in milliseconds since the start.
    Paused {
        /// Its begin.
        from: u64,
        /// Its end.
        to: u64,
    },
    /// Why stacks end where they do; `complete` for those that reach the outermost frame.
    StackEnd {
        /// Why.
        reason: &'a str,
        /// How many allocations have such a stack.
        count: u64,
    },
    /// Where stacks are cut.
    StackCut {
        /// Why.
        reason: &'a str,
        /// How many allocations have such a stack.
        count: u64,
        /// Path of the module in whose code they end; empty for unknown code.
        module: &'a str,
    },
    /// How the target ended.
    Exit(TargetExit),
    /// The recording was finished in order.
    Complete,
    /// A key that this version does not know.
    Other {
        /// First word.
        key: &'a str,
        /// Everything behind it.
        value: &'a str,
    },
}

/// How the traced process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetExit {
    /// It exited with this status.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// It runs on; the recorder detached.
    Detached,
}

impl<'a> Note<'a> {
    /// Reads the text behind the `#` of a comment line; `None` when it is no note of ours.
    #[must_use]
    pub fn parse(comment: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(comment).ok()?.strip_prefix(PREFIX)?;
        let (key, value) = text.split_once(' ').unwrap_or((text, ""));
        Some(Self::from_words(key, value).unwrap_or(Self::Other { key, value }))
    }

    fn from_words(key: &'a str, value: &'a str) -> Option<Self> {
        let counted = || {
            let (reason, count) = value.split_once(' ')?;
            Some((reason, count.parse().ok()?))
        };
        Some(match key {
            "version" => Self::Version(value),
            "attached" => Self::Attached(value.parse().ok()?),
            "started" => Self::Started(value.parse().ok()?),
            "lost" => counted().map(|(reason, count)| Self::Lost { reason, count })?,
            "left-out" => {
                let (reason, rest) = value.split_once(' ')?;
                let (count, bytes) = match rest.split_once(' ') {
                    Some((count, bytes)) => (count, Some(bytes.parse().ok()?)),
                    None => (rest, None),
                };
                let count = count.parse().ok()?;
                Self::LeftOut {
                    reason,
                    count,
                    bytes,
                }
            }
            "paused" => {
                let (from, to) = value.split_once(' ')?;
                let (from, to) = (from.parse().ok()?, to.parse().ok()?);
                Self::Paused { from, to }
            }
            "stack-end" => counted().map(|(reason, count)| Self::StackEnd { reason, count })?,
            "stack-cut" => {
                let (reason, rest) = value.split_once(' ')?;
                let (count, module) = rest.split_once(' ').unwrap_or((rest, ""));
                let count = count.parse().ok()?;
                Self::StackCut {
                    reason,
                    count,
                    module,
                }
            }
            "exit" => Self::Exit(TargetExit::parse(value)?),
            "complete" => Self::Complete,
            _ => return None,
        })
    }
}

impl fmt::Display for Note<'_> {
    /// The whole line without its line feed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{PREFIX}")?;
        match self {
            Self::Version(version) => write!(f, "version {version}"),
            Self::Attached(pid) => write!(f, "attached {pid}"),
            Self::Started(milliseconds) => write!(f, "started {milliseconds}"),
            Self::Lost { reason, count } => write!(f, "lost {reason} {count}"),
            Self::LeftOut {
                reason,
                count,
                bytes,
            } => {
                write!(f, "left-out {reason} {count}")?;
                bytes.map_or(Ok(()), |bytes| write!(f, " {bytes}"))
            }
            Self::Paused { from, to } => write!(f, "paused {from} {to}"),
            Self::StackEnd { reason, count } => write!(f, "stack-end {reason} {count}"),
            Self::StackCut {
                reason,
                count,
                module,
            } => write!(f, "stack-cut {reason} {count} {module}"),
            Self::Exit(exit) => write!(f, "exit {exit}"),
            Self::Complete => f.write_str("complete"),
            Self::Other { key, value } => write!(f, "{key} {value}"),
        }
    }
}

impl TargetExit {
    fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            Some(("code", code)) => Some(Self::Code(code.parse().ok()?)),
            Some(("signal", signal)) => Some(Self::Signal(signal.parse().ok()?)),
            None if text == "detached" => Some(Self::Detached),
            _ => None,
        }
    }
}

impl fmt::Display for TargetExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Detached => f.write_str("detached"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_note_reads_back_as_written() {
        let notes = [
            Note::Version("0.1.0"),
            Note::Attached(1234),
            Note::Started(1_700_000_000_000),
            Note::Lost {
                reason: "ring-full",
                count: 17,
            },
            Note::LeftOut {
                reason: "min-size",
                count: 3,
                bytes: None,
            },
            Note::LeftOut {
                reason: "functions",
                count: 3,
                bytes: Some(400),
            },
            Note::Paused { from: 10, to: 20 },
            Note::StackEnd {
                reason: "no-unwind-data",
                count: u64::MAX,
            },
            Note::StackCut {
                reason: "gap",
                count: 2,
                module: "/usr/bin/a b",
            },
            Note::StackCut {
                reason: "gap",
                count: 2,
                module: "",
            },
            Note::Exit(TargetExit::Code(3)),
            Note::Exit(TargetExit::Signal(9)),
            Note::Exit(TargetExit::Detached),
            Note::Complete,
            Note::Other {
                key: "colour",
                value: "very blue",
            },
        ];
        for note in notes {
            let line = note.to_string();
            assert_eq!(Note::parse(&line.as_bytes()[1..]), Some(note), "{line}");
        }
    }

    #[test]
    fn other_comments_are_no_notes_and_bad_values_are_unknown_notes() {
        assert_eq!(Note::parse(b" strings: 3"), None);
        assert_eq!(Note::parse(b" htrace-bpf: \xff"), None);
        assert_eq!(
            Note::parse(b" htrace-bpf: lost ring-full many"),
            Some(Note::Other {
                key: "lost",
                value: "ring-full many"
            })
        );
    }
}
