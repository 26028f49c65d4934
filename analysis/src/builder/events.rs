//! Events: in bulk where nobody looks at single ones, else one by one, and only those of the time
//! window if there is one.

use htrace_trace_format::{AllocationInfoIndex, Event, EventBatch, Place};

use super::Builder;
use crate::observer::Observer;
use crate::problem::{Diagnostics, LoadError, Problem};

impl Builder {
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

    pub(super) fn in_window(&self) -> bool {
        self.rules
            .window
            .is_none_or(|window| window.contains(self.now))
    }

    /// Whether an event counts; frees of blocks from before a time window do not.
    pub(super) fn counts(&mut self, index: AllocationInfoIndex, is_free: bool) -> bool {
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

    pub(super) fn event(
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
}
