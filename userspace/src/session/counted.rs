//! Counts what is written to a sink.

use std::io::{self, Write};

/// A sink that knows how much it was given.
#[derive(Debug)]
pub(super) struct Counted<W> {
    sink: W,
    written: u64,
}

impl<W> Counted<W> {
    /// Nothing so far.
    pub(super) const fn new(sink: W) -> Self {
        Self { sink, written: 0 }
    }

    /// Bytes so far.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// The sink.
    pub(super) fn into_inner(self) -> W {
        self.sink
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_the_sink_has_taken() {
        let mut room = [0; 5];
        let mut counted = Counted::new(&mut room[..]);
        assert!(counted.write_all(b"abc").is_ok());
        assert!(counted.write_all(b"def").is_err());
        assert_eq!(counted.written(), 5);
    }
}
