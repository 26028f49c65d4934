//! The ring buffer of what the target waits for.

use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::{MapData, RingBuf};
use htrace_ebpf_common::{
    tables::FileKey,
    wire::{Event, Record},
};

/// What the target waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The list of loaded modules has changed, or the program was replaced.
    ModulesChanged {
        /// What is to be acknowledged.
        stamp: u64,
    },
    /// The unwind table of a file is wanted.
    TableWanted {
        /// The file.
        file: FileKey,
        /// An address in a mapping of it.
        address: u64,
    },
}

/// The notices that have not been taken.
pub struct Notices(RingBuf<MapData>);

impl Notices {
    pub(super) const fn new(ring: RingBuf<MapData>) -> Self {
        Self(ring)
    }

    /// Takes the next notice. What is not one is skipped.
    pub fn take(&mut self) -> Option<Notice> {
        loop {
            let record = self.0.next()?;
            match Record::decode(&record).map(|record| record.event) {
                Ok(Event::ModulesChanged { stamp } | Event::Exec { stamp }) => {
                    return Some(Notice::ModulesChanged { stamp });
                }
                Ok(Event::TableWanted { file, address }) => {
                    return Some(Notice::TableWanted { file, address });
                }
                other => tracing::debug!("not a notice: {other:?}"),
            }
        }
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
