//! Turns records of the ring buffer into records of the trace file.
//!
//! Pure: records and names in, lines out; it knows neither processes nor threads nor time other
//! than what it is told. It is the one place that knows both kinds of records.
//!
//! Invariants: an allocation of the target is one `+`, its end one `-`; the order of lines is the
//! order of events, except that both halves of a realloc stand together where it ends; time
//! stamps do not go back.

mod choice;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::Arc,
};

use htrace_ebpf_common::wire::{Event, Frames, Outcome, Record, StackEnd};
use htrace_trace_format::{
    AllocationInfoIndex, Frame, IpIndex, StringIndex, TraceIndex, TraceWriter,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    blocks::{Blocks, Counts},
    chosen_functions::{ChosenFunctions, LeftOut},
    names::{Names, Place},
    selection::estimate,
    time_stamps::TimeStamps,
};

/// A record cannot be older than this many ticks when it is converted; a clock that says
/// otherwise is that of another time namespace.
const OLDEST_TICKS: u16 = 30_000;

/// A stack as it was sent, and the trace that it stands for while the modules do not change.
struct Stack {
    frames: Box<[u64]>,
    /// Why it ends where it does.
    end: StackEnd,
    /// Allocations with it that are recorded.
    events: u64,
    /// True if it holds a chosen function.
    chosen: bool,
    /// Module of its outermost frame; empty unless it was cut.
    cut_in: Arc<str>,
    trace: TraceIndex,
    /// Number of the module change after which `chosen` was found and `trace` made.
    as_of: u64,
}

/// Converts the records of one recording.
pub(super) struct Converter<W: Write, N> {
    writer: TraceWriter<W>,
    names: N,
    blocks: Blocks,
    stacks: FxHashMap<u64, Stack>,
    ips: FxHashMap<(Place, u64), IpIndex>,
    sizes: Sizes,
    module_changes: u64,
    time: TimeStamps,
    sampled: Option<u64>,
    told_pages: Option<u64>,
    malformed: u64,
    threads: FxHashSet<u32>,
    last_thread: u32,
    /// Mean distance of samples in bytes; 0 if all allocations are recorded.
    sample_bytes: u64,
    functions: ChosenFunctions,
    left_out: LeftOut,
}

/// Live bytes, and the sizes that infos stand for.
#[derive(Default)]
struct Sizes {
    by_info: Vec<u64>,
    live: u64,
}

/// What a recording came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Counts of events.
    pub counts: Counts,
    /// Blocks that live at the end.
    pub live_blocks: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Allocations that are below no chosen function.
    pub left_out: LeftOut,
    /// Allocations by the reason of their stacks' ends.
    pub stack_ends: BTreeMap<StackEnd, u64>,
    /// Allocations whose stacks were cut, by reason and module of the outermost frame.
    pub cut_stacks: BTreeMap<(StackEnd, Arc<str>), u64>,
    /// Records that could not be decoded.
    pub malformed: u64,
    /// Threads that were seen.
    pub threads: u64,
    /// Blocks that live at the end, by size.
    pub live_sizes: BTreeMap<u64, u64>,
}

impl<W: Write, N: Names> Converter<W, N> {
    /// Starts at the tick `start`.
    pub(super) fn new(writer: TraceWriter<W>, names: N, start: u64) -> Self {
        Self {
            writer,
            names,
            blocks: Blocks::default(),
            stacks: FxHashMap::default(),
            ips: FxHashMap::default(),
            sizes: Sizes::default(),
            module_changes: 0,
            time: TimeStamps::new(start),
            sampled: None,
            told_pages: None,
            malformed: 0,
            threads: FxHashSet::default(),
            last_thread: 0,
            sample_bytes: 0,
            functions: ChosenFunctions::default(),
            left_out: LeftOut::default(),
        }
    }

    /// Takes allocations for samples, one in so many bytes on average.
    pub(super) fn sample_by(&mut self, mean: u64) {
        self.sample_bytes = mean;
    }

    /// Converts one record that was read at the tick `now`.
    pub(super) fn record(&mut self, record: &Record<'_>, now: u64) -> io::Result<()> {
        self.reach(tick_of(record.clock, now))?;
        self.seen(record.tid);
        match record.event {
            Event::Stack { id, end, frames } => self.stack(id, end, frames),
            Event::Allocation {
                pointer,
                size,
                stack,
            } => self.allocate(pointer, size, stack)?,
            Event::Free { pointer } => self.free(pointer)?,
            Event::ReallocBegin { pointer } => self.blocks.begin_realloc(record.tid, pointer),
            Event::ReallocEnd {
                outcome,
                old,
                new,
                size,
                stack,
            } => {
                self.end_realloc(record.tid, outcome, old)?;
                if outcome == Outcome::Moved {
                    self.allocate(new, size, stack)?;
                }
            }
            Event::ModulesChanged { .. } | Event::TableWanted { .. } => {}
            Event::Exec { .. } => self.forget_heap()?,
        }
        Ok(())
    }

    fn seen(&mut self, thread: u32) {
        if self.last_thread != thread {
            self.last_thread = thread;
            self.threads.insert(thread);
        }
    }

    /// Counts a record that could not be decoded.
    pub(super) fn malformed(&mut self) {
        self.malformed += 1;
    }

    /// Takes over the target's mappings.
    pub(super) fn mappings(&mut self, text: &[u8]) {
        if self.names.update(text) {
            self.module_changes += 1;
        }
    }

    /// Takes the time, and tells the resident pages at that time.
    pub(super) fn sample(&mut self, now: u64, resident_pages: Option<u64>) -> io::Result<()> {
        self.reach(now)?;
        let due = self.sampled.is_none_or(|last| now > last);
        match resident_pages {
            Some(pages) if due => {
                self.sampled = Some(now);
                self.resident(pages)
            }
            _ => Ok(()),
        }
    }

    /// Tells the resident pages when they have changed; the value before holds until then.
    fn resident(&mut self, pages: u64) -> io::Result<()> {
        if self.told_pages.replace(pages) == Some(pages) {
            return Ok(());
        }
        self.catch_up()?;
        self.writer.rss(pages)
    }

    /// The writer, for checkpoints.
    pub(super) fn writer(&mut self) -> &mut TraceWriter<W> {
        &mut self.writer
    }

    /// Allocations so far, and live bytes.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.blocks.counts.allocations, self.sizes.live)
    }

    /// Totals so far.
    pub(super) fn totals(&self) -> Totals {
        let mut stack_ends = BTreeMap::new();
        let mut cut_stacks = BTreeMap::new();
        for stack in self.stacks.values().filter(|stack| stack.events > 0) {
            *stack_ends.entry(stack.end).or_default() += stack.events;
            if !stack.end.is_whole() {
                let cut = (stack.end, Arc::clone(&stack.cut_in));
                *cut_stacks.entry(cut).or_default() += stack.events;
            }
        }
        Totals {
            counts: self.blocks.counts,
            live_blocks: self.blocks.live() as u64,
            live_bytes: self.sizes.live,
            left_out: self.left_out,
            stack_ends,
            cut_stacks,
            malformed: self.malformed,
            threads: self.threads.len() as u64,
            live_sizes: self.live_sizes(),
        }
    }

    fn live_sizes(&self) -> BTreeMap<u64, u64> {
        let mut sizes = BTreeMap::new();
        for info in self.blocks.live_infos() {
            *sizes.entry(self.sizes.of(info.get())).or_default() += 1;
        }
        sizes
    }

    /// Ends the conversion, at the newest time.
    pub(super) fn into_writer(mut self) -> io::Result<TraceWriter<W>> {
        self.catch_up()?;
        Ok(self.writer)
    }

    /// Time has come to a tick.
    #[inline]
    fn reach(&mut self, tick: u64) -> io::Result<()> {
        match self.time.reach(tick, self.sizes.live) {
            true => self.stamp(),
            false => Ok(()),
        }
    }

    /// Lets what follows have the time at which it happens.
    fn catch_up(&mut self) -> io::Result<()> {
        match self.time.is_behind() {
            true => self.stamp(),
            false => Ok(()),
        }
    }

    fn stamp(&mut self) -> io::Result<()> {
        let milliseconds = self.time.stamp(self.sizes.live);
        self.writer.timestamp(milliseconds)
    }

    fn stack(&mut self, id: u64, end: StackEnd, frames: Frames<'_>) {
        // A stack is sent again when the programs have forgotten it.
        let events = self.stacks.get(&id).map_or(0, |stack| stack.events);
        // The trace is made when it is used: only then the modules are known to be those of the
        // stack.
        let stack = Stack {
            frames: frames.iter().collect(),
            end,
            events,
            chosen: false,
            cut_in: Arc::default(),
            trace: TraceIndex::NONE,
            as_of: u64::MAX,
        };
        self.stacks.insert(id, stack);
    }

    fn allocate(&mut self, pointer: u64, size: u64, stack: u64) -> io::Result<()> {
        let size = estimate(size, self.sample_bytes);
        if !self.is_chosen(stack) {
            return self.leave_out(pointer, size, stack);
        }
        let trace = self.trace(stack)?;
        let info = self.allocation_info(size, trace)?;
        let unseen = self.blocks.allocate(pointer, info);
        self.deallocated(unseen)?;
        let live = self.sizes.live + size;
        if self.time.is_due_before_allocation(live) {
            self.stamp()?;
        }
        self.time.allocated(live);
        self.sizes.live = live;
        self.writer.allocation(info)
    }

    fn allocation_info(&mut self, size: u64, trace: TraceIndex) -> io::Result<AllocationInfoIndex> {
        if let Some(known) = self.writer.known_allocation_info(size, trace) {
            return Ok(known);
        }
        self.catch_up()?;
        let info = self.writer.allocation_info(size, trace)?;
        self.sizes.set(info.get(), size);
        Ok(info)
    }

    fn free(&mut self, pointer: u64) -> io::Result<()> {
        let info = self.blocks.free(pointer);
        self.deallocated(info)
    }

    fn end_realloc(&mut self, thread: u32, outcome: Outcome, old: u64) -> io::Result<()> {
        if outcome == Outcome::Failed {
            self.blocks.fail_realloc(thread);
            return Ok(());
        }
        let info = self.blocks.finish_realloc(thread, old);
        self.deallocated(info)
    }

    fn deallocated(&mut self, info: Option<AllocationInfoIndex>) -> io::Result<()> {
        let Some(info) = info else { return Ok(()) };
        let live = self.sizes.live - self.sizes.of(info.get());
        if self.time.is_due_before(live) {
            self.stamp()?;
        }
        self.sizes.live = live;
        self.writer.deallocation(info)
    }

    /// The process runs another program now: its heap is gone, which is no leak.
    fn forget_heap(&mut self) -> io::Result<()> {
        self.catch_up()?;
        for info in self.blocks.forget_all() {
            self.writer.deallocation(info)?;
        }
        self.sizes.live = 0;
        self.writer
            .comment(" the process has replaced its program (exec)")
    }

    /// The trace of a stack under the modules of now.
    fn trace(&mut self, id: u64) -> io::Result<TraceIndex> {
        let Some(stack) = self.stacks.get_mut(&id) else {
            return Ok(TraceIndex::NONE);
        };
        stack.events += 1;
        if stack.as_of == self.module_changes {
            return Ok(stack.trace);
        }
        let (frames, end) = (stack.frames.clone(), stack.end);
        let mut trace = TraceIndex::NONE;
        if !end.is_whole() {
            let ip = self.place_of_cut(end)?;
            trace = self.writer.trace(ip, trace)?;
        }
        for address in frames.iter().rev() {
            let ip = self.instruction_pointer(*address)?;
            trace = self.writer.trace(ip, trace)?;
        }
        // Now that all frames were looked up, the mappings are known.
        let cut_in = match end.is_whole() {
            true => Arc::default(),
            false => self.module_of(frames.last().copied()),
        };
        if let Some(stack) = self.stacks.get_mut(&id) {
            stack.trace = trace;
            stack.cut_in = cut_in;
            stack.as_of = self.module_changes;
        }
        Ok(trace)
    }

    /// Stands where a cut stack's next frame would be, and says why there is none.
    fn place_of_cut(&mut self, end: StackEnd) -> io::Result<IpIndex> {
        // No code lies in the first bytes of memory.
        let address = end as u64;
        if let Some(index) = self.ips.get(&(Place::Unknown, address)) {
            return Ok(*index);
        }
        let frame = Frame {
            function: self
                .writer
                .string(&format!("[stack cut: {}]", end.name()))?,
            file: StringIndex::NONE,
            line: 0,
        };
        let module = self.writer.string("")?;
        let index = self.writer.instruction_pointer(address, module, &[frame])?;
        self.ips.insert((Place::Unknown, address), index);
        Ok(index)
    }

    fn module_of(&mut self, return_address: Option<u64>) -> Arc<str> {
        let address = return_address.map(call_before);
        address.map_or_else(Arc::default, |address| {
            self.names.resolve(address).module.into()
        })
    }

    /// The instruction pointer of a return address.
    fn instruction_pointer(&mut self, return_address: u64) -> io::Result<IpIndex> {
        let address = call_before(return_address);
        let place = self.names.place(address);
        if let Some(index) = self.ips.get(&(place, address)) {
            return Ok(*index);
        }
        let resolved = self.names.resolve(address);
        let module = self.writer.string(&resolved.module)?;
        let mut frames = Vec::with_capacity(resolved.frames.len());
        for frame in resolved.frames {
            frames.push(Frame {
                function: self.optional_string(frame.function.as_deref())?,
                file: self.optional_string(frame.file.as_deref())?,
                line: frame
                    .line
                    .and_then(|line| i32::try_from(line).ok())
                    .unwrap_or(0),
            });
        }
        let index = self.writer.instruction_pointer(address, module, &frames)?;
        self.ips.insert((place, address), index);
        Ok(index)
    }

    fn optional_string(&mut self, text: Option<&str>) -> io::Result<StringIndex> {
        text.map_or(Ok(StringIndex::NONE), |text| self.writer.string(text))
    }
}

impl Sizes {
    fn set(&mut self, info: u32, size: u64) {
        let index = info as usize;
        if self.by_info.len() <= index {
            self.by_info.resize(index + 1, 0);
        }
        self.by_info[index] = size;
    }

    fn of(&self, info: u32) -> u64 {
        self.by_info.get(info as usize).copied().unwrap_or(0)
    }
}

/// The call that returns to an address: what follows it may belong to another line or function.
const fn call_before(return_address: u64) -> u64 {
    return_address.wrapping_sub(1)
}

/// The whole tick of a clock of 16 bits that was read at the tick `now` or before.
fn tick_of(clock: u16, now: u64) -> u64 {
    let age = (now as u16).wrapping_sub(clock);
    if age > OLDEST_TICKS {
        now
    } else {
        now.saturating_sub(u64::from(age))
    }
}

#[cfg(test)]
mod tests;
