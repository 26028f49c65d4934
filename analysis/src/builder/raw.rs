//! Events of file version 0, which name addresses instead of infos.

use htrace_trace_format::{AllocationInfoIndex, TraceIndex};
use rustc_hash::FxHashMap;

use super::Builder;
use crate::observer::Observer;

/// What turns the events of file version 0, which name addresses, into events of infos.
#[derive(Debug, Default)]
pub(super) struct RawEvents {
    infos: FxHashMap<(u64, TraceIndex), AllocationInfoIndex>,
    pub(super) live: FxHashMap<u64, AllocationInfoIndex>,
}

impl Builder {
    pub(super) fn raw_allocate(
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

    pub(super) fn raw_free(&mut self, pointer: u64, observer: &mut impl Observer) {
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
}
