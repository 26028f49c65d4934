//! A zstd stream made of complete frames, so that a file whose writer was killed is readable up to
//! the last frame.

use std::io::{self, Write};

use zstd::stream::raw::{CParameter, Encoder, InBuffer, Operation, OutBuffer};

/// Compressed bytes gathered before they go to the sink.
const OUTPUT_BYTES: usize = 64 << 10;

/// Compresses into `W`. Nothing is lost of what precedes the last [`ZstdFrameWriter::end_frame`],
/// whatever happens to the process.
pub struct ZstdFrameWriter<W: Write> {
    sink: W,
    encoder: Encoder<'static>,
    output: Vec<u8>,
    frame_open: bool,
    frames: u64,
}

impl<W: Write> std::fmt::Debug for ZstdFrameWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZstdFrameWriter")
            .field("frame_open", &self.frame_open)
            .field("frames", &self.frames)
            .finish_non_exhaustive()
    }
}

impl<W: Write> ZstdFrameWriter<W> {
    /// A writer at compression `level` (1 to 22, 0 for zstd's default of 3; negative levels are
    /// faster still). Frames carry a checksum.
    ///
    /// # Errors
    /// When zstd cannot be set up: no memory, or a level it does not know.
    pub fn new(sink: W, level: i32) -> io::Result<Self> {
        let mut encoder = Encoder::new(level)?;
        encoder.set_parameter(CParameter::ChecksumFlag(true))?;
        Ok(Self {
            sink,
            encoder,
            output: vec![0; OUTPUT_BYTES],
            frame_open: false,
            frames: 0,
        })
    }

    /// Completes the current frame and flushes the sink. Without anything written since the last
    /// frame only the sink is flushed.
    ///
    /// # Errors
    /// Those of the sink and of zstd.
    pub fn end_frame(&mut self) -> io::Result<()> {
        if self.frame_open {
            self.close_frame()?;
        }
        self.sink.flush()
    }

    fn close_frame(&mut self) -> io::Result<()> {
        loop {
            let mut output = OutBuffer::around(self.output.as_mut_slice());
            let remaining = self.encoder.finish(&mut output, true)?;
            self.sink.write_all(output.as_slice())?;
            if remaining == 0 {
                break;
            }
        }
        self.encoder.reinit()?;
        self.frame_open = false;
        self.frames += 1;
        Ok(())
    }

    /// Completes the last frame and gives the sink back. An empty stream becomes one empty frame,
    /// so that the file is a zstd file in any case.
    ///
    /// # Errors
    /// Those of the sink and of zstd.
    pub fn finish(mut self) -> io::Result<W> {
        if self.frames == 0 {
            self.frame_open = true;
        }
        self.end_frame()?;
        Ok(self.sink)
    }

    /// The sink, for example to ask a file for its size.
    pub fn sink(&self) -> &W {
        &self.sink
    }
}

impl<W: Write> Write for ZstdFrameWriter<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        self.frame_open = true;
        let mut input = InBuffer::around(data);
        while input.pos() < data.len() {
            let mut output = OutBuffer::around(self.output.as_mut_slice());
            self.encoder.run(&mut input, &mut output)?;
            self.sink.write_all(output.as_slice())?;
        }
        Ok(data.len())
    }

    /// Flushes the sink only: a zstd frame is not a unit that can be flushed without ending it.
    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}
