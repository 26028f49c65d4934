//! The notes of htrace-bpf's own files, gathered while reading.

use std::collections::BTreeMap;
use std::io::{self, Write};

use htrace_trace_format::{Note, TargetExit};

use crate::left_out::LeftOut;

/// The word of recorders for a stack that is whole.
const WHOLE: &str = "complete";

/// Their word for a stack that is whole if code without unwind data kept frame pointers.
const GUESSED: &str = "complete-by-frame-pointers";

/// Distinct reasons that are kept; more than any recorder has, so that a hostile file cannot fill
/// the memory.
const MOST_REASONS: usize = 256;

/// What a file of ours says beyond heaptrack's format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Version of htrace-bpf that wrote the file; `None` for other writers.
    pub version: Option<String>,
    /// The process that was attached to.
    pub attached: Option<u32>,
    /// Wall-clock start, milliseconds since 1970.
    pub started: Option<u64>,
    /// Lost events by reason.
    pub lost: BTreeMap<String, u64>,
    /// What was left out by choice.
    pub left_out: LeftOut,
    /// Allocations by the reason for which their stacks end.
    pub stack_ends: BTreeMap<String, u64>,
    /// Allocations whose stacks are cut, by reason and module in whose code they end.
    pub stack_cuts: BTreeMap<(String, String), u64>,
    /// How the target ended.
    pub exit: Option<TargetExit>,
    /// The recording was finished in order.
    pub complete: bool,
}

impl Notes {
    /// Takes the text behind the `#` of a comment line.
    pub fn comment(&mut self, comment: &[u8]) {
        match Note::parse(comment) {
            Some(Note::Version(version)) => self.version = Some(version.into()),
            Some(Note::Attached(pid)) => self.attached = Some(pid),
            Some(Note::Started(milliseconds)) => self.started = Some(milliseconds),
            Some(Note::Lost { reason, count }) => add(&mut self.lost, reason, count),
            Some(Note::LeftOut {
                reason,
                count,
                bytes,
            }) => self.left_out.add(reason, count, bytes),
            Some(Note::Paused { from, to }) => self.left_out.pause(from, to),
            Some(Note::StackEnd { reason, count }) => add(&mut self.stack_ends, reason, count),
            Some(Note::StackCut {
                reason,
                count,
                module,
            }) => self.cut(reason, count, module),
            Some(Note::Exit(exit)) => self.exit = Some(exit),
            Some(Note::Complete) => self.complete = true,
            Some(Note::Other { .. }) | None => {}
        }
    }

    fn cut(&mut self, reason: &str, count: u64, module: &str) {
        let key = (reason.to_owned(), module.to_owned());
        if self.stack_cuts.len() < MOST_REASONS || self.stack_cuts.contains_key(&key) {
            let known = self.stack_cuts.entry(key).or_default();
            *known = known.saturating_add(count);
        }
    }

    /// Whether the file is ours and lacks its end.
    #[must_use]
    pub fn cut_short(&self) -> bool {
        self.version.is_some() && !self.complete
    }

    /// Allocations whose stacks are whole only if code without unwind data kept frame pointers.
    #[must_use]
    pub fn guessed_stacks(&self) -> u64 {
        self.stack_ends.get(GUESSED).copied().unwrap_or_default()
    }

    /// Allocations whose stacks end before the process's first function, by reason.
    pub fn cut_stacks(&self) -> impl Iterator<Item = (&str, u64)> {
        let ends = self.stack_ends.iter();
        ends.map(|(reason, count)| (reason.as_str(), *count))
            .filter(|(reason, _)| ![WHOLE, GUESSED].contains(reason))
    }

    /// Of the allocations whose stacks are cut for `reason`, in which module's code they end.
    pub fn cuts(&self, reason: &str) -> impl Iterator<Item = (&str, u64)> {
        let within = self.stack_cuts.iter();
        within
            .filter(move |((of, _), _)| of == reason)
            .map(|((_, module), count)| match module.as_str() {
                "" => ("unknown code", *count),
                module => (module, *count),
            })
    }

    /// Writes how the stacks of allocations ended and where they are cut; nothing for a file that
    /// does not say so.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_stack_ends(&self, out: &mut impl Write) -> io::Result<()> {
        if self.guessed_stacks() > 0 {
            let count = self.guessed_stacks();
            writeln!(out, "STACKS THAT REST ON FRAME POINTERS")?;
            writeln!(
                out,
                "{count:>12} allocations have a stack that leads through code without unwind data\n"
            )?;
        }
        if self.cut_stacks().next().is_none() {
            return Ok(());
        }
        let whole = self.stack_ends.get(WHOLE).copied().unwrap_or_default();
        writeln!(out, "STACKS CUT SHORT")?;
        writeln!(out, "{whole:>12} allocations have a whole stack")?;
        for (reason, count) in self.cut_stacks() {
            writeln!(out, "{count:>12} end early: {reason}")?;
            for (module, count) in self.cuts(reason) {
                writeln!(out, "{count:>16} in {module}")?;
            }
        }
        writeln!(out)
    }

    /// Events lost for any reason.
    #[must_use]
    pub fn lost_events(&self) -> u64 {
        self.lost
            .values()
            .fold(0, |sum, &count| sum.saturating_add(count))
    }
}

fn add(counts: &mut BTreeMap<String, u64>, reason: &str, count: u64) {
    if let Some(known) = counts.get_mut(reason) {
        *known = known.saturating_add(count);
    } else if counts.len() < MOST_REASONS {
        counts.insert(reason.into(), count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(comments: &[&str]) -> Notes {
        let mut notes = Notes::default();
        comments
            .iter()
            .for_each(|comment| notes.comment(comment.as_bytes()));
        notes
    }

    #[test]
    fn counts_of_a_reason_add_up() {
        let notes = notes(&[
            " htrace-bpf: lost ring-full 3",
            " htrace-bpf: lost ring-full 4",
            " htrace-bpf: lost pending-full 1",
        ]);
        assert_eq!(notes.lost["ring-full"], 7);
        assert_eq!(notes.lost_events(), 8);
    }

    #[test]
    fn a_whole_stack_is_not_cut() {
        let notes = notes(&[
            " htrace-bpf: stack-end complete 9",
            " htrace-bpf: stack-end no-table 2",
        ]);
        assert!(notes.cut_stacks().eq([("no-table", 2)]));
    }

    #[test]
    fn ends_are_told_with_the_modules_they_lie_in() {
        let notes = notes(&[
            " htrace-bpf: stack-end complete 9",
            " htrace-bpf: stack-end no-table 3",
            " htrace-bpf: stack-cut no-table 1 /usr/bin/a b",
            " htrace-bpf: stack-cut no-table 2 ",
        ]);
        let mut text = Vec::new();
        notes.write_stack_ends(&mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "STACKS CUT SHORT\n           9 allocations have a whole stack\n           \
             3 end early: no-table\n               2 in unknown code\n               \
             1 in /usr/bin/a b\n\n"
        );
        let mut nothing = Vec::new();
        Notes::default().write_stack_ends(&mut nothing).unwrap();
        assert!(nothing.is_empty());
    }

    #[test]
    fn stacks_that_rest_on_a_guess_are_told_but_not_as_cut() {
        let notes = notes(&[" htrace-bpf: stack-end complete-by-frame-pointers 5"]);
        assert_eq!((notes.guessed_stacks(), notes.cut_stacks().count()), (5, 0));
        let mut text = Vec::new();
        notes.write_stack_ends(&mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "STACKS THAT REST ON FRAME POINTERS\n           5 allocations have a stack that leads \
             through code without unwind data\n\n"
        );
    }

    #[test]
    fn only_a_file_of_ours_can_lack_its_end_mark() {
        assert!(!notes(&[" strings: 3"]).cut_short());
        assert!(notes(&[" htrace-bpf: version 0.1.0"]).cut_short());
        assert!(!notes(&[" htrace-bpf: version 0.1.0", " htrace-bpf: complete"]).cut_short());
    }

    #[test]
    fn the_number_of_reasons_is_bounded() {
        let mut notes = Notes::default();
        for number in 0..1000 {
            notes.comment(format!(" htrace-bpf: lost r{number} 1").as_bytes());
        }
        assert_eq!(notes.lost.len(), MOST_REASONS);
    }
}
