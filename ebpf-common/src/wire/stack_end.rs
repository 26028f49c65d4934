//! Why a stack ends where it does: numbers of the ring buffer, and the words for them in files and
//! reports.

/// Why a stack ends where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum StackEnd {
    /// The outermost frame was reached.
    Complete = 0,
    /// More frames than fit into a record.
    Depth = 1,
    /// The next frame could not be read.
    Unreadable = 2,
    /// The next frame cannot be right.
    Suspect = 3,
    /// The last frame is in a file without an unwind table.
    NoTable = 4,
    /// The last frame is in code that its file's unwind data does not cover.
    Gap = 5,
    /// The last frame is in code whose unwind rule no table can express.
    Unsupported = 6,
    /// The last frame is in executable memory without a file: generated code.
    Jit = 7,
    /// The mapping of the last frame's address could not be looked up for a lock.
    Locked = 8,
    /// The outermost frame was reached, on the way through code without unwind data by its frame
    /// pointers: a guess.
    Guessed = 9,
}

impl StackEnd {
    /// The reason that a record's number stands for.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Complete,
            1 => Self::Depth,
            2 => Self::Unreadable,
            3 => Self::Suspect,
            4 => Self::NoTable,
            5 => Self::Gap,
            6 => Self::Unsupported,
            7 => Self::Jit,
            8 => Self::Locked,
            9 => Self::Guessed,
            _ => return None,
        })
    }

    /// True if the outermost frame was reached.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Complete | Self::Guessed)
    }

    /// The word by which files and reports name the reason.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Depth => "depth",
            Self::Unreadable => "unreadable",
            Self::Suspect => "suspect",
            Self::NoTable => "no-table",
            Self::Gap => "no-unwind-data",
            Self::Unsupported => "unsupported-rule",
            Self::Jit => "generated-code",
            Self::Locked => "mappings-locked",
            Self::Guessed => "complete-by-frame-pointers",
        }
    }
}
