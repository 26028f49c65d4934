//! A reader over a shared file that keeps its own position.
//!
//! Descriptors are shared between modules and threads; `Read` and `Seek` on the file itself would
//! move the one position that they all have. Reads here never touch it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// Reads a shared file from a position of its own.
#[derive(Debug)]
pub struct PositionedFile {
    file: Arc<File>,
    position: u64,
}

impl PositionedFile {
    /// A reader at the beginning of `file`.
    #[must_use]
    pub fn new(file: Arc<File>) -> Self {
        Self { file, position: 0 }
    }
}

impl Read for PositionedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for PositionedFile {
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        let position = match target {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(delta) => self.position.checked_add_signed(delta),
            SeekFrom::End(delta) => self.file.metadata()?.len().checked_add_signed(delta),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn two_readers_of_one_file_do_not_move_each_other() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let file = Arc::new(file);
        let mut first = PositionedFile::new(Arc::clone(&file));
        let mut second = PositionedFile::new(file);
        let mut buffer = [0; 4];
        first.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"0123");
        assert_eq!(second.seek(SeekFrom::End(-3)).unwrap(), 7);
        let mut rest = String::new();
        second.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "789");
        first.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"4567");
        assert!(first.seek(SeekFrom::Current(-100)).is_err());
    }
}
