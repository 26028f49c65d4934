//! Compares the stacks of a program's calls with the reference's, and says what came of it.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::mpsc,
};

use htrace_bpf::{
    drain::{Batch, Item},
    modules::{MappedName, MapsEntry, maps},
};
use htrace_ebpf_common::wire::{Event, StackEnd};

/// Numbers of calls by why their stacks end early, and in which file: `no-table in libx.so`.
pub(crate) type Reasons = BTreeMap<String, u64>;

/// What a comparison came to, in calls.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The program's exit status; `None` if a signal ended it.
    pub(crate) status: Option<i32>,
    /// Both stacks are the same, and ours is whole.
    pub(crate) exact: u64,
    /// Ours is whole and goes on where the reference ends.
    pub(crate) deeper: u64,
    /// Both end at the same frame, and ours says why: for it there is no unwind data, or it has no
    /// caller. This is what 'where unwind data exists' leaves out, and nothing else.
    pub(crate) without_data: Reasons,
    /// Ours ends early, and says why; what there is of it is the same.
    pub(crate) short: Reasons,
    /// Anything else.
    pub(crate) wrong: u64,
    /// One that is wrong: ours and the reference's.
    pub(crate) example: Option<String>,
    /// Counters of the programs that are not 0.
    pub(crate) counters: BTreeMap<&'static str, u64>,
}

impl Outcome {
    /// Calls whose stacks were compared.
    pub(crate) fn compared(&self) -> u64 {
        self.exact + self.deeper + total(&self.without_data) + total(&self.short) + self.wrong
    }

    /// True if all but one in a thousand are whole, of those for which there is unwind data.
    pub(crate) fn is_complete(&self) -> bool {
        total(&self.short) <= self.with_data() / 1000
    }

    /// Share of whole stacks among those for which there is unwind data, of 100.
    pub(crate) fn complete_percent(&self) -> f64 {
        let whole = self.exact + self.deeper;
        100.0 * whole as f64 / self.with_data().max(1) as f64
    }

    fn with_data(&self) -> u64 {
        self.compared() - total(&self.without_data)
    }
}

pub(crate) fn total(reasons: &Reasons) -> u64 {
    reasons.values().sum()
}

/// A line of the table whose head is [`HEAD`].
impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:>9} {:>9} {:>6} {:>7} {:>6} {:>6} {:>9.4}",
            self.compared(),
            self.exact,
            self.deeper,
            total(&self.without_data),
            total(&self.short),
            self.wrong,
            self.complete_percent(),
        )?;
        let reasons = [("no data", &self.without_data), ("short", &self.short)];
        for (kind, reasons) in reasons {
            for (reason, count) in reasons {
                write!(formatter, "\n    {kind}: {count} {reason}")?;
            }
        }
        Ok(())
    }
}

/// Heads of the columns of an [`Outcome`].
pub(crate) const HEAD: &str = "   stacks     exact deeper no data  short  wrong complete %";

/// Calls by what was expected and what was found, and the stacks found.
#[derive(Default)]
pub(crate) struct Calls {
    counts: HashMap<(u64, u64), u64>,
    stacks: HashMap<u64, Stack>,
    mappings: Vec<MapsEntry>,
}

struct Stack {
    end: StackEnd,
    frames: Vec<u64>,
    /// Why it ends, and in which file.
    reason: String,
}

impl Calls {
    /// Counts the calls of all batches.
    pub(crate) fn count(batches: &mpsc::Receiver<Batch>) -> Self {
        let mut calls = Self::default();
        while let Ok(batch) = batches.recv() {
            for item in &batch.items {
                match item {
                    Item::Records(records) => records
                        .iter()
                        .for_each(|record| calls.add(&record.unwrap().event)),
                    Item::Mappings(text) => {
                        calls.mappings = maps::parse(text).map_while(Result::ok).collect();
                    }
                }
            }
        }
        calls
    }

    fn add(&mut self, event: &Event<'_>) {
        match *event {
            Event::Stack { id, end, frames } => {
                let frames: Vec<u64> = frames.iter().collect();
                let reason = self.reason(end, frames.last());
                let stack = Stack {
                    end,
                    frames,
                    reason,
                };
                self.stacks.insert(id, stack);
            }
            Event::Allocation { pointer, stack, .. } => {
                *self.counts.entry((pointer, stack)).or_default() += 1;
            }
            _ => {}
        }
    }

    fn reason(&self, end: StackEnd, last: Option<&u64>) -> String {
        let mapping = last.and_then(|address| {
            let mut mappings = self.mappings.iter();
            mappings.find(|mapping| (mapping.start..mapping.end).contains(address))
        });
        let file = match mapping.map(|mapping| &mapping.name) {
            None => "unknown memory".into(),
            Some(MappedName::Anonymous) => "memory without a name".into(),
            Some(MappedName::Special(name)) => name.clone(),
            Some(MappedName::File { path, .. }) => path.to_string_lossy().into_owned(),
        };
        format!("{} in {file}", end.name())
    }

    /// Compares all calls with the reference's stacks, by their ids.
    pub(crate) fn compare(&self, reference: &HashMap<u64, Vec<u64>>) -> Outcome {
        let mut outcome = Outcome::default();
        for ((expected, found), count) in &self.counts {
            if expected == found {
                outcome.exact += count;
                continue;
            }
            match (self.stacks.get(found), reference.get(expected)) {
                (Some(ours), Some(theirs)) => outcome.add(ours, theirs, *count),
                _ => {
                    outcome.wrong += count;
                    outcome.example = Some(format!("no stack {found:x} or {expected:x}"));
                }
            }
        }
        outcome
    }
}

impl Outcome {
    /// Adds calls whose stacks, or whose ends, differ.
    fn add(&mut self, ours: &Stack, theirs: &[u64], count: u64) {
        let Stack {
            end,
            frames,
            reason,
        } = ours;
        let is_short = *end != StackEnd::Complete;
        let may_be_last = !matches!(end, StackEnd::Depth | StackEnd::Locked);
        if is_short && frames == theirs && may_be_last {
            *self.without_data.entry(reason.clone()).or_default() += count;
        } else if is_short && theirs.starts_with(frames) {
            *self.short.entry(reason.clone()).or_default() += count;
        } else if frames.len() > theirs.len() && frames.starts_with(theirs) {
            self.deeper += count;
        } else {
            self.wrong += count;
            self.example = Some(format!("{reason}\n{frames:x?}\n{theirs:x?}"));
        }
    }
}

#[test]
fn a_stack_is_wrong_unless_it_is_the_same_or_says_that_it_is_short() {
    use StackEnd::{Complete, Depth, Gap};
    let theirs = [1, 2, 3];
    let cases: [(StackEnd, &[u64], [u64; 4]); 8] = [
        // deeper, without data, short, wrong
        (Gap, &[1, 2, 3], [0, 1, 0, 0]),
        (Depth, &[1, 2, 3], [0, 0, 1, 0]),
        (Gap, &[1, 2], [0, 0, 1, 0]),
        (Complete, &[1, 2], [0, 0, 0, 1]),
        (Complete, &[1, 2, 3, 4], [1, 0, 0, 0]),
        (Complete, &[1, 2, 4], [0, 0, 0, 1]),
        (Gap, &[1, 4], [0, 0, 0, 1]),
        (Gap, &[1, 4, 3, 4], [0, 0, 0, 1]),
    ];
    for (end, frames, expected) in cases {
        let mut outcome = Outcome::default();
        let ours = Stack {
            end,
            frames: frames.to_vec(),
            reason: end.name().to_owned(),
        };
        outcome.add(&ours, &theirs, 1);
        let (without, short) = (total(&outcome.without_data), total(&outcome.short));
        let found = [outcome.deeper, without, short, outcome.wrong];
        assert_eq!(found, expected, "{end:?} {frames:?}");
    }
}

#[test]
fn ends_without_unwind_data_do_not_make_a_program_incomplete() {
    let mut outcome = Outcome {
        exact: 999,
        ..Outcome::default()
    };
    outcome.without_data.insert("generated-code".into(), 5000);
    assert!(outcome.is_complete());
    outcome.short.insert("no-table".into(), 1);
    assert!(outcome.is_complete());
    outcome.short.insert("no-table".into(), 2);
    assert!(!outcome.is_complete());
}
