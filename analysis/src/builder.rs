//! From records to a profile.
//!
//! [`Builder`] takes the records of one file, one after the other, and adds them up. It knows what
//! records mean and nothing of bytes, files or output. Where heaptrack's versions read a malformed
//! file differently, [`Rules`] says which way to go.

use htrace_trace_format::fields::Fields;
use htrace_trace_format::record::InstructionPointer;
use htrace_trace_format::{AllocationInfoIndex, Event, EventBatch, Place, Record, TraceIndex};
use rustc_hash::FxHashMap;

use crate::accounting::{Accounting, PeakPolicy};
use crate::notes::Notes;
use crate::observer::{Observer, Snapshot};
use crate::problem::{Diagnostics, LoadError, Problem, ProblemLog};
use crate::profile::Profile;
use crate::suppression::{SuppressionLine, parse_line};
use crate::tables::{Node, Tables};
use crate::window::Window;
use crate::window::WindowBlocks;

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

/// Adds records up.
#[derive(Debug)]
pub struct Builder {
    rules: Rules,
    pass: Pass,
    tables: Tables,
    accounting: Accounting,
    raw: RawEvents,
    window_blocks: WindowBlocks,
    command: Option<Vec<u8>>,
    attached: bool,
    page_size: i64,
    pages: i64,
    peak_rss_pages: i64,
    now: i64,
    embedded_suppressions: Vec<Vec<u8>>,
    notes: Notes,
    irregular: bool,
}

/// What turns the events of file version 0, which name addresses, into events of infos.
#[derive(Debug, Default)]
struct RawEvents {
    infos: FxHashMap<(u64, TraceIndex), AllocationInfoIndex>,
    live: FxHashMap<u64, AllocationInfoIndex>,
}

impl Builder {
    /// A builder for the first or only pass.
    #[must_use]
    pub fn new(rules: Rules, pass: Pass) -> Self {
        Self {
            rules,
            pass,
            tables: Tables::default(),
            accounting: Accounting::default(),
            raw: RawEvents::default(),
            window_blocks: WindowBlocks::default(),
            command: None,
            attached: false,
            page_size: 0,
            pages: 0,
            peak_rss_pages: 0,
            now: 0,
            embedded_suppressions: Vec::new(),
            notes: Notes::default(),
            irregular: false,
        }
    }

    /// The last time stamp.
    #[must_use]
    pub fn now(&self) -> i64 {
        self.now
    }

    /// Whether a second pass could come to another result than this one.
    #[must_use]
    pub fn is_irregular(&self) -> bool {
        self.irregular
    }

    /// Whether this is the second pass.
    #[must_use]
    pub fn is_second_pass(&self) -> bool {
        self.pass == Pass::Second
    }

    /// Gets ready for the second pass over the same file.
    pub fn start_second_pass(&mut self) {
        let total = self.accounting.total();
        let policy = PeakPolicy::Only {
            bytes: total.peak,
            time: self.accounting.peak_time(),
        };
        self.accounting.restart(policy);
        self.raw.live.clear();
        self.pass = Pass::Second;
        self.command = None;
        self.now = 0;
        self.peak_rss_pages = 0;
    }

    /// What has been read so far, at time `now`.
    #[must_use]
    pub fn so_far(&self, now: i64) -> Snapshot<'_> {
        Snapshot {
            accounting: &self.accounting,
            tables: &self.tables,
            command: self.command.as_deref(),
            now,
        }
    }

    /// How many allocation infos there are, which is what a batch of events may name.
    #[inline]
    #[must_use]
    pub fn known_infos(&self) -> usize {
        self.accounting.infos().len()
    }

    /// Adds a batch of events of known infos.
    #[inline]
    pub fn events(&mut self, batch: &EventBatch, observer: &mut impl Observer) {
        if self.now < 0 || batch.events().is_empty() {
            return;
        }
        if self.takes_bulk(observer) {
            self.accounting.bulk(batch.events(), self.now);
        } else {
            self.single_events(batch, observer);
        }
    }

    fn takes_bulk(&self, observer: &impl Observer) -> bool {
        self.rules.window.is_none() && self.accounting.takes_bulk() && !observer.looks()
    }

    #[inline(never)]
    fn single_events(&mut self, batch: &EventBatch, observer: &mut impl Observer) {
        if !self.in_window() {
            return;
        }
        for event in batch.events() {
            let (index, is_free) = (event.info(), event.is_free());
            if self.counts(index, is_free) && self.accounting.event(index, is_free, self.now) {
                self.tell(index, is_free, observer);
            }
        }
    }

    fn in_window(&self) -> bool {
        self.rules
            .window
            .is_none_or(|window| window.contains(self.now))
    }

    /// Whether an event counts; frees of blocks from before a time window do not.
    fn counts(&mut self, index: AllocationInfoIndex, is_free: bool) -> bool {
        let Some(window) = self.rules.window else {
            return true;
        };
        if !window.contains(self.now) {
            return false;
        }
        let counts = self.window_blocks.event(index, is_free);
        if !counts {
            self.accounting.interrupt();
        }
        counts
    }

    #[inline]
    fn tell(&self, index: AllocationInfoIndex, is_free: bool, observer: &mut impl Observer) {
        if is_free {
            observer.freed(index, self.so_far(self.now));
        } else {
            observer.allocated(index, self.so_far(self.now));
        }
    }

    fn event(
        &mut self,
        place: Place,
        (index, is_free): (AllocationInfoIndex, bool),
        observer: &mut impl Observer,
        diagnostics: &mut impl Diagnostics,
    ) -> Result<(), LoadError> {
        if self.now < 0 {
            return Ok(());
        }
        let is_known = index.position() < self.accounting.infos().len();
        if is_known
            && self.takes_bulk(observer)
            && let Some(event) = Event::new(index, is_free)
        {
            self.accounting.bulk(&[event], self.now);
            return Ok(());
        }
        if is_known && !self.counts(index, is_free) {
            return Ok(());
        }
        if !self.accounting.event(index, is_free, self.now) {
            return self.unknown_info(place, index, is_free, diagnostics);
        }
        self.tell(index, is_free, observer);
        Ok(())
    }

    #[cold]
    fn unknown_info(
        &mut self,
        place: Place,
        index: AllocationInfoIndex,
        deallocation: bool,
        diagnostics: &mut impl Diagnostics,
    ) -> Result<(), LoadError> {
        if deallocation && self.rules.refuse_unknown_free {
            let reason = "it frees a block that the file does not define";
            return Err(LoadError::WouldCrash { place, reason });
        }
        let known = self.accounting.infos().len();
        self.irregular = true;
        let problem = Problem::InfoOutOfRange {
            index: index.get(),
            known,
            deallocation,
        };
        diagnostics.problem(place, &problem);
        Ok(())
    }

    /// Adds one record that was read at `place`.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn record(
        &mut self,
        place: Place,
        record: Record<'_>,
        observer: &mut impl Observer,
        diagnostics: &mut impl Diagnostics,
    ) -> Result<(), LoadError> {
        match record {
            Record::String(_)
            | Record::InstructionPointer(_)
            | Record::Trace { .. }
            | Record::AllocationInfo { .. }
            | Record::Suppression(_)
            | Record::Attached => return self.table_record(place, record, diagnostics),
            Record::Allocation(index) => {
                return self.event(place, (index, false), observer, diagnostics);
            }
            Record::Deallocation(index) => {
                return self.event(place, (index, true), observer, diagnostics);
            }
            Record::RawAllocation {
                size,
                trace,
                pointer,
            } => {
                self.raw_allocate(size, trace, pointer, observer);
            }
            Record::RawDeallocation { pointer } => self.raw_free(pointer, observer),
            Record::Timestamp(time) => self.timestamp(place, time, observer, diagnostics),
            Record::Rss(pages) if self.now >= 0 && self.in_window() => {
                self.peak_rss_pages = self.peak_rss_pages.max(pages);
            }
            Record::System { page_size, pages } => {
                self.page_size = page_size.unwrap_or(self.page_size);
                self.pages = pages.unwrap_or(self.pages);
            }
            Record::Command(command) => return self.command(place, command, diagnostics),
            Record::Comment(comment) if self.pass != Pass::Second => self.notes.comment(comment),
            Record::RawOnly(line) if self.rules.refuse_raw => {
                return Err(LoadError::RawFile {
                    place,
                    line: line.to_vec(),
                });
            }
            Record::RawOnly(line) => {
                use htrace_trace_format::record::{Malformed, MalformedKind};
                let malformed = Malformed {
                    kind: MalformedKind::Unknown,
                    line,
                };
                self.malformed(place, &Problem::Malformed(malformed), diagnostics);
            }
            Record::Malformed(malformed) => {
                self.malformed(place, &Problem::Malformed(malformed), diagnostics);
            }
            _ => {}
        }
        Ok(())
    }

    fn malformed(
        &mut self,
        place: Place,
        problem: &Problem<'_>,
        diagnostics: &mut impl Diagnostics,
    ) {
        use htrace_trace_format::record::{Malformed, MalformedKind};
        let of_table = matches!(
            problem,
            Problem::Malformed(Malformed {
                kind: MalformedKind::AllocationInfo,
                ..
            })
        );
        if of_table && self.pass == Pass::Second {
            return;
        }
        self.irregular = true;
        diagnostics.problem(place, problem);
    }

    /// Records that fill tables: once, in the first pass.
    fn table_record(
        &mut self,
        place: Place,
        record: Record<'_>,
        diagnostics: &mut impl Diagnostics,
    ) -> Result<(), LoadError> {
        if self.pass == Pass::Second {
            return Ok(());
        }
        match record {
            Record::String(text) => self.tables.push_string(text),
            Record::InstructionPointer(InstructionPointer {
                ip,
                module,
                frame,
                inlined,
            }) => {
                self.tables.push_ip(ip, module, frame, inlined);
            }
            Record::Trace { ip, parent } => {
                self.tables.push_trace(Node { ip, parent });
            }
            Record::AllocationInfo { size, trace } => {
                self.accounting
                    .push_info(size, trace, self.tables.nodes().len());
            }
            Record::Suppression(line) => self.suppression(place, line, diagnostics),
            Record::Attached => self.attach(),
            _ => {}
        }
        let limit = self.rules.memory_limit;
        if self.tables.memory() + self.accounting.memory() > limit {
            return Err(LoadError::TooLarge { place, limit });
        }
        Ok(())
    }

    fn attach(&mut self) {
        self.attached = true;
        self.irregular |= !self.accounting.total().is_zero();
        if self.pass == Pass::First {
            self.accounting.reset_total();
        }
    }

    fn suppression(&mut self, place: Place, text: &[u8], diagnostics: &mut impl Diagnostics) {
        if self.rules.ignore_suppressions {
            return;
        }
        let text = if self.rules.sized_suppressions {
            unsized_text(text)
        } else {
            text
        };
        match parse_line(text) {
            SuppressionLine::Pattern(pattern) => {
                self.embedded_suppressions.push(pattern.to_vec());
            }
            SuppressionLine::Nothing => {}
            SuppressionLine::Invalid(line) => {
                diagnostics.problem(place, &Problem::BadSuppression(line));
            }
        }
    }

    fn command(
        &mut self,
        place: Place,
        command: &[u8],
        diagnostics: &mut impl Diagnostics,
    ) -> Result<(), LoadError> {
        if self.command.is_none() {
            self.command = Some(command.to_vec());
        } else if self.rules.refuse_second_command {
            return Err(LoadError::DuplicateCommand { place });
        } else {
            diagnostics.problem(place, &Problem::DuplicateCommand);
        }
        Ok(())
    }

    fn timestamp(
        &mut self,
        place: Place,
        time: i64,
        observer: &mut impl Observer,
        diagnostics: &mut impl Diagnostics,
    ) {
        if time < self.now || time < 0 {
            self.irregular = true;
            if self.rules.refuse_decreasing_time {
                let problem = Problem::DecreasingTime {
                    new: time,
                    old: self.now,
                };
                diagnostics.problem(place, &problem);
                return;
            }
        }
        observer.time_passed(self.so_far(time));
        self.now = time;
    }

    fn raw_allocate(
        &mut self,
        size: u64,
        trace: TraceIndex,
        pointer: u64,
        observer: &mut impl Observer,
    ) {
        self.irregular = true;
        if self.now < 0 {
            return;
        }
        let index = match self.raw.infos.get(&(size, trace)) {
            Some(&index) => index,
            None => self.raw_info(size, trace),
        };
        self.raw.live.insert(pointer, index);
        if !self.counts(index, false) {
            return;
        }
        if self.accounting.event_as(index, pointer, false, self.now) {
            observer.allocated(index, self.so_far(self.now));
        }
    }

    fn raw_info(&mut self, size: u64, trace: TraceIndex) -> AllocationInfoIndex {
        let index = AllocationInfoIndex::from_file(self.accounting.infos().len() as u32);
        self.raw.infos.insert((size, trace), index);
        self.accounting
            .push_info(size, trace, self.tables.nodes().len());
        index
    }

    fn raw_free(&mut self, pointer: u64, observer: &mut impl Observer) {
        if self.now < 0 {
            return;
        }
        let Some(index) = self.raw.live.remove(&pointer) else {
            return;
        };
        if !self.counts(index, true) {
            return;
        }
        if self.accounting.event_as(index, pointer, true, self.now) {
            observer.freed(index, self.so_far(self.now));
        }
    }

    /// The profile of a trace that ran for `runtime` milliseconds.
    #[must_use]
    pub fn finish(self, runtime: i64, problems: ProblemLog) -> Profile {
        let peak_time = self.accounting.peak_time();
        let runtime = match self.rules.window {
            Some(window) => window.length_within(runtime),
            None => runtime,
        };
        let freed_older = self.window_blocks.freed_older();
        let (entries, infos, total) = self.accounting.into_parts();
        Profile {
            tables: self.tables,
            entries,
            infos,
            total,
            runtime,
            peak_time,
            peak_rss_pages: self.peak_rss_pages,
            page_size: self.page_size,
            pages: self.pages,
            command: self.command,
            attached: self.attached,
            embedded_suppressions: self.embedded_suppressions,
            notes: self.notes,
            problems,
            suppressed: 0,
            freed_older,
        }
    }
}

/// The text of a line that may be a sized string: length in hexadecimal, a space, and exactly that
/// many bytes. Anything else is the text itself.
fn unsized_text(text: &[u8]) -> &[u8] {
    let Some(space) = text.iter().position(|&byte| byte == b' ') else {
        return text;
    };
    let line = [b"S ", text].concat();
    let length = Fields::new(&line)
        .hex()
        .ok()
        .and_then(|length| usize::try_from(length).ok());
    let rest = &text[space + 1..];
    if space > 0 && length == Some(rest.len()) {
        rest
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressions_are_taken_in_both_forms() {
        assert_eq!(unsized_text(b"8 leak:foo"), b"leak:foo");
        assert_eq!(unsized_text(b"leak:foo"), b"leak:foo");
        assert_eq!(unsized_text(b"9 leak:foo"), b"9 leak:foo");
        assert_eq!(unsized_text(b"0 "), b"");
        assert_eq!(unsized_text(b"c a b"), b"c a b");
    }
}
