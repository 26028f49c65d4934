//! Recognises a compression by its first bytes and decodes it, telling damage from a clean end.

use std::io::{self, BufReader, Chain, Cursor, Read};

use flate2::read::MultiGzDecoder;

/// Size of the buffer in front of a decompressor.
const INPUT_BYTES: usize = 128 << 10;
/// Bytes needed to recognise a container.
const MAGIC_BYTES: usize = 4;

/// How the bytes of a file are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// zstd, any number of frames.
    Zstd,
    /// gzip, any number of members.
    Gzip,
    /// Not compressed.
    Plain,
}

impl Container {
    /// Judges by the first bytes of a file.
    #[must_use]
    pub fn of(start: &[u8]) -> Self {
        match start {
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0x1f, 0x8b, ..] => Self::Gzip,
            _ => Self::Plain,
        }
    }
}

/// What is wrong with a compressed stream. Delivered inside an [`io::Error`], behind every byte
/// that could be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The stream ends before its end mark: the file was cut short.
    #[error("the compressed data ends early")]
    Truncated,
    /// The stream is not what its start promised.
    #[error("the compressed data is damaged")]
    Corrupt,
}

/// The damage that an error of a [`Decoder`] stands for, if it is one.
#[must_use]
pub fn damage_of(error: &io::Error) -> Option<Damage> {
    error.get_ref()?.downcast_ref::<Damage>().copied()
}

type Source<R> = BufReader<Chain<Cursor<Vec<u8>>, R>>;

/// Decompresses `R`.
pub struct Decoder<R: Read> {
    kind: Kind<R>,
}

enum Kind<R: Read> {
    Zstd(zstd::stream::read::Decoder<'static, Source<R>>),
    Gzip(Box<MultiGzDecoder<Source<R>>>),
    Plain(Source<R>),
}

impl<R: Read> std::fmt::Debug for Decoder<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder")
            .field("container", &self.container())
            .finish()
    }
}

/// A decoder for `source`, whatever its container is.
///
/// # Errors
/// Those of reading the first bytes, and of setting up the decompressor.
pub fn decoder<R: Read>(mut source: R) -> io::Result<Decoder<R>> {
    let mut start = Vec::with_capacity(MAGIC_BYTES);
    source
        .by_ref()
        .take(MAGIC_BYTES as u64)
        .read_to_end(&mut start)?;
    let container = Container::of(&start);
    Decoder::with_container(source, start, container)
}

impl<R: Read> Decoder<R> {
    /// A decoder that takes `source` for `container` without looking at it.
    ///
    /// # Errors
    /// When the decompressor cannot be set up.
    pub fn assuming(source: R, container: Container) -> io::Result<Self> {
        Self::with_container(source, Vec::new(), container)
    }

    fn with_container(source: R, start: Vec<u8>, container: Container) -> io::Result<Self> {
        let source = BufReader::with_capacity(INPUT_BYTES, Cursor::new(start).chain(source));
        let kind = match container {
            Container::Zstd => Kind::Zstd(zstd::stream::read::Decoder::with_buffer(source)?),
            Container::Gzip => Kind::Gzip(Box::new(MultiGzDecoder::new(source))),
            Container::Plain => Kind::Plain(source),
        };
        Ok(Self { kind })
    }

    /// What the source was recognised as.
    pub fn container(&self) -> Container {
        match &self.kind {
            Kind::Zstd(_) => Container::Zstd,
            Kind::Gzip(_) => Container::Gzip,
            Kind::Plain(_) => Container::Plain,
        }
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.kind {
            Kind::Zstd(decoder) => decoder.read(buffer).map_err(as_damage),
            Kind::Gzip(decoder) => decoder.read(buffer).map_err(as_damage),
            Kind::Plain(source) => source.read(buffer),
        }
    }
}

/// Errors that the decompressors make up carry no system error code; those of the source do.
fn as_damage(error: io::Error) -> io::Error {
    if error.raw_os_error().is_some() || error.kind() == io::ErrorKind::Interrupted {
        return error;
    }
    if error.kind() == io::ErrorKind::UnexpectedEof {
        io::Error::new(io::ErrorKind::UnexpectedEof, Damage::Truncated)
    } else {
        io::Error::new(io::ErrorKind::InvalidData, Damage::Corrupt)
    }
}
