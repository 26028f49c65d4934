//! How to read, where readers differ.

use crate::window::Window;

/// How to read where readers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Time that runs backwards is refused (heaptrack 1.6 and we) or accepted (1.4, 1.5).
    pub refuse_decreasing_time: bool,
    /// A raw record ends reading (heaptrack 1.6 and we) or is one more unknown line.
    pub refuse_raw: bool,
    /// A second command line ends reading (heaptrack) or is skipped.
    pub refuse_second_command: bool,
    /// A free of an unknown info ends reading, because heaptrack crashes there, or is skipped.
    pub refuse_unknown_free: bool,
    /// Embedded suppressions may be sized strings, as recorders write them; heaptrack's readers
    /// expect plain text.
    pub sized_suppressions: bool,
    /// Embedded suppressions are not looked at, not even for errors.
    pub ignore_suppressions: bool,
    /// Only what happens within this window counts.
    pub window: Option<Window>,
    /// Bytes of memory that the tables may take.
    pub memory_limit: usize,
}

impl Rules {
    /// Tables larger than this are refused: a real trace of a billion events has a hundredth.
    pub const MEMORY_LIMIT: usize = 8 << 30;

    /// The rules of our own reading: skip what is wrong, say so, go on.
    pub const LENIENT: Self = Self {
        refuse_decreasing_time: true,
        refuse_raw: true,
        refuse_second_command: false,
        refuse_unknown_free: false,
        sized_suppressions: true,
        ignore_suppressions: false,
        window: None,
        memory_limit: Self::MEMORY_LIMIT,
    };
}

/// Which records count in this pass over the file. heaptrack reads every file twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// All of them.
    Only,
    /// All of them; another pass may follow.
    First,
    /// Events only; the tables are there already.
    Second,
}
