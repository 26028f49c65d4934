//! What the writer writes, the reader reads back; and every prefix of a file reads without a
//! failure, as a prefix of the records.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};

use htrace_trace_format::compression::{
    Container, Damage, ZstdFrameWriter, damage_of, decoder, pipelined,
};
use htrace_trace_format::reader::LastLine;
use htrace_trace_format::writer::Header;
use htrace_trace_format::{
    AllocationInfoIndex, Frame, Note, ReadError, Record, RecordReader, TraceIndex, TraceWriter,
};
use proptest::prelude::*;

/// One call to the writer.
#[derive(Clone, Debug)]
enum Step {
    String(String),
    Ip(u64, Vec<(String, String, i32)>),
    Info(u64),
    Allocate,
    Free,
    Time(u64),
    Rss(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let name = "[a-z<>: \n]{0,12}";
    prop_oneof![
        name.prop_map(Step::String),
        (
            any::<u64>(),
            prop::collection::vec((name, name, any::<i32>()), 0..4)
        )
            .prop_map(|(ip, frames)| Step::Ip(ip, frames)),
        any::<u64>().prop_map(Step::Info),
        Just(Step::Allocate),
        Just(Step::Free),
        any::<u64>().prop_map(Step::Time),
        any::<u64>().prop_map(Step::Rss),
    ]
}

/// Runs the steps; returns the file and the lines that it must consist of.
fn write(steps: &[Step], sink: Vec<u8>) -> Vec<u8> {
    let mut writer = TraceWriter::new(sink, &Header::default()).unwrap();
    let mut trace = TraceIndex::NONE;
    let mut info = None;
    for step in steps {
        match step {
            Step::String(text) => {
                writer.string(text).unwrap();
            }
            Step::Ip(ip, frames) => {
                let frames = intern(&mut writer, frames);
                let module = writer.string("/bin/module").unwrap();
                let ip = writer.instruction_pointer(*ip, module, &frames).unwrap();
                trace = writer.trace(ip, trace).unwrap();
            }
            Step::Info(size) => info = Some(writer.allocation_info(*size, trace).unwrap()),
            Step::Allocate => info
                .into_iter()
                .for_each(|info| writer.allocation(info).unwrap()),
            Step::Free => info
                .into_iter()
                .for_each(|info| writer.deallocation(info).unwrap()),
            Step::Time(time) => writer.timestamp(*time).unwrap(),
            Step::Rss(pages) => writer.rss(*pages).unwrap(),
        }
    }
    writer.table_sizes().unwrap();
    writer.finish().unwrap()
}

fn intern(writer: &mut TraceWriter<Vec<u8>>, frames: &[(String, String, i32)]) -> Vec<Frame> {
    let mut interned = Vec::new();
    for (function, file, line) in frames {
        let function = writer.string(function).unwrap();
        interned.push(Frame {
            function,
            file: writer.string(file).unwrap(),
            line: *line,
        });
    }
    interned
}

/// Every record as text, and how reading ended.
fn read(file: &[u8], last_line: LastLine) -> (Vec<String>, Result<(), ReadError>) {
    let mut reader = RecordReader::with_last_line(file, last_line);
    let mut records = Vec::new();
    loop {
        match reader.next_record(&mut ()) {
            Ok(Some(record)) => records.push(format!("{record:?}")),
            Ok(None) => return (records, Ok(())),
            Err(error) => return (records, Err(error)),
        }
    }
}

/// The naive counterpart of the writer: what the records must be.
fn expected(steps: &[Step]) -> Vec<String> {
    Model::default().run(steps)
}

#[derive(Default)]
struct Model {
    strings: Vec<String>,
    ips: u32,
    traces: u32,
    infos: Vec<(u64, u32)>,
    records: Vec<String>,
    time: u64,
}

impl Model {
    fn run(mut self, steps: &[Step]) -> Vec<String> {
        self.push(Record::Version {
            heaptrack: 0x10400,
            file: Some(3),
        });
        let note = Note::Version(env!("CARGO_PKG_VERSION")).to_string();
        self.push(Record::Comment(&note.as_bytes()[1..]));
        self.push(Record::System {
            page_size: Some(0),
            pages: Some(0),
        });
        let mut info = None;
        for step in steps {
            self.step(step, &mut info);
        }
        self.push(Record::Comment(b""));
        let footers = [
            format!(" strings: {}", self.strings.len()),
            format!(" ips: {}", self.ips),
            " htrace-bpf: complete".into(),
        ];
        for footer in footers {
            self.push(Record::Comment(footer.as_bytes()));
        }
        self.records
    }

    fn push(&mut self, record: Record<'_>) {
        self.records.push(format!("{record:?}"));
    }

    fn step(&mut self, step: &Step, info: &mut Option<u32>) {
        match step {
            Step::String(text) => {
                self.string(text);
            }
            Step::Ip(ip, frames) => self.ip(*ip, frames),
            Step::Info(size) => *info = Some(self.info(*size)),
            Step::Allocate => {
                let info = info.map(AllocationInfoIndex::from_file);
                info.into_iter()
                    .for_each(|info| self.push(Record::Allocation(info)));
            }
            Step::Free => {
                let info = info.map(AllocationInfoIndex::from_file);
                info.into_iter()
                    .for_each(|info| self.push(Record::Deallocation(info)));
            }
            Step::Time(time) => {
                self.time = self.time.max(*time);
                self.push(Record::Timestamp(self.time.cast_signed()));
            }
            Step::Rss(pages) => self.push(Record::Rss(pages.cast_signed())),
        }
    }

    fn string(&mut self, text: &str) -> u32 {
        let text = text.replace('\n', " ");
        if text.is_empty() {
            return 0;
        }
        let known = self.strings.iter().position(|known| *known == text);
        let position = known.unwrap_or_else(|| {
            self.push(Record::String(text.as_bytes()));
            self.strings.push(text);
            self.strings.len() - 1
        });
        position as u32 + 1
    }

    fn ip(&mut self, ip: u64, frames: &[(String, String, i32)]) {
        let frames: Vec<Frame> = frames
            .iter()
            .map(|(function, file, line)| {
                let function = self.string(function);
                let file = self.string(file);
                // A lone frame without a file has no line either.
                let line = if frames.len() == 1 && file == 0 {
                    0
                } else {
                    *line
                };
                Frame {
                    function: htrace_trace_format::StringIndex::from_file(function),
                    file: htrace_trace_format::StringIndex::from_file(file),
                    line,
                }
            })
            .collect();
        let module = htrace_trace_format::StringIndex::from_file(self.string("/bin/module"));
        let frame = frames.first().copied().unwrap_or_default();
        let inlined = frames.get(1..).unwrap_or_default();
        self.push(Record::InstructionPointer(
            htrace_trace_format::record::InstructionPointer {
                ip,
                module,
                frame,
                inlined,
            },
        ));
        self.ips += 1;
        let parent = TraceIndex::from_file(self.traces);
        self.traces += 1;
        self.push(Record::Trace {
            ip: htrace_trace_format::IpIndex::from_file(self.ips),
            parent,
        });
    }

    /// The first pair is not found again: its index is the first allocation's alone.
    fn info(&mut self, size: u64) -> u32 {
        let trace = self.traces;
        let known = self
            .infos
            .iter()
            .skip(1)
            .position(|info| *info == (size, trace));
        if let Some(position) = known {
            return position as u32 + 1;
        }
        let index = TraceIndex::from_file(trace);
        self.push(Record::AllocationInfo { size, trace: index });
        self.infos.push((size, trace));
        self.infos.len() as u32 - 1
    }
}

proptest! {
    #[test]
    fn reader_reads_what_the_writer_wrote(steps in prop::collection::vec(step(), 0..40)) {
        let (records, end) = read(&write(&steps, Vec::new()), LastLine::Drop);
        prop_assert!(end.is_ok());
        prop_assert_eq!(records, expected(&steps));
    }

    /// heaptrack_gui 1.4 crashes otherwise.
    #[test]
    fn infos_are_first_used_in_order(sizes in prop::collection::vec(0_u64..5, 0..40)) {
        let mut writer = TraceWriter::new(Vec::new(), &Header::default()).unwrap();
        let mut used = Vec::new();
        for size in sizes {
            let info = writer.allocation_info(size, TraceIndex::NONE).unwrap();
            writer.allocation(info).unwrap();
            let info = info.get() as usize;
            prop_assert!(info <= used.len());
            if info == used.len() {
                used.push(size);
            }
            prop_assert_eq!(used[info], size);
        }
    }

    #[test]
    fn arbitrary_bytes_never_make_the_reader_fail_badly(file: Vec<u8>) {
        for last_line in [LastLine::Drop, LastLine::Parse] {
            let (_, end) = read(&file, last_line);
            if let Err(error) = end {
                let newer = matches!(error, ReadError::NewerVersion { .. });
                prop_assert!(newer);
            }
        }
    }
}

fn sample_steps() -> Vec<Step> {
    let frames = vec![
        ("work".to_owned(), "a.c".to_owned(), 7),
        ("main".to_owned(), "b.c".to_owned(), 9),
    ];
    let mut steps = vec![Step::Ip(0x401010, frames), Step::Info(64)];
    for time in 0..50 {
        steps.extend([Step::Allocate, Step::Allocate, Step::Free, Step::Time(time)]);
    }
    steps
}

#[test]
fn every_truncation_of_a_plain_file_is_a_prefix_and_is_noticed() {
    let file = write(&sample_steps(), Vec::new());
    let (all, _) = read(&file, LastLine::Drop);
    for length in 0..file.len() {
        let mut reader = RecordReader::new(&file[..length]);
        let mut count = 0;
        while let Some(record) = reader.next_record(&mut ()).unwrap() {
            assert_eq!(format!("{record:?}"), all[count], "cut at {length}");
            count += 1;
        }
        let at_line_end = length == 0 || file[length - 1] == b'\n';
        assert_eq!(reader.last_line_cut(), !at_line_end, "cut at {length}");
    }
}

#[test]
fn every_truncation_of_a_compressed_file_yields_the_frames_before_it() {
    let text = write(&sample_steps(), Vec::new());
    let mut writer = ZstdFrameWriter::new(Vec::new(), 3).unwrap();
    let mut complete = vec![(0, 0)];
    for (number, chunk) in text.chunks(100).enumerate() {
        writer.write_all(chunk).unwrap();
        writer.end_frame().unwrap();
        complete.push((writer.sink().len(), (number + 1) * 100));
    }
    let file = writer.finish().unwrap();
    for length in 4..file.len() {
        let mut decoded = Vec::new();
        let end = decoder(&file[..length]).unwrap().read_to_end(&mut decoded);
        let (frame_end, at_least) = complete
            .iter()
            .rev()
            .find(|(end, _)| *end <= length)
            .copied()
            .unwrap();
        assert!(decoded.len() >= at_least, "cut at {length}");
        assert!(text.starts_with(&decoded), "cut at {length}");
        match end {
            Ok(_) => assert_eq!(frame_end, length, "a cut inside a frame must be noticed"),
            Err(error) => assert_eq!(damage_of(&error), Some(Damage::Truncated)),
        }
    }
}

#[test]
fn containers_are_known_by_content_and_decode_to_the_same_text() {
    let text = write(&sample_steps(), Vec::new());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&text).unwrap();
    let mut zstd = ZstdFrameWriter::new(Vec::new(), 1).unwrap();
    zstd.write_all(&text).unwrap();
    let packed = [
        (Container::Zstd, zstd.finish().unwrap()),
        (Container::Gzip, gzip.finish().unwrap()),
        (Container::Plain, text.clone()),
    ];
    for (container, bytes) in packed {
        let decoder = decoder(std::io::Cursor::new(bytes)).unwrap();
        assert_eq!(decoder.container(), container);
        let mut decoded = Vec::new();
        pipelined(decoder)
            .unwrap()
            .read_to_end(&mut decoded)
            .unwrap();
        assert_eq!(decoded, text, "{container:?}");
    }
}

#[test]
fn gzip_truncation_keeps_every_decodable_byte_and_is_noticed() {
    let text = write(&sample_steps(), Vec::new());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&text).unwrap();
    let file = gzip.finish().unwrap();
    let mut decoded = Vec::new();
    let end = decoder(&file[..file.len() - 1])
        .unwrap()
        .read_to_end(&mut decoded);
    assert_eq!(damage_of(&end.unwrap_err()), Some(Damage::Truncated));
    assert_eq!(decoded, text);
}

#[test]
fn damage_inside_a_frame_is_told_from_truncation() {
    let mut writer = ZstdFrameWriter::new(Vec::new(), 3).unwrap();
    writer
        .write_all(&write(&sample_steps(), Vec::new()))
        .unwrap();
    let mut file = writer.finish().unwrap();
    let middle = file.len() / 2;
    file[middle] ^= 0xff;
    let end = decoder(&file[..]).unwrap().read_to_end(&mut Vec::new());
    assert_eq!(damage_of(&end.unwrap_err()), Some(Damage::Corrupt));
}

#[test]
fn an_error_of_the_source_comes_after_the_lines_before_it() {
    let mut writer = ZstdFrameWriter::new(Vec::new(), 3).unwrap();
    writer.write_all(b"v 10400 3\n+ 0\n+ 1\n+ 2").unwrap();
    let file = writer.finish().unwrap();
    let mut reader = RecordReader::new(
        pipelined(decoder(std::io::Cursor::new(file[..file.len() - 2].to_vec())).unwrap()).unwrap(),
    );
    let mut records = 0;
    let error = loop {
        match reader.next_record(&mut ()) {
            Ok(Some(_)) => records += 1,
            Ok(None) => panic!("the truncation went unnoticed"),
            Err(error) => break error,
        }
    };
    assert_eq!(records, 3);
    assert!(matches!(error, ReadError::Io { source, .. } if damage_of(&source).is_some()));
    assert!(reader.last_line_cut());
    assert!(reader.next_record(&mut ()).unwrap().is_none());
}

#[test]
fn a_file_version_from_the_future_is_refused_with_its_place() {
    let (records, end) = read(b"# hello\nv 10700 4\ns 1 a\n", LastLine::Drop);
    assert_eq!(records.len(), 1);
    let message = end.unwrap_err().to_string();
    assert!(
        message.contains("0x4") && message.contains("line 2, byte 8"),
        "{message}"
    );
}

#[test]
fn old_versions_read_unsized_strings_and_raw_events() {
    let (records, _) = read(b"s a b c\n+ 10 1 ff\n- ff\n", LastLine::Drop);
    assert_eq!(records[0], format!("{:?}", Record::String(b"a b c")));
    let raw = Record::RawAllocation {
        size: 16,
        trace: TraceIndex::from_file(1),
        pointer: 255,
    };
    assert_eq!(
        records[1..],
        [
            format!("{raw:?}"),
            format!("{:?}", Record::RawDeallocation { pointer: 255 })
        ]
    );
    let (records, _) = read(b"v 10200\ns a b c\n+ 10\n", LastLine::Drop);
    assert_eq!(
        records[2],
        format!(
            "{:?}",
            Record::Allocation(AllocationInfoIndex::from_file(16))
        )
    );
}

#[test]
fn no_text_injects_a_record() {
    let header = Header {
        command: &[b"./a", b"x\n+ 0\n\x1b[2J", b"\xff"],
        suppressions: &["leak:foo", "leak:", "", "# no", "leak:x\n+ 0", " leak:bar "],
        ..Header::default()
    };
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    writer.string("two\nlines").unwrap();
    writer.comment("two\n+ 0").unwrap();
    writer
        .note(&Note::Other {
            key: "k",
            value: "a\n+ 0",
        })
        .unwrap();
    let file = writer.finish().unwrap();
    assert!(!file.windows(2).any(|pair| pair == b"\n+"));
    let (records, _) = read(&file, LastLine::Drop);
    assert_eq!(
        records[2],
        format!("{:?}", Record::Command(b"./a x\\n+ 0\\n\\x1b[2J \xff"))
    );
    let suppressions: Vec<_> = records
        .iter()
        .filter(|r| r.starts_with("Suppression"))
        .collect();
    assert_eq!(suppressions.len(), 2);
}

#[test]
fn a_line_without_end_is_refused_before_memory_runs_out() {
    let endless = std::io::BufReader::new(std::io::repeat(b'x'));
    let mut reader = RecordReader::new(endless);
    let error = reader.next_record(&mut ()).unwrap_err();
    assert!(matches!(error, ReadError::LineTooLong { .. }));
    assert!(reader.next_record(&mut ()).unwrap().is_none());
}

#[test]
fn a_pipeline_hands_on_more_than_one_block() {
    let text: Vec<u8> = (0..2_000_000u32).flat_map(|n| n.to_le_bytes()).collect();
    let mut zstd = ZstdFrameWriter::new(Vec::new(), 1).unwrap();
    zstd.write_all(&text).unwrap();
    let file = std::io::Cursor::new(zstd.finish().unwrap());
    let mut decoded = Vec::new();
    pipelined(decoder(file).unwrap())
        .unwrap()
        .read_to_end(&mut decoded)
        .unwrap();
    assert!(decoded == text);
}
