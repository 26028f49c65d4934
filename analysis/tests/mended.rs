//! What the default report does otherwise than heaptrack_print; docs/heaptrack-compat.md names
//! these tests.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::Write as _;

use htrace_analysis::request::{self, Request, RequestError};
use support::memory::Memory;

/// main calls `eat` and `work` inlined into `outer`; info 1 belongs to eat, info 2 to outer.
const TABLES: &str = "v 10400 3\nX ./demo\nI 1000 400000\n\
    s 9 /opt/demo\ns 4 main\ns 6 demo.c\ns 3 eat\ns 4 work\ns 5 outer\n\
    i 401010 1 2 3 a\ni 401020 1 4 3 14\ni 401030 1 5 3 1e 6 3 28\ni 401040 1\n\
    t 1 0\nt 2 1\nt 3 1\nt 4 0\n\
    a 0 2\na 64 2\na 3e8 3\na 10 4\n";

struct Outcome {
    status: Result<u8, String>,
    out: String,
    err: String,
    files: Memory,
}

fn run_on(files: Memory, change: impl FnOnce(&mut Request)) -> Outcome {
    let mut request = Request::new("trace".into());
    change(&mut request);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = request::run(&request, &files, &mut out, &mut err);
    Outcome {
        status: status.map_err(|error: RequestError| error.to_string()),
        out: String::from_utf8(out).unwrap(),
        err: String::from_utf8(err).unwrap(),
        files,
    }
}

fn run(events: &str, change: impl FnOnce(&mut Request)) -> Outcome {
    let text = format!("{TABLES}{events}");
    run_on(Memory::with(&[("trace", text.as_bytes())]), change)
}

#[test]
fn user_suppressions_stand_beside_builtin_ones() {
    let text = format!("{TABLES}+ 1\n+ 2\n");
    let files = Memory::with(&[("trace", text.as_bytes()), ("supp", b"leak:eat\n")]);
    let outcome = run_on(files, |request| {
        request.suppressions.file = Some("supp".into());
        request.report.suppressions = true;
    });
    assert!(
        outcome
            .out
            .contains("total memory leaked: 1000B\nsuppressed leaks: 100B\n")
    );
    assert!(
        outcome
            .out
            .ends_with("               1             100B eat\n"),
        "{}",
        outcome.out
    );
}

#[test]
fn embedded_suppressions_count_in_both_forms() {
    for line in ["S leak:eat", "S 8 leak:eat"] {
        let outcome = run(&format!("{line}\n+ 1\n+ 2\n"), |_| {});
        assert!(outcome.out.contains("suppressed leaks: 100B"), "{line}");
        assert_eq!(
            (outcome.err.as_str(), outcome.status),
            ("", Ok(0)),
            "{line}"
        );
    }
}

#[test]
fn massif_trees_have_content_and_end_at_the_root() {
    let outcome = run("+ 1\n+ 2\n+ 3\nc a\n- 2\nc 14\n", |request| {
        request.massif = Some("massif".into());
    });
    let massif = outcome.files.text("massif").unwrap();
    assert!(
        massif.starts_with("desc: heaptrack\ncmd: ./demo\ntime_unit: ms\n#"),
        "{massif}"
    );
    let tree = "mem_heap_B=1116\nmem_heap_extra_B=0\nmem_stacks_B=0\nheap_tree=detailed\n\
        n3: 1116 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.\n \
        n1: 1000 0x401030: work (demo.c:30)\n  n0: 1000 0x401010: main (demo.c:10)\n \
        n1: 100 0x401020: eat (demo.c:20)\n  n0: 100 0x401010: main (demo.c:10)\n \
        n0: 16 0x401040: ??? (/opt/demo)\n";
    assert!(massif.contains(tree), "{massif}");
}

#[test]
fn ms_print_renders_the_massif_file() {
    let ms_print = std::path::Path::new("/usr/bin/ms_print");
    if !ms_print.exists() {
        assert!(
            std::env::var_os("CI").is_none(),
            "ms_print must be installed in CI"
        );
        eprintln!("skipped: {} is not installed", ms_print.display());
        return;
    }
    let outcome = run("+ 1\n+ 2\n+ 3\nc a\n- 2\nc 14\n+ 1\nc 1e\n", |request| {
        request.massif = Some("massif".into());
    });
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(outcome.files.text("massif").unwrap().as_bytes())
        .unwrap();
    let output = std::process::Command::new(ms_print)
        .arg(file.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("Number of snapshots: 4"), "{text}");
    assert!(
        text.contains("->89.61% (1,000B) 0x401030: work (demo.c:30)"),
        "{text}"
    );
}

#[test]
fn unknown_infos_are_skipped_and_named_with_their_place() {
    let outcome = run("+ 1\n- 99\n+ 77\n- 1\n", |_| {});
    assert_eq!(outcome.status, Ok(3));
    assert!(outcome.out.contains("calls to allocation functions: 1 ("));
    let byte = TABLES.len() + 4;
    let first = format!(
        "line 23, byte {byte}: the deallocation names info 153, but the file has defined 4\n"
    );
    assert!(outcome.err.contains(&first), "{}", outcome.err);
    assert_eq!(outcome.err.lines().count(), 2);
}

#[test]
fn cycles_in_the_trace_tree_end() {
    let cyclic = "v 10400 3\ns 1 f\ni 1 0 1\nt 1 2\nt 1 1\na 10 1\n+ 0\n";
    let outcome = run_on(Memory::with(&[("trace", cyclic.as_bytes())]), |request| {
        request.flamegraph = Some("flame".into());
        request.massif = Some("massif".into());
        request.filter_function = Some("f".into());
        request.report.leaks = true;
    });
    assert_eq!(outcome.status, Ok(0));
    assert_eq!(outcome.files.text("flame").unwrap(), "f;f 1\n");
    let massif = outcome.files.text("massif").unwrap();
    assert!(massif.lines().count() < 20, "{massif}");
}

#[test]
fn a_diff_keeps_the_peak_rss_and_takes_unknown_traces() {
    let (new, old) = (
        format!("{TABLES}+ 1\nR 20\n"),
        format!("{TABLES}a 7 0\n+ 4\nR 8\n"),
    );
    let files = Memory::with(&[("trace", new.as_bytes()), ("base", old.as_bytes())]);
    let outcome = run_on(files, |request| request.base = Some("base".into()));
    assert_eq!(outcome.status, Ok(0));
    assert!(
        outcome
            .out
            .contains("peak RSS (including heaptrack overhead): 98.30K")
    );
    assert!(outcome.out.contains("total memory leaked: 93B"));
}

#[test]
fn ties_stay_in_order_of_first_appearance_whatever_sections_came_before() {
    let events: String = (1..4).flat_map(|info| [format!("+ {info}\n")]).collect();
    let order = |temporary| {
        let outcome = run(&events, |request| {
            request.report.peaks = false;
            request.report.temporary = temporary;
        });
        let mut lines = outcome
            .out
            .lines()
            .skip_while(|line| !line.starts_with("MOST CALLS"));
        let names: Vec<String> = lines
            .by_ref()
            .filter(|line| ["eat", "work", "0x401040"].contains(line))
            .map(str::to_owned)
            .collect();
        names
    };
    assert_eq!(order(true), ["eat", "work", "0x401040"]);
    assert_eq!(order(false), ["eat", "work", "0x401040"]);
}

#[test]
fn the_run_time_always_has_two_decimals() {
    let outcome = run("c a\n", |request| {
        request.report.allocators = false;
        request.report.peaks = false;
        request.report.temporary = false;
    });
    assert!(
        outcome.out.contains("total runtime: 0.01s.\n"),
        "{}",
        outcome.out
    );
}

#[test]
fn the_rest_of_temporary_allocations_is_a_number_not_a_size() {
    let outcome = run("t 2 4\na 8 5\n+ 1\n- 1\n+ 4\n- 4\n", |request| {
        request.report.sub_peak_limit = 1;
    });
    assert!(
        outcome.out.contains("  and 1 from 1 other places\n"),
        "{}",
        outcome.out
    );
    assert!(!outcome.out.contains("and 1B from"), "{}", outcome.out);
}

#[test]
fn allocations_without_backtrace_keep_the_layout() {
    let outcome = run("a 5 0\n+ 4\n+ 1\n", |request| {
        request.report.allocators = false;
        request.report.temporary = false;
    });
    assert!(
        outcome.out.contains("from\n0x0\n  in ??\n\n"),
        "{}",
        outcome.out
    );
    let unmerged = run("a 5 0\n+ 4\n", |request| request.report.merge = false);
    assert!(unmerged.out.contains("from\n  ??\n\n"), "{}", unmerged.out);
}

/// `work` of one module at two addresses, as when it was loaded twice, called by main; and twice an
/// address without a name.
const LOADED_TWICE: &str = "v 10400 3\nX ./demo\ns 9 /opt/demo\ns 4 main\ns 6 demo.c\ns 4 work\n\
    i 401010 1 2 3 a\ni 7f0010 1 4 3 7\ni 7f8010 1 4 3 7\ni 7fa000\ni 7fb000\n\
    t 1 0\nt 2 1\nt 3 1\nt 4 1\nt 5 1\n\
    a 10 2\na 20 3\na 1 4\na 2 5\n+ 0\n+ 1\n+ 1\n- 1\n+ 2\n+ 3\n";

#[test]
fn backtraces_that_read_the_same_are_one_everywhere() {
    let report = |change: &dyn Fn(&mut Request)| {
        let files = Memory::with(&[("trace", LOADED_TWICE.as_bytes())]);
        run_on(files, |request| change(request))
    };
    let merged = report(&|_| {}).out;
    let row = "80B consumed over 3 calls from:\n    main\n";
    assert_eq!(merged.matches(row).count(), 1, "{merged}");
    let unmerged = report(&|request| request.report.merge = false).out;
    let row = "80B peak memory consumed over 3 calls from\n  work\n";
    assert_eq!(unmerged.matches(row).count(), 1, "{unmerged}");
    for address in ["0x7fa000", "0x7fb000"] {
        assert!(unmerged.contains(address), "{unmerged}");
    }
    let folded = report(&|request| request.flamegraph = Some("flame".into()));
    let folded = folded.files.text("flame").unwrap();
    assert_eq!(
        folded.lines().next(),
        Some("main (demo.c);work (demo.c) 3"),
        "{folded}"
    );
    assert_eq!(folded.lines().count(), 3, "{folded}");
}

#[test]
fn folded_stacks_have_inlined_frames_in_order_and_nothing_superfluous() {
    let outcome = run("+ 1\n+ 2\n", |request| {
        request.flamegraph = Some("flame".into())
    });
    assert_eq!(
        outcome.files.text("flame").unwrap(),
        "main (demo.c);eat (demo.c) 1\nmain (demo.c);outer (demo.c);work (demo.c) 1\n"
    );
}

#[test]
fn the_function_filter_finds_main_and_stops_where_main_was_inlined() {
    let filtered = |text: &str| {
        run("+ 1\n+ 2\n+ 3\n", |request| {
            request.filter_function = Some(text.into())
        })
        .out
    };
    let all = filtered("main");
    assert!(all.contains("\neat\n") && all.contains("\nwork\n") && !all.contains("0x401040"));
    assert!(filtered("outer").contains("\nwork\n"));
    // libc_start calls an address where `inner` was inlined into main.
    let inlined_main = "v 10400 3\ns 4 main\ns 5 inner\ns a libc_start\ns 3 a.c\n\
        i 1 0 3\ni 2 0 2 4 1 1 4 2\nt 1 0\nt 2 1\na 8 1\na 8 2\n+ 1\n";
    let outcome = run_on(
        Memory::with(&[("trace", inlined_main.as_bytes())]),
        |request| {
            request.report.merge = false;
            request.filter_function = Some("libc_start".into());
        },
    );
    assert!(!outcome.out.contains("inner"), "{}", outcome.out);
}

#[test]
fn truncated_files_are_reported_and_refused_when_strict() {
    let mut packed = htrace_trace_format::compression::ZstdFrameWriter::new(Vec::new(), 3).unwrap();
    packed.write_all(TABLES.as_bytes()).unwrap();
    packed.end_frame().unwrap();
    packed.write_all(b"+ 1\n+ 1\n").unwrap();
    let packed = packed.finish().unwrap();
    let files = || Memory::with(&[("trace", &packed[..packed.len() - 3])]);
    let outcome = run_on(files(), |_| {});
    assert_eq!(outcome.status, Ok(3));
    assert!(
        outcome
            .err
            .contains("the compressed data ends early, behind line ")
    );
    let strict = run_on(files(), |request| request.strict = true);
    assert!(strict.status.unwrap_err().contains("ends early"));
    assert!(!strict.out.contains("total runtime"));
}

#[test]
fn a_cut_record_is_not_taken_for_a_whole_one() {
    let outcome = run("+ 1\n+ 1", |_| {});
    assert_eq!(outcome.status, Ok(3));
    assert!(outcome.out.contains("calls to allocation functions: 1 ("));
    assert!(outcome.err.contains("ends inside a line"));
}

#[test]
fn a_recording_of_ours_without_its_end_is_told_apart() {
    let outcome = run("# htrace-bpf: version 0.1.0\n+ 1\n", |_| {});
    assert_eq!(outcome.status, Ok(3));
    assert!(outcome.err.contains("the recording was cut short"));
    let whole = run(
        "# htrace-bpf: version 0.1.0\n+ 1\n# htrace-bpf: complete\n",
        |_| {},
    );
    assert_eq!((whole.status, whole.err.as_str()), (Ok(0), ""));
}

#[test]
fn lost_events_are_named() {
    let outcome = run("# htrace-bpf: lost ring-full 5\n+ 1\n", |_| {});
    assert_eq!(
        outcome.err,
        "warning: trace: 5 events were lost: ring-full\n"
    );
}

#[test]
fn a_problem_is_told_once() {
    let outcome = run("+ \n+ 1\n", |_| {});
    assert_eq!(outcome.err.matches("not a usable record").count(), 1);
}

#[test]
fn a_side_file_that_cannot_be_written_is_a_failure() {
    let outcome = run("+ 1\n", |request| {
        request.histogram = Some("/no/where".into())
    });
    assert!(
        outcome
            .status
            .unwrap_err()
            .contains("cannot write /no/where")
    );
}

#[test]
fn a_second_command_line_does_not_end_reading() {
    let outcome = run("X other\n+ 1\n", |_| {});
    assert!(outcome.out.contains("Debuggee command was: ./demo\n"));
    assert!(outcome.out.contains("calls to allocation functions: 1 ("));
}

#[test]
fn a_file_from_the_future_is_refused() {
    let outcome = run_on(Memory::with(&[("trace", b"v 20000 4\n+ 1\n")]), |_| {});
    assert!(outcome.status.unwrap_err().contains("newer than version 3"));
}

#[test]
fn garbage_is_refused_or_reported_but_never_trusted() {
    for garbage in [
        &b"\x00\xff\xfe\n\n\x01"[..],
        b"this is text\nand more\n",
        b"",
    ] {
        let outcome = run_on(Memory::with(&[("trace", garbage)]), |_| {});
        assert_ne!(outcome.status, Ok(0), "{garbage:?}");
    }
}

#[test]
fn a_raw_trace_is_interpreted_on_the_way() {
    let raw = "v 10400 3\nx 9 /opt/demo\nX ./demo\nI 1000 400\nm 1 -\nm 1 x 400000 0 2000\n\
        t 401010 0\n+ 40 1 5500\n+ 8 1 5501\n- 5500\nc a\n";
    let outcome = run_on(Memory::with(&[("trace", raw.as_bytes())]), |_| {});
    assert_eq!((outcome.err.as_str(), outcome.status), ("", Ok(0)));
    assert!(
        outcome.out.contains("0x401010\n  in /opt/demo\n"),
        "{}",
        outcome.out
    );
    assert!(outcome.out.contains("calls to allocation functions: 2 ("));
    assert!(outcome.out.contains("total memory leaked: 8B"));
    let cut = run_on(
        Memory::with(&[("trace", &raw.as_bytes()[..raw.len() - 1])]),
        |_| {},
    );
    assert_eq!(cut.status, Ok(3), "{}", cut.err);
}
