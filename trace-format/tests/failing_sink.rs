//! A sink that fails in the middle: the error comes out, and what was written before reads as a
//! prefix of the trace.

use std::cell::RefCell;
use std::io::{self, Read as _, Write};
use std::rc::Rc;

use htrace_trace_format::compression::{Damage, ZstdFrameWriter, damage_of, decoder};

/// Takes so many bytes, in small parts, then fails, and goes on failing.
struct Failing {
    taken: Rc<RefCell<Vec<u8>>>,
    room: usize,
}

const MESSAGE: &str = "the sink is full";

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = self.taken.borrow_mut();
        let count = bytes.len().min(self.room - taken.len()).min(7);
        if count == 0 && !bytes.is_empty() {
            return Err(io::Error::other(MESSAGE));
        }
        taken.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Text that does not compress away to nothing.
fn text() -> Vec<u8> {
    let lines = (0..2_000u32).map(|number| format!("+ {:x}\n", number.wrapping_mul(0x9e37_79b9)));
    lines.collect::<String>().into_bytes()
}

/// Writes `text` in frames of 100 bytes, as a recorder does every second.
fn write(text: &[u8], sink: impl Write) -> io::Result<()> {
    let mut writer = ZstdFrameWriter::new(sink, 1)?;
    for part in text.chunks(100) {
        writer.write_all(part)?;
        writer.end_frame()?;
    }
    writer.finish().map(drop)
}

#[test]
fn a_failure_comes_out_and_leaves_a_readable_prefix() {
    let text = text();
    let mut whole = Vec::new();
    write(&text, &mut whole).unwrap();
    let mut longest = 0;
    for room in (0..whole.len()).step_by(13) {
        let taken = Rc::new(RefCell::new(Vec::new()));
        let sink = Failing {
            taken: taken.clone(),
            room,
        };
        let error = write(&text, sink).unwrap_err();
        assert_eq!(error.to_string(), MESSAGE, "room for {room}");
        let taken = taken.borrow();
        assert_eq!(*taken, whole[..room], "room for {room}");
        if room < 4 {
            // Not yet to be told from text.
            continue;
        }
        let mut decoded = Vec::new();
        let end = decoder(&taken[..]).unwrap().read_to_end(&mut decoded);
        assert!(text.starts_with(&decoded), "room for {room}");
        assert!(decoded.len() >= longest, "room for {room}");
        longest = decoded.len();
        if let Err(error) = end {
            assert_eq!(
                damage_of(&error),
                Some(Damage::Truncated),
                "room for {room}"
            );
        }
    }
    assert!(longest + 200 > text.len(), "{longest} of {}", text.len());
}

#[test]
fn a_level_that_zstd_does_not_know_is_no_panic() {
    for level in [i32::MIN, i32::MAX] {
        // zstd takes the nearest level that it has, or refuses.
        if let Ok(mut writer) = ZstdFrameWriter::new(Vec::new(), level) {
            writer.write_all(b"+ 1\n").unwrap();
            let packed = writer.finish().unwrap();
            let mut text = Vec::new();
            decoder(&packed[..])
                .unwrap()
                .read_to_end(&mut text)
                .unwrap();
            assert_eq!(text, b"+ 1\n");
        }
    }
}
