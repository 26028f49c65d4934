//! Looking over the shoulder of the reading loop.
//!
//! Exports that need more than final costs (histogram, Massif snapshots, time windows) implement
//! [`Observer`]. The loop is compiled for the observers at hand, so that it pays nothing for those
//! that are not there.

use htrace_trace_format::AllocationInfoIndex;

use crate::accounting::Accounting;
use crate::tables::Tables;

/// What has been read so far.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// Costs.
    pub accounting: &'a Accounting,
    /// Strings, instruction pointers and traces.
    pub tables: &'a Tables,
    /// Command line, when it was read already.
    pub command: Option<&'a [u8]>,
    /// Time in milliseconds: the last stamp, or the stamp that ends the interval.
    pub now: i64,
}

/// Told of each event after it was counted.
pub trait Observer {
    /// Whether anybody looks at single events; if not, they are counted in bulk.
    #[inline]
    fn looks(&self) -> bool {
        true
    }

    /// An allocation.
    #[inline]
    fn allocated(&mut self, index: AllocationInfoIndex, so_far: Snapshot<'_>) {
        let _ = (index, so_far);
    }

    /// A deallocation.
    #[inline]
    fn freed(&mut self, index: AllocationInfoIndex, so_far: Snapshot<'_>) {
        let _ = (index, so_far);
    }

    /// A time stamp; `so_far.now` is the new time.
    #[inline]
    fn time_passed(&mut self, so_far: Snapshot<'_>) {
        let _ = so_far;
    }

    /// The end of the trace; `so_far.now` is the whole run time.
    #[inline]
    fn ended(&mut self, so_far: Snapshot<'_>) {
        let _ = so_far;
    }
}

/// Nobody looks.
impl Observer for () {
    #[inline]
    fn looks(&self) -> bool {
        false
    }
}

impl<A: Observer, B: Observer> Observer for (A, B) {
    #[inline]
    fn looks(&self) -> bool {
        self.0.looks() || self.1.looks()
    }

    #[inline]
    fn allocated(&mut self, index: AllocationInfoIndex, so_far: Snapshot<'_>) {
        self.0.allocated(index, so_far);
        self.1.allocated(index, so_far);
    }

    #[inline]
    fn freed(&mut self, index: AllocationInfoIndex, so_far: Snapshot<'_>) {
        self.0.freed(index, so_far);
        self.1.freed(index, so_far);
    }

    #[inline]
    fn time_passed(&mut self, so_far: Snapshot<'_>) {
        self.0.time_passed(so_far);
        self.1.time_passed(so_far);
    }

    #[inline]
    fn ended(&mut self, so_far: Snapshot<'_>) {
        self.0.ended(so_far);
        self.1.ended(so_far);
    }
}

impl<O: Observer> Observer for Option<O> {
    #[inline]
    fn looks(&self) -> bool {
        self.as_ref().is_some_and(O::looks)
    }

    #[inline]
    fn allocated(&mut self, index: AllocationInfoIndex, so_far: Snapshot<'_>) {
        if let Some(observer) = self {
            observer.allocated(index, so_far);
        }
    }

    #[inline]
    fn freed(&mut self, index: AllocationInfoIndex, so_far: Snapshot<'_>) {
        if let Some(observer) = self {
            observer.freed(index, so_far);
        }
    }

    #[inline]
    fn time_passed(&mut self, so_far: Snapshot<'_>) {
        if let Some(observer) = self {
            observer.time_passed(so_far);
        }
    }

    #[inline]
    fn ended(&mut self, so_far: Snapshot<'_>) {
        if let Some(observer) = self {
            observer.ended(so_far);
        }
    }
}
