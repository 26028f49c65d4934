//! Events by hand, and what an independent reading of the lines makes of them.

use std::collections::BTreeMap;

use htrace_ebpf_common::{
    control::MAX_FRAMES,
    wire::{Kind, StackRecord},
};
use htrace_trace_format::writer::Header;
use proptest::prelude::*;

use super::*;
use crate::{modules::MappingId, session::names::Resolved, symbolize};

/// Names that say where an address was when it was resolved.
#[derive(Default)]
struct FakeNames {
    mapping: u64,
}

impl Names for FakeNames {
    fn update(&mut self, mappings: &[u8]) -> bool {
        let before = self.mapping;
        self.mapping = mappings.len() as u64;
        self.mapping != before
    }

    fn place(&mut self, _address: u64) -> Place {
        Place::Mapping(MappingId(self.mapping))
    }

    fn resolve(&mut self, address: u64) -> Resolved {
        let function = format!("at_{address:x}_in_{}", self.mapping);
        let frame = symbolize::Frame {
            function: Some(function),
            file: None,
            line: None,
        };
        Resolved {
            module: "/module".to_owned(),
            frames: vec![frame],
        }
    }
}

struct Recording(Converter<Vec<u8>, FakeNames>);

impl Recording {
    fn new() -> Self {
        let header = Header {
            page_size: 4096,
            pages: 1,
            ..Header::default()
        };
        let writer = TraceWriter::new(Vec::new(), &header).unwrap();
        Self(Converter::new(writer, FakeNames::default(), 100))
    }

    fn event(&mut self, tid: u32, event: Event<'_>) {
        self.event_at(tid, 100, event);
    }

    fn event_at(&mut self, tid: u32, tick: u64, event: Event<'_>) {
        self.0
            .record(
                &Record {
                    clock: tick as u16,
                    tid,
                    event,
                },
                tick,
            )
            .unwrap();
    }

    /// With two stacks, of which 9 is below the only function that is chosen.
    fn of_a_choice() -> Self {
        let mut recording = Self::new();
        let functions = vec!["at_2000_in_0".to_owned()];
        recording.0.choose(ChosenFunctions::new(functions));
        recording.stack(8, &[0x1001, 0x3001]);
        recording.stack(9, &[0x1001, 0x2001]);
        recording
    }

    fn allocate(&mut self, pointer: u64, size: u64) {
        self.allocate_below(9, pointer, size);
    }

    fn allocate_at(&mut self, tick: u64, pointer: u64, size: u64) {
        let stack = 9;
        self.event_at(
            1,
            tick,
            Event::Allocation {
                pointer,
                size,
                stack,
            },
        );
    }

    fn allocate_below(&mut self, stack: u64, pointer: u64, size: u64) {
        self.event(
            1,
            Event::Allocation {
                pointer,
                size,
                stack,
            },
        );
    }

    fn free(&mut self, pointer: u64) {
        self.event(1, Event::Free { pointer });
    }

    fn move_below(&mut self, stack: u64, old: u64, new: u64, size: u64) {
        self.event(1, Event::ReallocBegin { pointer: old });
        let outcome = Outcome::Moved;
        self.event(
            1,
            Event::ReallocEnd {
                outcome,
                old,
                new,
                size,
                stack,
            },
        );
    }

    fn end_realloc(&mut self, tid: u32, outcome: Outcome, old: u64, new: u64, size: u64) {
        self.event(
            tid,
            Event::ReallocEnd {
                outcome,
                old,
                new,
                size,
                stack: 9,
            },
        );
    }

    fn stack(&mut self, id: u64, frames: &[u64]) {
        self.stack_that_ends(id, StackEnd::Complete, frames);
    }

    fn stack_that_ends(&mut self, id: u64, end: StackEnd, frames: &[u64]) {
        let mut bytes = vec![Kind::Stack as u8, end as u8, 100, 0, 1, 0, 0, 0];
        bytes.extend(id.to_ne_bytes());
        frames
            .iter()
            .for_each(|frame| bytes.extend(frame.to_ne_bytes()));
        assert!(bytes.len() <= StackRecord::HEAD + MAX_FRAMES * 8);
        self.0
            .record(&Record::decode(&bytes).unwrap(), 100)
            .unwrap();
    }

    fn finish(self) -> (Lines, Totals) {
        let totals = self.0.totals();
        let bytes = self.0.into_writer().unwrap().finish().unwrap();
        (Lines::read(&String::from_utf8(bytes).unwrap()), totals)
    }
}

/// What a reader makes of the lines; the simplest one there can be.
#[derive(Debug, Default)]
struct Lines {
    strings: Vec<String>,
    ips: Vec<usize>,
    traces: Vec<(usize, usize)>,
    infos: Vec<(u64, usize)>,
    events: Vec<(char, u64)>,
    stamps: Vec<u64>,
    events_and_stamps: Vec<(char, u64)>,
    resident: Vec<u64>,
}

impl Lines {
    fn read(text: &str) -> Self {
        let mut lines = Self::default();
        for line in text.lines().filter(|line| line.len() > 2) {
            let kind = line.as_bytes()[0] as char;
            let numbers: Vec<u64> = line[2..]
                .split(' ')
                .map_while(|digits| u64::from_str_radix(digits, 16).ok())
                .collect();
            if ['+', '-', 'c'].contains(&kind) {
                lines.events_and_stamps.push((kind, numbers[0]));
            }
            match kind {
                's' => lines
                    .strings
                    .push(line[2..].split_once(' ').unwrap().1.to_owned()),
                'i' => lines.ips.push(numbers[2] as usize),
                't' => lines
                    .traces
                    .push((numbers[0] as usize, numbers[1] as usize)),
                'a' => lines.infos.push((numbers[0], numbers[1] as usize)),
                '+' | '-' => lines.events.push((kind, numbers[0])),
                'c' => lines.stamps.push(numbers[0]),
                'R' => lines.resident.push(numbers[0]),
                _ => {}
            }
        }
        lines
    }

    fn events_by_size(&self) -> Vec<(char, u64)> {
        self.events
            .iter()
            .map(|(kind, info)| (*kind, self.infos[*info as usize].0))
            .collect()
    }

    /// Functions of an event's trace, leaf first.
    fn functions(&self, event: usize) -> Vec<&str> {
        let mut trace = self.infos[self.events[event].1 as usize].1;
        let mut names = Vec::new();
        while trace != 0 {
            let (ip, parent) = self.traces[trace - 1];
            names.push(self.strings[self.ips[ip - 1] - 1].as_str());
            trace = parent;
        }
        names
    }
}

#[test]
fn events_become_lines_in_order() {
    let mut recording = Recording::new();
    recording.allocate(0xa0, 10);
    recording.allocate(0xb0, 20);
    recording.free(0xa0);
    recording.free(0xdead);
    let (lines, totals) = recording.finish();
    assert_eq!(lines.events_by_size(), [('+', 10), ('+', 20), ('-', 10)]);
    assert_eq!((totals.live_blocks, totals.live_bytes), (1, 20));
    assert_eq!(totals.counts.unknown_frees, 1);
}

#[test]
fn stacks_become_traces_from_return_addresses() {
    let mut recording = Recording::new();
    recording.stack(9, &[0x1001, 0x2001]);
    recording.allocate(0xa0, 10);
    let (lines, _) = recording.finish();
    assert_eq!(lines.functions(0), ["at_1000_in_0", "at_2000_in_0"]);
}

#[test]
fn a_stack_that_never_came_leaves_an_allocation_without_trace() {
    let mut recording = Recording::new();
    recording.allocate(0xa0, 10);
    let (lines, _) = recording.finish();
    assert_eq!(lines.functions(0), [""; 0]);
}

#[test]
fn an_address_means_what_its_module_was_when_it_was_used() {
    let mut recording = Recording::new();
    recording.stack(9, &[0x1001]);
    recording.allocate(0xa0, 10);
    recording.0.mappings(b"other");
    recording.allocate(0xb0, 10);
    let (lines, _) = recording.finish();
    assert_eq!(lines.functions(0), ["at_1000_in_0"]);
    assert_eq!(lines.functions(1), ["at_1000_in_5"]);
}

#[test]
fn what_is_below_no_chosen_function_is_left_out_and_names_nothing() {
    let mut recording = Recording::of_a_choice();
    recording.allocate_below(8, 0xa0, 10);
    recording.allocate_below(9, 0xb0, 20);
    recording.allocate_below(8, 0xc0, 30);
    recording.free(0xa0);
    recording.free(0xb0);
    let (lines, totals) = recording.finish();
    assert_eq!(lines.events_by_size(), [('+', 20), ('-', 20)]);
    assert_eq!(lines.functions(0), ["at_1000_in_0", "at_2000_in_0"]);
    assert!(!lines.strings.iter().any(|name| name == "at_3000_in_0"));
    let left_out = LeftOut {
        allocations: 2,
        bytes: 40,
        in_doubt: 0,
    };
    assert_eq!(totals.left_out, left_out);
    assert_eq!((totals.counts.allocations, totals.live_blocks), (1, 0));
    assert_eq!(totals.counts.unseen_frees, 0);
    let ends = BTreeMap::from([(StackEnd::Complete, 1)]);
    assert_eq!(totals.stack_ends, ends, "only of what is recorded");
}

#[test]
fn a_realloc_leads_into_the_choice_and_out_of_it() {
    let mut recording = Recording::of_a_choice();
    recording.allocate_below(8, 0xa0, 10);
    recording.move_below(9, 0xa0, 0xb0, 20);
    recording.move_below(8, 0xb0, 0xb0, 30);
    recording.free(0xb0);
    let (lines, totals) = recording.finish();
    assert_eq!(lines.events_by_size(), [('+', 20), ('-', 20)]);
    assert_eq!((totals.left_out.allocations, totals.live_bytes), (2, 0));
    assert_eq!(totals.counts.unseen_frees, 0);
}

#[test]
fn a_left_out_block_ends_the_block_whose_free_was_lost() {
    let mut recording = Recording::of_a_choice();
    recording.allocate_below(9, 0xa0, 10);
    recording.allocate_below(8, 0xa0, 20);
    recording.allocate_below(9, 0xa0, 30);
    let (lines, totals) = recording.finish();
    assert_eq!(lines.events_by_size(), [('+', 10), ('-', 10), ('+', 30)]);
    assert_eq!(totals.counts.unseen_frees, 1, "of the first alone");
}

#[test]
fn a_stack_that_was_cut_or_lost_may_have_held_a_chosen_function() {
    let mut recording = Recording::of_a_choice();
    recording.stack_that_ends(7, StackEnd::Gap, &[0x1001]);
    for (stack, pointer) in [(7, 0xa0), (6, 0xb0), (8, 0xc0)] {
        recording.allocate_below(stack, pointer, 1);
    }
    let left_out = LeftOut {
        allocations: 3,
        bytes: 3,
        in_doubt: 2,
    };
    assert_eq!(recording.0.totals().left_out, left_out);
}

#[test]
fn a_stack_is_judged_anew_when_modules_have_changed() {
    let mut recording = Recording::of_a_choice();
    for (mappings, pointer) in [(&b""[..], 0xa0), (b"other", 0xb0), (b"", 0xc0)] {
        recording.0.mappings(mappings);
        recording.allocate_below(9, pointer, pointer);
    }
    let (lines, _) = recording.finish();
    assert_eq!(lines.events_by_size(), [('+', 0xa0), ('+', 0xc0)]);
    assert_eq!(lines.functions(1), ["at_1000_in_0", "at_2000_in_0"]);
}

#[test]
fn both_halves_of_a_realloc_stand_together() {
    let mut recording = Recording::new();
    recording.allocate(0xa0, 10);
    recording.event(7, Event::ReallocBegin { pointer: 0xa0 });
    recording.allocate(0xa0, 30);
    recording.end_realloc(7, Outcome::Moved, 0xa0, 0xb0, 20);
    let (lines, totals) = recording.finish();
    assert_eq!(
        lines.events_by_size(),
        [('+', 10), ('+', 30), ('-', 10), ('+', 20)]
    );
    assert_eq!((totals.live_blocks, totals.live_bytes), (2, 50));
}

#[test]
fn failed_and_freeing_reallocs_are_no_allocations() {
    let mut recording = Recording::new();
    recording.allocate(0xa0, 10);
    recording.event(7, Event::ReallocBegin { pointer: 0xa0 });
    recording.end_realloc(7, Outcome::Failed, 0xa0, 0, 1 << 60);
    recording.event(7, Event::ReallocBegin { pointer: 0xa0 });
    recording.end_realloc(7, Outcome::Freed, 0xa0, 0, 0);
    let (lines, totals) = recording.finish();
    assert_eq!(lines.events_by_size(), [('+', 10), ('-', 10)]);
    assert_eq!((totals.counts.allocations, totals.live_bytes), (1, 0));
}

#[test]
fn exec_frees_the_whole_heap() {
    let mut recording = Recording::new();
    recording.allocate(0xa0, 10);
    recording.allocate(0xb0, 20);
    recording.event(1, Event::Exec { stamp: 0 });
    let (lines, totals) = recording.finish();
    assert_eq!(lines.events.len(), 4);
    assert_eq!((totals.live_blocks, totals.live_bytes), (0, 0));
}

#[test]
fn changes_are_stamped_once_a_tick_and_time_never_goes_back() {
    let mut recording = Recording::new();
    for (tick, size) in [(101, 1), (101, 2), (103, 3), (102, 4), (104, 5)] {
        recording.allocate_at(tick, 0x10 * size, size);
    }
    recording.0.sample(104, Some(7)).unwrap();
    recording.0.sample(104, Some(8)).unwrap();
    recording.0.sample(105, Some(9)).unwrap();
    recording.0.sample(106, Some(9)).unwrap();
    recording.0.sample(107, Some(7)).unwrap();
    recording.0.sample(109, Some(7)).unwrap();
    let (lines, _) = recording.finish();
    assert_eq!(lines.stamps, [10, 30, 40, 50, 70, 90], "the end is told");
    assert_eq!(lines.resident, [7, 9, 7], "told when it changes");
}

#[test]
fn a_short_clock_is_completed() {
    assert_eq!(tick_of(5, 0x1_0005), 0x1_0005);
    assert_eq!(tick_of(0xfffe, 0x1_0005), 0xfffe);
    // A clock from another time namespace.
    assert_eq!(tick_of(6, 0x1_0005), 0x1_0005);
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u64, u64),
    Free(u64),
    Realloc(u64, u64, u64),
    FailedRealloc(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pointer = || 1..20_u64;
    let size = || 0..5_u64;
    let step = prop_oneof![
        (pointer(), size()).prop_map(|(pointer, size)| Step::Allocate(pointer, size)),
        pointer().prop_map(Step::Free),
        (pointer(), pointer(), size()).prop_map(|(old, new, size)| Step::Realloc(old, new, size)),
        pointer().prop_map(Step::FailedRealloc),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    /// Against a map from pointer to size; steps that an allocator could not do are left out.
    #[test]
    fn live_bytes_are_those_of_the_naive_model(steps in steps()) {
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        let mut allocations = 0;
        let mut recording = Recording::new();
        for step in steps {
            match step {
                Step::Allocate(pointer, size) if !model.contains_key(&pointer) => {
                    model.insert(pointer, size);
                    allocations += 1;
                    recording.allocate(pointer, size);
                }
                Step::Free(pointer) => {
                    model.remove(&pointer);
                    recording.free(pointer);
                }
                Step::Realloc(old, new, size) if old == new || !model.contains_key(&new) => {
                    model.remove(&old);
                    model.insert(new, size);
                    allocations += 1;
                    recording.event(3, Event::ReallocBegin { pointer: old });
                    recording.end_realloc(3, Outcome::Moved, old, new, size);
                }
                Step::FailedRealloc(old) => {
                    recording.event(3, Event::ReallocBegin { pointer: old });
                    recording.end_realloc(3, Outcome::Failed, old, 0, 9);
                }
                Step::Allocate(..) | Step::Realloc(..) => {}
            }
        }
        let (lines, totals) = recording.finish();
        let live: u64 = model.values().sum();
        let read = lines.events_by_size().iter().fold(0_i64, |sum, (kind, size)| {
            if *kind == '+' { sum + *size as i64 } else { sum - *size as i64 }
        });
        prop_assert_eq!((totals.live_bytes, read), (live, live as i64));
        prop_assert_eq!(totals.live_blocks as usize, model.len());
        prop_assert_eq!(totals.counts.allocations, allocations);
        prop_assert_eq!(totals.counts.unseen_frees, 0);
    }
}

#[test]
fn a_cut_stack_says_so_at_its_outer_end_and_is_counted_by_event() {
    let mut recording = Recording::new();
    recording.stack_that_ends(8, StackEnd::Complete, &[0x101]);
    recording.stack_that_ends(9, StackEnd::Gap, &[0x101]);
    recording.allocate(0x10, 1);
    recording.allocate(0x20, 1);
    let totals = recording.0.totals();
    assert_eq!(totals.stack_ends, BTreeMap::from([(StackEnd::Gap, 2)]));
    let cut = (StackEnd::Gap, Arc::from("/module"));
    assert_eq!(totals.cut_stacks, BTreeMap::from([(cut, 2)]));
    let lines = recording.0.into_writer().unwrap().finish().unwrap();
    let text = String::from_utf8_lossy(&lines);
    assert!(text.contains("[stack cut: no-unwind-data]"), "{text}");
}

/// What a reader takes an event's time for: that of the stamp before. With live bytes and peak.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chart {
    /// Highest live bytes, and when.
    peak: (u64, u64),
    /// Live bytes when a tick begins, by time.
    live: BTreeMap<u64, u64>,
}

impl Chart {
    fn of(lines: &Lines) -> Self {
        let mut chart = Self::default();
        let (mut time, mut live) = (0, 0);
        for (kind, number) in &lines.events_and_stamps {
            match kind {
                'c' => {
                    time = *number;
                    chart.live.insert(time, live);
                }
                '+' => live += lines.infos[*number as usize].0,
                _ => live -= lines.infos[*number as usize].0,
            }
            if live > chart.peak.0 {
                chart.peak = (live, time);
            }
        }
        chart
    }

    /// Live bytes as a chart shows them at a time: those of the stamp before.
    fn shown(&self, time: u64) -> u64 {
        *self.live.range(..=time).next_back().unwrap().1
    }
}

proptest! {
    /// Against the chart that has a stamp for each tick.
    #[test]
    fn what_stamps_leave_out_is_no_more_than_they_may(
        ticks in proptest::collection::vec(proptest::collection::vec((0..300_u64, 0..12_u64), 0..6), 1..150),
    ) {
        let mut recording = Recording::new();
        let mut full = Chart::default();
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        for (tick, steps) in (101..).zip(&ticks) {
            recording.0.sample(tick, None).unwrap();
            let time = (tick - 100) * 10;
            full.live.insert(time, model.values().sum());
            for &(pointer, class) in steps {
                let pointer = pointer * 16 + 16;
                if model.remove(&pointer).is_some() {
                    recording.event_at(1, tick, Event::Free { pointer });
                } else {
                    model.insert(pointer, 1 << class);
                    recording.allocate_at(tick, pointer, 1 << class);
                }
                let live = model.values().sum();
                if live > full.peak.0 {
                    full.peak = (live, time);
                }
            }
        }
        let (lines, _) = recording.finish();
        let chart = Chart::of(&lines);
        prop_assert_eq!(chart.peak, full.peak);
        for (time, live) in &full.live {
            let off = chart.shown(*time).abs_diff(*live);
            prop_assert!(off <= full.peak.0 / 128, "{off} bytes at {time}");
        }
        let distances = lines.stamps.windows(2).map(|pair| pair[1] - pair[0]);
        prop_assert!(distances.max().unwrap_or(0) <= 500);
        prop_assert_eq!(lines.stamps.last(), full.live.last_key_value().map(|(time, _)| time));
    }
}
