//! Decompression on a thread of its own, so that it overlaps with parsing.
//!
//! A fixed number of blocks goes around between the two sides; memory is bounded and nothing is
//! allocated after the start.

use std::io::{self, BufRead, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

const BLOCK_BYTES: usize = 256 << 10;
const BLOCKS: usize = 4;

type Filled = io::Result<Vec<u8>>;

/// The reading end of a pipeline.
#[derive(Debug)]
pub struct PipelineReader {
    filled: Receiver<Filled>,
    empty: SyncSender<Vec<u8>>,
    block: Vec<u8>,
    position: usize,
}

/// Reads `source` on another thread, ahead of the reader by at most one megabyte.
///
/// # Errors
/// When the thread cannot be started.
pub fn pipelined(source: impl Read + Send + 'static) -> io::Result<PipelineReader> {
    let (filled_sender, filled) = sync_channel(BLOCKS);
    let (empty, empty_receiver) = sync_channel(BLOCKS);
    for _ in 0..BLOCKS {
        // The channel has room for all blocks, and its other end is in scope.
        let _ = empty.try_send(Vec::with_capacity(BLOCK_BYTES));
    }
    thread::Builder::new()
        .name("decompress".into())
        .spawn(move || fill_blocks(source, &empty_receiver, &filled_sender))?;
    Ok(PipelineReader {
        filled,
        empty,
        block: Vec::new(),
        position: 0,
    })
}

impl PipelineReader {
    /// A reader that delivers nothing but `error`.
    #[must_use]
    pub fn failed(error: io::Error) -> Self {
        let (sender, filled) = sync_channel(1);
        // There is room, and the other end is in scope.
        let _ = sender.try_send(Err(error));
        let (empty, _) = sync_channel(1);
        Self {
            filled,
            empty,
            block: Vec::new(),
            position: 0,
        }
    }
}

/// Fills blocks until the source ends or nobody reads any more.
fn fill_blocks(mut source: impl Read, empty: &Receiver<Vec<u8>>, filled: &SyncSender<Filled>) {
    while let Ok(mut block) = empty.recv() {
        let outcome = fill_block(&mut source, &mut block);
        let at_end = block.is_empty();
        if !at_end && filled.send(Ok(block)).is_err() {
            return;
        }
        if let Err(error) = outcome {
            // Nobody is interested in the error when the reader is gone.
            let _ = filled.send(Err(error));
            return;
        }
        if at_end {
            return;
        }
    }
}

/// Reads until `block` is full or the source ends or fails; what was read stays in `block`.
fn fill_block(source: &mut impl Read, block: &mut Vec<u8>) -> io::Result<()> {
    // Whole blocks come back whole, so that this clears memory at the start only.
    block.resize(BLOCK_BYTES, 0);
    let mut length = 0;
    let outcome = loop {
        // A decoder may take a read into no room for an error.
        if length == block.len() {
            break Ok(());
        }
        match source.read(&mut block[length..]) {
            Ok(0) => break Ok(()),
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    block.truncate(length);
    outcome
}

impl BufRead for PipelineReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.position == self.block.len() {
            match self.filled.recv() {
                Ok(block) => {
                    let used = std::mem::replace(&mut self.block, block?);
                    // The thread may have ended already.
                    let _ = self.empty.try_send(used);
                }
                Err(_) => self.block.clear(),
            }
            self.position = 0;
        }
        Ok(&self.block[self.position..])
    }

    fn consume(&mut self, count: usize) {
        self.position = (self.position + count).min(self.block.len());
    }
}

impl Read for PipelineReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}
