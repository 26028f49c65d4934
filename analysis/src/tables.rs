//! The tables of a trace: strings, instruction pointers and the trace tree, and walking a
//! backtrace through them.
//!
//! Indices come from files and may point anywhere; every look-up answers for all of them: a string
//! out of range is empty, an instruction pointer out of range knows nothing, a trace out of range
//! is the root. Walks end even in a tree with cycles.

use htrace_trace_format::{Frame, IpIndex, StringIndex, TraceIndex};
use rustc_hash::FxHashSet;

/// Functions behind which a backtrace is of no interest: what calls them is the same everywhere.
const STOP_NAMES: [&[u8]; 3] = [
    b"main",
    b"__libc_start_main",
    b"__static_initialization_and_destruction_0",
];

/// Functions that are left out of backtraces: their caller is what allocates.
const OPERATOR_NEW_NAMES: [&[u8]; 4] = [
    b"operator new(unsigned long)",
    b"operator new[](unsigned long)",
    b"operator new(unsigned int)",
    b"operator new[](unsigned int)",
];

/// All strings of a trace in one allocation.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    /// The text at `index`; empty for none and out of range.
    #[must_use]
    pub fn get(&self, index: StringIndex) -> &[u8] {
        index
            .position()
            .and_then(|position| self.at(position))
            .unwrap_or_default()
    }

    fn at(&self, position: usize) -> Option<&[u8]> {
        let end = *self.ends.get(position)?;
        let start = match position {
            0 => 0,
            position => *self.ends.get(position - 1)?,
        };
        self.bytes.get(start..end)
    }

    /// Number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no string.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>()
    }

    /// Appends a string and returns its index; [`StringIndex::NONE`] when no index is left.
    pub fn push(&mut self, text: &[u8]) -> StringIndex {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
        StringIndex::from_position(self.ends.len() - 1).unwrap_or_default()
    }

    /// All strings with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (StringIndex, &[u8])> {
        (0..self.len()).filter_map(|position| {
            Some((StringIndex::from_position(position)?, self.at(position)?))
        })
    }
}

/// An instruction pointer; its inlined frames are a range of [`Tables`]' pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ip {
    /// The address: a return address minus one.
    pub address: u64,
    /// Path of the module.
    pub module: StringIndex,
    /// The innermost function.
    pub frame: Frame,
    inlined_start: u32,
    inlined_count: u32,
}

/// What makes two instruction pointers the same place: module, function, file and line, compared
/// in this order by index.
pub type PlaceKey = (StringIndex, StringIndex, StringIndex, i32);

impl Ip {
    /// The place, ignoring address and inlined frames.
    #[must_use]
    pub fn key(&self) -> PlaceKey {
        (
            self.module,
            self.frame.function,
            self.frame.file,
            self.frame.line,
        )
    }
}

/// A node of the trace tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Where the call is.
    pub ip: IpIndex,
    /// The caller.
    pub parent: TraceIndex,
}

/// Strings, instruction pointers and the trace tree of one trace.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// The strings.
    pub strings: Strings,
    ips: Vec<Ip>,
    inlined: Vec<Frame>,
    nodes: Vec<Node>,
    stop_strings: Vec<StringIndex>,
    operator_new_strings: Vec<StringIndex>,
    operator_new_ips: FxHashSet<IpIndex>,
}

impl Tables {
    /// Appends a string of the file; recognises names with a special meaning, each the first time
    /// it occurs.
    pub fn push_string(&mut self, text: &[u8]) {
        let index = self.strings.push(text);
        if STOP_NAMES.contains(&text) {
            note_first(&mut self.stop_strings, &self.strings, index, text);
        }
        if OPERATOR_NEW_NAMES.contains(&text) {
            note_first(&mut self.operator_new_strings, &self.strings, index, text);
        }
    }

    /// Appends an instruction pointer and returns its index.
    pub fn push_ip(
        &mut self,
        address: u64,
        module: StringIndex,
        frame: Frame,
        inlined: &[Frame],
    ) -> IpIndex {
        let inlined_start = u32::try_from(self.inlined.len()).unwrap_or(u32::MAX);
        let inlined_count = u32::try_from(inlined.len()).unwrap_or(0);
        self.inlined.extend_from_slice(inlined);
        self.ips.push(Ip {
            address,
            module,
            frame,
            inlined_start,
            inlined_count,
        });
        let index = IpIndex::from_position(self.ips.len() - 1).unwrap_or_default();
        if !frame.function.is_none() && self.operator_new_strings.contains(&frame.function) {
            self.operator_new_ips.insert(index);
        }
        index
    }

    /// Appends a node as the file has it: a node at an operator new becomes a copy of its parent.
    pub fn push_trace(&mut self, mut node: Node) -> TraceIndex {
        // Bounded because a hostile tree may have a cycle of such nodes.
        for _ in 0..=self.nodes.len() {
            if !self.operator_new_ips.contains(&node.ip) {
                break;
            }
            node = self.node(node.parent);
        }
        self.push_node(node)
    }

    /// Appends a node as it is.
    pub fn push_node(&mut self, node: Node) -> TraceIndex {
        self.nodes.push(node);
        TraceIndex::from_position(self.nodes.len() - 1).unwrap_or_default()
    }

    /// The node at `index`; the root for none and out of range.
    #[must_use]
    pub fn node(&self, index: TraceIndex) -> Node {
        index
            .position()
            .and_then(|position| self.nodes.get(position))
            .copied()
            .unwrap_or_default()
    }

    /// All nodes in table order.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The instruction pointer at `index`; one that knows nothing for none and out of range.
    #[must_use]
    pub fn ip(&self, index: IpIndex) -> Ip {
        index
            .position()
            .and_then(|position| self.ips.get(position))
            .copied()
            .unwrap_or_default()
    }

    /// All instruction pointers in table order.
    #[must_use]
    pub fn ips(&self) -> &[Ip] {
        &self.ips
    }

    /// The functions that `ip`'s function was inlined into, from inner to outer.
    #[must_use]
    pub fn inlined(&self, ip: &Ip) -> &[Frame] {
        let start = ip.inlined_start as usize;
        self.inlined
            .get(start..start + ip.inlined_count as usize)
            .unwrap_or_default()
    }

    /// Whether a backtrace ends at this function.
    #[must_use]
    pub fn is_stop(&self, function: StringIndex) -> bool {
        self.stop_strings.contains(&function)
    }

    /// Whether a backtrace ends at this instruction pointer, looking only at its innermost
    /// function, as heaptrack does.
    #[must_use]
    pub fn is_stop_ip(&self, ip: &Ip) -> bool {
        self.is_stop(ip.frame.function)
    }

    /// Walks from `trace` towards the root, leaf first, without regard to stop names.
    #[must_use]
    pub fn walk(&self, trace: TraceIndex) -> Walk<'_> {
        Walk {
            tables: self,
            next: trace,
            left: self.nodes.len(),
        }
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.strings.memory()
            + self.ips.len() * size_of::<Ip>()
            + self.inlined.len() * size_of::<Frame>()
            + self.nodes.len() * size_of::<Node>()
    }
}

/// Appends `index` unless a string with the same text is in the list already.
fn note_first(list: &mut Vec<StringIndex>, strings: &Strings, index: StringIndex, text: &[u8]) {
    if !index.is_none() && !list.iter().any(|&known| strings.get(known) == text) {
        list.push(index);
    }
}

/// The instruction pointers of a backtrace, leaf first. Ends at the first node without one, or
/// after as many nodes as the tree has, so that a cycle ends too.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    tables: &'a Tables,
    next: TraceIndex,
    left: usize,
}

impl Iterator for Walk<'_> {
    type Item = (IpIndex, Ip);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let node = self.tables.node(self.next);
        if node.ip.is_none() {
            return None;
        }
        self.next = node.parent;
        Some((node.ip, self.tables.ip(node.ip)))
    }
}
