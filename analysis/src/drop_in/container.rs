//! Opening a trace as heaptrack_print does: the container is told from the end of the path, and
//! whatever cannot be decoded is silently the end of the file.

use std::io::{self, Read};
use std::path::Path;

use htrace_trace_format::compression::{Container, Decoder, PipelineReader, pipelined};

use crate::files::Files;

/// heaptrack_print's gzip decoder hands data on in blocks of this size and loses the last,
/// incomplete one when the file is damaged.
const GZIP_BLOCK: usize = 128;

/// Opens `path`.
pub(super) fn open(path: &Path, files: &dyn Files) -> io::Result<PipelineReader> {
    let container = container_of(path);
    let decoder = Decoder::assuming(files.open(path)?, container)?;
    let block = if container == Container::Gzip {
        GZIP_BLOCK
    } else {
        1
    };
    pipelined(SilentEnd {
        source: decoder,
        block,
        pending: Vec::new(),
        ended: false,
    })
}

fn container_of(path: &Path) -> Container {
    let path = path.as_os_str().as_encoded_bytes();
    if path.ends_with(b".gz") {
        Container::Gzip
    } else if path.ends_with(b".zst") {
        Container::Zstd
    } else {
        Container::Plain
    }
}

/// Turns an error into the end of the data. Behind an error only whole blocks are delivered.
struct SilentEnd<R> {
    source: R,
    block: usize,
    pending: Vec<u8>,
    ended: bool,
}

impl<R: Read> SilentEnd<R> {
    /// Bytes that may be delivered.
    fn settled(&self) -> usize {
        if self.ended {
            self.pending.len()
        } else {
            self.pending.len() / self.block * self.block
        }
    }

    fn fill(&mut self) {
        let start = self.pending.len();
        self.pending.resize(start + (64 << 10), 0);
        match self.source.read(&mut self.pending[start..]) {
            Ok(count) => {
                self.pending.truncate(start + count);
                self.ended = count == 0;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.pending.truncate(start)
            }
            Err(_) => {
                self.pending.truncate(start / self.block * self.block);
                self.ended = true;
            }
        }
    }
}

impl<R: Read> Read for SilentEnd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.settled() == 0 && !self.ended {
            self.fill();
        }
        let count = self.settled().min(buffer.len());
        buffer[..count].copy_from_slice(&self.pending[..count]);
        self.pending.drain(..count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delivers some bytes, then fails.
    struct Failing(usize);

    impl Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
            let count = self.0.min(buffer.len()).min(100);
            self.0 -= count;
            Ok(count)
        }
    }

    #[test]
    fn behind_an_error_only_whole_blocks_count() {
        for (block, bytes, expected) in [(128, 1000, 896), (128, 127, 0), (1, 1000, 1000)] {
            let mut source = SilentEnd {
                source: Failing(bytes),
                block,
                pending: Vec::new(),
                ended: false,
            };
            let mut all = Vec::new();
            source.read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), expected);
        }
    }

    #[test]
    fn the_container_is_told_by_the_end_of_the_path() {
        assert_eq!(container_of(Path::new("x.zst")), Container::Zstd);
        assert_eq!(container_of(Path::new("a/.gz")), Container::Gzip);
        assert_eq!(container_of(Path::new("x.GZ")), Container::Plain);
    }
}
