//! The installed heaptrack_print reads what the writer writes and counts right.
//!
//! Skipped, with the reason printed, where heaptrack is not installed; the project's setup
//! installs it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use htrace_trace_format::compression::ZstdFrameWriter;
use htrace_trace_format::writer::Header;
use htrace_trace_format::{Frame, Note, TraceIndex, TraceWriter};

const HEAPTRACK_PRINT: &str = "/usr/bin/heaptrack_print";

fn heaptrack_print_is_missing() -> bool {
    let missing = !Path::new(HEAPTRACK_PRINT).exists();
    if missing {
        assert!(
            std::env::var_os("CI").is_none(),
            "{HEAPTRACK_PRINT} must be installed in CI"
        );
        eprintln!("skipped: {HEAPTRACK_PRINT} is not installed");
    }
    missing
}

/// main calls eat (10 blocks of 100 bytes, 9 freed) and work (5 of 1000 bytes, none freed);
/// eat's blocks die one behind the other, so an info 0 of all of them would show as temporary.
fn write_sample(path: &Path) {
    let header = Header {
        command: &[b"./sample", b"two words"],
        page_size: 4096,
        pages: 1000,
        suppressions: &["leak:nothing_such"],
        ..Header::default()
    };
    let file = std::fs::File::create(path).unwrap();
    let sink = ZstdFrameWriter::new(file, 3).unwrap();
    let mut writer = TraceWriter::new(sink, &header).unwrap();
    let mut node = |function: &str, line, parent| {
        let module = writer.string("/opt/sample").unwrap();
        let function = writer.string(function).unwrap();
        let file = writer.string("sample.c").unwrap();
        let ip = writer
            .instruction_pointer(
                0x1000 + line as u64,
                module,
                &[Frame {
                    function,
                    file,
                    line,
                }],
            )
            .unwrap();
        writer.trace(ip, parent).unwrap()
    };
    let main = node("main", 3, TraceIndex::NONE);
    let (eat, work) = (node("eat", 10, main), node("work", 20, main));
    let mut allocate = |size, trace| {
        let info = writer.allocation_info(size, trace).unwrap();
        writer.allocation(info).unwrap();
        info
    };
    let eaten: Vec<_> = (0..10).map(|_| allocate(100, eat)).collect();
    for _ in 0..5 {
        allocate(1000, work);
    }
    writer
        .note(&Note::Lost {
            reason: "ring-full",
            count: 2,
        })
        .unwrap();
    writer.checkpoint().unwrap();
    for info in eaten.into_iter().take(9) {
        writer.deallocation(info).unwrap();
    }
    writer.timestamp(10).unwrap();
    writer.rss(16).unwrap();
    writer.finish().unwrap().finish().unwrap();
}

fn run(directory: &Path) -> String {
    let output = Command::new(HEAPTRACK_PRINT)
        .args(["-l1", "-Fflame", "-Hhist", "-Mmassif", "sample.zst"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn heaptrack_print_counts_right() {
    if heaptrack_print_is_missing() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    write_sample(&directory.path().join("sample.zst"));
    let report = run(directory.path());
    for line in [
        "Debuggee command was: ./sample two words",
        "10 calls to allocation functions with 1000B peak consumption from\neat\n  at sample.c:10\n  in /opt/sample",
        "5.00K leaked over 5 calls from\nwork",
        "calls to allocation functions: 15 (",
        "temporary memory allocations: 0 (",
        "peak heap memory consumption: 6.00K",
        "peak RSS (including heaptrack overhead): 65.54K",
        "total memory leaked: 5.10K",
    ] {
        assert!(report.contains(line), "{line:?} is missing in\n{report}");
    }
}

#[test]
fn the_first_allocations_own_info_shows_nowhere() {
    if heaptrack_print_is_missing() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    write_sample(&directory.path().join("sample.zst"));
    let report = run(directory.path());
    assert!(
        !report.contains("??") && !report.contains("other places"),
        "{report}"
    );
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    assert_eq!(
        read("flame"),
        "main (sample.c);eat (sample.c); 10\nmain (sample.c);work (sample.c); 5\n"
    );
    assert_eq!(read("hist"), "100\t10\n1000\t5\n");
}
