//! From records to a profile.
//!
//! [`Builder`] takes the records of one file, one after the other, and adds them up. It knows what
//! records mean and nothing of bytes, files or output. Where heaptrack's versions read a malformed
//! file differently, [`Rules`] says which way to go.

mod events;
mod raw;
mod rules;
mod tables;

use htrace_trace_format::{Place, Record};

pub use rules::{Pass, Rules};

use crate::accounting::{Accounting, PeakPolicy};
use crate::notes::Notes;
use crate::observer::{Observer, Snapshot};
use crate::problem::{Diagnostics, LoadError, Problem, ProblemLog};
use crate::profile::Profile;
use crate::tables::Tables;
use crate::window::WindowBlocks;
use raw::RawEvents;

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
