//! The maps that hold unwind tables, and the word by which the target is told to go on.

use std::{io, os::fd::AsFd, sync::Arc};

use aya::maps::{HashMap, MapData};
use htrace_ebpf_common::tables::{BlockWord, CodeSegment, FileKey, MAX_CODE_SEGMENTS, Table};
use htrace_unwind_tables::{Coverage, UnwindTable};

use super::LoadError;
use crate::sys::shared_words::SharedWords;

/// [`FileKey`] as a key that aya copies byte by byte.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct PodKey(FileKey);

// SAFETY: two u64.
unsafe impl aya::Pod for PodKey {}

/// [`Table`] as a value that aya copies byte by byte.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct PodTable(Table);

// SAFETY: plain integers without padding: two u32 and u64s.
unsafe impl aya::Pod for PodTable {}

/// Where unwind tables are put for the programs to use.
pub struct TableMaps {
    tables: HashMap<MapData, PodKey, PodTable>,
    words: SharedWords,
    used: usize,
}

/// Why a table could not be handed over.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// There are not so many words left.
    #[error("no room for a table of {words} words: {free} are left")]
    Full {
        /// Words of the table.
        words: usize,
        /// Words left.
        free: usize,
    },
    /// More parts of the file are code than can be told the programs.
    #[error("{segments} executable segments")]
    Segments {
        /// How many.
        segments: usize,
    },
    /// The kernel did not take it.
    #[error(transparent)]
    Map(LoadError),
}

/// Words that a table takes in the maps.
#[must_use]
pub fn words_of(table: &UnwindTable) -> usize {
    table.blocks().len().saturating_sub(1) + table.rows().len()
}

/// A table that is in the maps, and can be used for further files of the same contents.
#[derive(Clone, Copy, Debug)]
pub struct Installed(Table);

impl Installed {
    /// Stands for the absence of a table.
    pub const NONE: Self = Self(Table {
        first_block: 0,
        blocks: 0,
        call_sites_only: 0,
        segments: [CodeSegment {
            file_offset: 0,
            size: 0,
            rel_address: 0,
        }; MAX_CODE_SEGMENTS],
    });
}

impl TableMaps {
    pub(super) fn new(tables: MapData, words: &MapData, count: usize) -> Result<Self, LoadError> {
        let tables = HashMap::try_from(aya::maps::Map::HashMap(tables)).map_err(LoadError::map)?;
        let words = map_words(words, count)?;
        Ok(Self {
            tables,
            words,
            used: 0,
        })
    }

    /// Puts a table into the maps; no file uses it yet.
    ///
    /// # Errors
    /// When there is no room, or it has too many segments.
    pub fn install(&mut self, table: &UnwindTable) -> Result<Installed, TableError> {
        let blocks = table.blocks().len().saturating_sub(1);
        let words = words_of(table);
        let first_row = self.used + blocks;
        let full = TableError::Full {
            words,
            free: self.words.len() - self.used,
        };
        let row = |index: &u32| u32::try_from(first_row + *index as usize).unwrap_or(u32::MAX);
        let block_words = table.blocks().windows(2).map(|pair| match pair {
            [first, last] => BlockWord::new(row(first), row(last)).bits(),
            _ => 0,
        });
        let rows = table.rows().iter().map(|row| row.bits());
        if words > self.words.len() - self.used
            || !self.words.store(self.used, block_words)
            || !self.words.store(first_row, rows)
        {
            return Err(full);
        }
        let installed = Table {
            first_block: u32::try_from(self.used).unwrap_or(u32::MAX),
            blocks: u32::try_from(blocks).unwrap_or(0),
            call_sites_only: u64::from(table.coverage() == Coverage::CallSites),
            segments: segments(table)?,
        };
        self.used += words;
        Ok(Installed(installed))
    }

    /// From now on, `file` has that table.
    ///
    /// # Errors
    /// When the kernel refuses: the map of files is full.
    pub fn assign(&mut self, file: FileKey, installed: Installed) -> Result<(), TableError> {
        let stored = self.tables.insert(PodKey(file), PodTable(installed.0), 0);
        stored.map_err(|error| TableError::Map(LoadError::map(error)))
    }
}

fn segments(table: &UnwindTable) -> Result<[CodeSegment; MAX_CODE_SEGMENTS], TableError> {
    let mut segments = [CodeSegment::default(); MAX_CODE_SEGMENTS];
    if table.segments().len() > segments.len() {
        return Err(TableError::Segments {
            segments: table.segments().len(),
        });
    }
    for (to, from) in segments.iter_mut().zip(table.segments()) {
        *to = CodeSegment {
            file_offset: from.file_offset,
            size: from.size,
            rel_address: from.address - table.base(),
        };
    }
    Ok(segments)
}

/// Tells the target that it can go on.
#[derive(Clone, Debug)]
pub struct Acknowledgement(Arc<SharedWords>);

impl Acknowledgement {
    pub(super) fn new(map: &MapData) -> Result<Self, LoadError> {
        map_words(map, 1).map(|words| Self(Arc::new(words)))
    }

    /// All notices up to this stamp are dealt with.
    pub fn acknowledge(&self, stamp: u64) {
        self.0.raise(0, stamp);
    }
}

fn map_words(map: &MapData, count: usize) -> Result<SharedWords, LoadError> {
    let failed = |error: io::Error| LoadError::system("cannot map a BPF map", error);
    SharedWords::map(map.fd().as_fd(), count).map_err(failed)
}
