//! What the fuzz targets do with an input, so that stable tests can replay their seeds.
//!
//! Each function takes any bytes and must neither panic nor use memory, or write, out of proportion.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::{self, BufReader, Cursor, Read, Write};
use std::path::Path;

use htrace_analysis::builder::Rules;
use htrace_analysis::check::write_check;
use htrace_analysis::comparison::compare;
use htrace_analysis::cost::CostKind;
use htrace_analysis::drop_in::{self, Version};
use htrace_analysis::files::Files;
use htrace_analysis::flamegraph::{FlamegraphOptions, write_svg};
use htrace_analysis::request::{self, Format, Request, View};
use htrace_analysis::tree::Direction;
use htrace_analysis::window::Window;
use htrace_analysis::{load, suppression};
use htrace_trace_format::compression::decoder;
use htrace_trace_format::raw::interpret;
use htrace_trace_format::reader::LastLine;
use htrace_trace_format::{EventBatch, RecordReader};

/// Tables of an input may take this much memory.
const MEMORY_LIMIT: usize = 64 << 20;

/// What all outputs of an input of `length` bytes may come to, each: work is counted in what it
/// writes, since time depends on what else a machine does.
const fn output_limit(length: usize) -> usize {
    (32 << 20) + length * 2048
}

/// An output that may not grow beyond a limit.
struct Bounded {
    left: usize,
}

impl Bounded {
    fn of(data: &[u8]) -> Self {
        let left = output_limit(data.len());
        Self { left }
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(bytes.len() <= self.left, "an output is out of proportion");
        self.left -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The input as every file that is opened; outputs go nowhere, but are counted.
struct OneFile<'a>(&'a [u8]);

impl Files for OneFile<'_> {
    fn open(&self, _path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Cursor::new(self.0.to_vec())))
    }

    fn create(&self, _path: &Path) -> io::Result<Box<dyn Write>> {
        Ok(Box::new(Bounded::of(self.0)))
    }

    fn is_ordinary(&self, _path: &Path) -> bool {
        true
    }
}

/// Decompresses, then reads all records in both ways.
pub fn reader(data: &[u8]) {
    for last_line in [LastLine::Drop, LastLine::Parse] {
        let Ok(source) = decoder(data) else { return };
        let mut reader = RecordReader::with_last_line(BufReader::new(source.take(1 << 24)), last_line);
        let mut batch = EventBatch::default();
        loop {
            reader.take_events(1 << 20, &mut batch);
            match reader.next_record(&mut ()) {
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
    }
}

/// Interprets a raw trace, then loads the result.
pub fn raw(data: &[u8]) {
    let mut interpreted = Vec::new();
    if interpret(data, &mut interpreted, &mut ()).is_ok() {
        load(&interpreted[..], rules(), &mut ());
    }
}

/// The first line is a text, the rest a suppression file.
pub fn suppressions(data: &[u8]) {
    let mut parts = data.splitn(2, |&byte| byte == b'\n');
    let text = parts.next().unwrap_or_default();
    let patterns = suppression::parse_file(parts.next().unwrap_or_default(), |_| {});
    for pattern in patterns {
        let _ = suppression::matches(&pattern, text);
    }
}

/// Everything that is printed of a trace.
pub fn renderers(data: &[u8]) {
    let loaded = load(data, rules(), &mut ());
    let _ = write_check("input", &loaded, &mut Bounded::of(data));
    let profile = loaded.profile;
    let _ = compare(&profile, &profile).write(CostKind::Peak, 10, &mut Bounded::of(data));
    if profile.entries.len() < 100 {
        let options = FlamegraphOptions {
            kind: CostKind::Allocations,
            shorten_templates: true,
            reverse: false,
        };
        let _ = write_svg(&profile, Some(&profile), options, &mut Bounded::of(data));
    }
    for format in [Format::Text, Format::Json] {
        let mut request = Request::new("input".into());
        request.format = format;
        request.window = Some(Window { from: 1, to: 100 });
        request.leak_ages = true;
        request.report.leaks = true;
        request.filter_module = Some("lib".into());
        request.views = vec![
            View::Tree(Direction::TopDown),
            View::Tree(Direction::BottomUp),
            View::CallersAndCallees,
        ];
        let _ = request::run(&request, &OneFile(data), &mut Bounded::of(data), &mut Bounded::of(data));
    }
    for merge in [true, false] {
        let mut request = Request::new("input".into());
        request.report.merge = merge;
        request.report.leaks = true;
        request.histogram = Some("histogram".into());
        request.flamegraph = Some("flamegraph".into());
        request.massif = Some("massif".into());
        request.base = merge.then(|| "base".into());
        request.filter_function = (!merge).then(|| "main".into());
        let _ = request::run(&request, &OneFile(data), &mut Bounded::of(data), &mut Bounded::of(data));
    }
}

/// heaptrack_print's ways.
pub fn drop_in(data: &[u8]) {
    let lines = [
        "-l -Hh -Ff -Mm input",
        "-m0 -l -dbase input",
        "--suppressions s -Mm --massif-threshold 0 input",
    ];
    for (line, version) in lines
        .into_iter()
        .zip([Version::V1_4, Version::V1_5, Version::V1_6])
    {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let _ = drop_in::run(
            &words,
            version,
            &OneFile(data),
            &mut Bounded::of(data),
            &mut Bounded::of(data),
        );
    }
}

fn rules() -> Rules {
    Rules {
        memory_limit: MEMORY_LIMIT,
        ..Rules::LENIENT
    }
}
