//! JSON, time windows, leaks by age, inclusive costs, and folders of traces.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;

use htrace_analysis::builder::Rules;
use htrace_analysis::check::write_check;
use htrace_analysis::cost::CostKind;
use htrace_analysis::folder::write_folder;
use htrace_analysis::load;
use htrace_analysis::request::{self, Format, Request, View};
use htrace_analysis::tree::Direction;
use htrace_analysis::window::Window;
use support::Random;
use support::generator::{self, Shape};
use support::memory::Memory;

const TABLES: &str = "v 10400 3\nX ./demo\nI 1000 400000\n\
    s 9 /opt/demo\ns 4 main\ns 6 demo.c\ns 3 eat\ns 4 work\ns 5 outer\n\
    i 401010 1 2 3 a\ni 401020 1 4 3 14\ni 401030 1 5 3 1e 6 3 28\ni 401040 1\n\
    t 1 0\nt 2 1\nt 3 1\nt 4 3\n\
    a 0 2\na 64 2\na 3e8 3\na 10 4\n";

fn run(events: &str, change: impl FnOnce(&mut Request)) -> String {
    let text = format!("{TABLES}{events}");
    let mut request = Request::new("trace".into());
    change(&mut request);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let files = Memory::with(&[("trace", text.as_bytes())]);
    request::run(&request, &files, &mut out, &mut err).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn json_has_the_documented_fields_and_the_figures_of_the_text() {
    let text = run("+ 1\n+ 2\n+ 2\n- 2\nR 10\nc a\n", |request| {
        request.format = Format::Json;
        request.report.leaks = true;
    });
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["schema"], "htrace-bpf-report");
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["command"], "./demo");
    assert_eq!(json["whole"], true);
    assert_eq!(
        (&json["runtime_ms"], &json["peak_rss_bytes"]),
        (&11.into(), &65536.into())
    );
    let total = serde_json::json!({
        "allocations": 3, "temporary": 1, "leaked_bytes": 1100, "peak_bytes": 2100,
    });
    assert_eq!(json["total"], total);
    let kinds: Vec<&str> = json["rankings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["cost"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["allocations", "temporary", "leaked", "peak"]);
    let top = &json["rankings"][3]["entries"][0];
    assert_eq!(top["costs"]["peak_bytes"], 2000);
    let place = serde_json::json!([
        {"function": "work", "file": "demo.c", "line": 30, "module": "/opt/demo",
         "address": "0x401030", "inlined": true},
        {"function": "outer", "file": "demo.c", "line": 40, "module": "/opt/demo",
         "address": "0x401030", "inlined": false},
    ]);
    assert_eq!(top["place"], place);
    assert_eq!(top["backtraces"][0]["frames"].as_array().unwrap().len(), 3);
    let documented = include_str!("../../docs/report-json.md");
    for field in json
        .as_object()
        .unwrap()
        .keys()
        .chain(top.as_object().unwrap().keys())
    {
        assert!(
            documented.contains(&format!("`{field}`")),
            "{field} is not documented"
        );
    }
}

/// What a recording says of stacks that it cut short.
const CUT_STACKS: &str = "# htrace-bpf: version 0.1.0\n\
    # htrace-bpf: stack-end complete 5\n# htrace-bpf: stack-end no-table 3\n\
    # htrace-bpf: stack-cut no-table 1 /usr/bin/node\n# htrace-bpf: stack-cut no-table 2 \n\
    + 1\n# htrace-bpf: complete\n";

#[test]
fn json_tells_where_stacks_are_cut() {
    let text = run(CUT_STACKS, |request| request.format = Format::Json);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let ends = serde_json::json!({"complete": 5, "no-table": 3});
    let cuts = serde_json::json!([
        {"reason": "no-table", "module": null, "allocations": 2},
        {"reason": "no-table", "module": "/usr/bin/node", "allocations": 1},
    ]);
    assert_eq!((&json["stack_ends"], &json["stack_cuts"]), (&ends, &cuts));
}

/// What a recording says of what it left out.
const LEFT_OUT: &str = "# htrace-bpf: version 0.1.0\n\
    # htrace-bpf: left-out min-size 7\n# htrace-bpf: left-out functions 3 4000\n\
    # htrace-bpf: paused 100 250\n+ 1\n# htrace-bpf: complete\n";

#[test]
fn all_reports_tell_what_was_left_out() {
    let text = run(LEFT_OUT, |request| request.format = Format::Json);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let choices = serde_json::json!({
        "min-size": {"allocations": 7, "bytes": null},
        "functions": {"allocations": 3, "bytes": 4000},
    });
    let pauses = serde_json::json!([{"from_ms": 100, "to_ms": 250}]);
    assert_eq!((&json["left_out"], &json["pauses"]), (&choices, &pauses));

    let text = run(LEFT_OUT, |_| {});
    assert!(
        text.contains("   7 calls left out by --min-size\n"),
        "{text}"
    );
    assert!(text.contains("0.10s to 0.25s\n"), "{text}");

    let loaded = load(
        format!("{TABLES}{LEFT_OUT}").as_bytes(),
        Rules::LENIENT,
        &mut (),
    );
    let mut out = Vec::new();
    write_check("trace", &loaded, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.contains("  3 allocations left out by --functions\n"),
        "{text}"
    );
    assert!(
        text.contains("  times that the recording paused: 1\n"),
        "{text}"
    );
}

#[test]
fn check_tells_where_stacks_are_cut() {
    let text = format!("{TABLES}{CUT_STACKS}");
    let loaded = load(text.as_bytes(), Rules::LENIENT, &mut ());
    let mut out = Vec::new();
    write_check("trace", &loaded, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    let line = "  odd: the stacks of 3 allocations are cut: no-table: 2 in unknown code, \
        1 in /usr/bin/node\n";
    assert!(out.contains(line), "{out}");
    assert!(out.starts_with("trace: whole\n"), "{out}");
}

#[test]
fn unmerged_json_lists_backtraces() {
    let text = run("+ 1\n+ 3\n", |request| {
        request.format = Format::Json;
        request.report.merge = false;
    });
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let entries = json["rankings"][0]["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    assert!(entries[0].get("place").is_none());
}

/// What a window must come to: the events within it, less the frees that find no block of it.
fn naive_window(text: &str, window: Window) -> (i64, i64, u64) {
    let (mut now, mut infos) = (0, Vec::new());
    let mut live: BTreeMap<u64, i64> = BTreeMap::new();
    let (mut allocations, mut leaked, mut older) = (0, 0, 0);
    for line in text.lines() {
        let field = |at| u64::from_str_radix(line.split(' ').nth(at).unwrap(), 16).unwrap();
        match line.as_bytes().first() {
            Some(b'c') => now = field(1).cast_signed(),
            Some(b'a') => infos.push(field(1).cast_signed()),
            Some(b'+') if now >= window.from && now < window.to => {
                allocations += 1;
                leaked += infos[field(1) as usize];
                *live.entry(field(1)).or_default() += 1;
            }
            Some(b'-') if now >= window.from && now < window.to => {
                let live = live.entry(field(1)).or_default();
                if *live > 0 {
                    *live -= 1;
                    leaked -= infos[field(1) as usize];
                } else {
                    older += 1;
                }
            }
            _ => {}
        }
    }
    (allocations, leaked, older)
}

#[test]
fn a_window_counts_what_was_allocated_in_it() {
    let mut with_older = 0;
    for seed in 0..500 {
        let mut random = Random(seed);
        let shape = Shape {
            malformed: false,
            version: 3,
            known_traces: false,
        };
        let text = generator::trace(&mut random, shape);
        let from = random.below(100).cast_signed();
        let window = Window {
            from,
            to: from + 1 + random.below(100).cast_signed(),
        };
        let rules = Rules {
            window: Some(window),
            ..Rules::LENIENT
        };
        let profile = load(text.as_bytes(), rules, &mut ()).profile;
        let got = (
            profile.total.allocations,
            profile.total.leaked,
            profile.freed_older,
        );
        assert_eq!(got, naive_window(&text, window), "seed {seed}, {window:?}");
        with_older += u64::from(profile.freed_older > 0);
    }
    assert!(with_older > 10);
}

#[test]
fn a_window_over_everything_changes_nothing() {
    let text = format!("{TABLES}+ 1\n+ 2\nc a\n- 1\n+ 3\nc 14\n");
    let all = Rules {
        window: Some(Window {
            from: 0,
            to: i64::MAX,
        }),
        ..Rules::LENIENT
    };
    let whole = load(text.as_bytes(), Rules::LENIENT, &mut ()).profile;
    let windowed = load(text.as_bytes(), all, &mut ()).profile;
    assert_eq!(
        (whole.total, whole.runtime),
        (windowed.total, windowed.runtime)
    );
    let out = run("+ 1\nc a\n- 1\n+ 2\nc 14\n", |request| {
        request.window = Some(Window { from: 10, to: 20 });
    });
    let line = "only what was allocated from 0.01s to 0.02s; 1 frees of older blocks\n\n";
    assert!(out.contains(line), "{out}");
    assert!(
        out.contains("calls to allocation functions: 1 (100/s)"),
        "{out}"
    );
}

#[test]
fn leaks_have_ages_certain_where_nothing_was_freed() {
    let out = run("+ 1\nc 64\n+ 1\n+ 2\nc 7d0\n+ 2\n- 2\n+ 3\n", |request| {
        request.leak_ages = true;
    });
    let table = "LEAKS BY AGE AT THE END\n\
        age                 certain      assumed\n\
        up to 0.1 s             16B           0B\n\
        up to 10 s             200B        1000B\n";
    assert!(out.contains(table), "{out}");
}

#[test]
fn trees_show_inclusive_costs_in_both_directions() {
    let tree = |direction| {
        run("+ 1\n+ 2\n+ 3\n", |request| {
            request.views = vec![View::Tree(direction)];
            request.tree.min_percent = 0.0;
        })
    };
    let down = "   INCLUSIVE         SELF   SHARE  FUNCTION\n       \
        1.12K           0B 100.00%  main\n       \
        1.02K           0B  91.04%    outer\n       \
        1.02K        1000B  91.04%      work\n         \
        16B          16B   1.43%        ?? in /opt/demo\n        \
        100B         100B   8.96%    eat\n";
    let got = tree(Direction::TopDown);
    assert!(got.contains(down), "{got}");
    let up = "        16B          16B   1.43%  ?? in /opt/demo\n";
    let got = tree(Direction::BottomUp);
    assert!(got.contains(up.trim_start()), "{got}");
    assert!(
        got.contains("1000B           0B  89.61%      main\n"),
        "{got}"
    );
}

#[test]
fn callers_and_callees_count_a_recursive_function_once() {
    // main calls eat, which calls itself and work.
    let events = "t 2 2\nt 3 5\na 64 6\n+ 4\n";
    let out = run(events, |request| {
        request.views = vec![View::CallersAndCallees];
        request.tree.kind = CostKind::Allocations;
    });
    assert!(out.contains("           1            0  eat\n"), "{out}");
    assert!(
        out.contains("called by main\n") && out.contains("calls eat\n"),
        "{out}"
    );
}

/// Files that threads may share.
struct Folder;

impl htrace_analysis::files::Files for Folder {
    fn open(&self, path: &std::path::Path) -> std::io::Result<Box<dyn std::io::Read + Send>> {
        let name = path.to_str().unwrap();
        let text = match name {
            "missing" => return Err(std::io::ErrorKind::NotFound.into()),
            "garbage" => String::new(),
            "cut" => format!("{TABLES}+ 1\n+ 1"),
            _ => format!("{TABLES}{}", "+ 1\n".repeat(name.parse().unwrap())),
        };
        Ok(Box::new(std::io::Cursor::new(text.into_bytes())))
    }

    fn create(&self, _: &std::path::Path) -> std::io::Result<Box<dyn std::io::Write>> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn is_ordinary(&self, _: &std::path::Path) -> bool {
        true
    }
}

#[test]
fn a_folder_is_summarised_in_order_whatever_is_in_it() {
    let names = ["3", "missing", "cut", "garbage", "1"].map(std::path::PathBuf::from);
    let mut out = Vec::new();
    let status = write_folder(&names, &Folder, 3, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(status, 3);
    assert_eq!(lines.len(), 7);
    assert!(lines[1].ends_with("300B  whole    3"), "{out}");
    assert!(
        lines[2].contains("refused  missing: cannot open missing"),
        "{out}"
    );
    assert!(
        lines[3].ends_with("damaged  cut") && lines[4].contains("refused  garbage"),
        "{out}"
    );
    assert!(lines[6].ends_with("500B           5 traces"), "{out}");
    assert!(lines[6].trim_start().starts_with('5'), "{out}");
}

#[test]
fn a_thousand_traces_are_summarised_by_one_call() {
    let names: Vec<std::path::PathBuf> = (0..1000)
        .map(|number| (number % 7 + 1).to_string().into())
        .collect();
    let mut out = Vec::new();
    assert_eq!(write_folder(&names, &Folder, 4, &mut out).unwrap(), 0);
    assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 1002);
}
