//! Flame graphs, comparisons and checks.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use htrace_analysis::builder::Rules;
use htrace_analysis::check::write_check;
use htrace_analysis::comparison::{Change, compare};
use htrace_analysis::flamegraph::{FlamegraphError, FlamegraphOptions, write_svg};
use htrace_analysis::{CostKind, Loaded, load};

const TABLES: &str = "v 10400 3\nX ./demo\n\
    s 4 main\ns 5 eat<>\ns 4 work\ns 3 a.c\n\
    i 1 0 1 4 1\ni 2 0 2 4 2\ni 3 0 3 4 3\n\
    t 1 0\nt 2 1\nt 3 1\na 0 2\na 64 2\na 3e8 3\n";

fn read(events: &str) -> Loaded {
    load(
        format!("{TABLES}{events}").as_bytes(),
        Rules::LENIENT,
        &mut (),
    )
}

fn svg(events: &str, base: Option<&str>, kind: CostKind) -> Result<String, FlamegraphError> {
    let (profile, base) = (read(events).profile, base.map(|base| read(base).profile));
    let options = FlamegraphOptions {
        kind,
        shorten_templates: true,
        reverse: false,
    };
    let mut out = Vec::new();
    write_svg(&profile, base.as_ref(), options, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

/// The titles of all frames with their costs, widest first.
fn frames(svg: &str) -> Vec<(String, u64)> {
    let mut frames: Vec<(String, u64)> = svg
        .split("<title>")
        .skip(1)
        .map(|part| {
            let title = part.split("</title>").next().unwrap();
            let (name, rest) = title.rsplit_once(" (").unwrap();
            let digits: String = rest
                .split(' ')
                .next()
                .unwrap()
                .chars()
                .filter(char::is_ascii_digit)
                .collect();
            (name.to_owned(), digits.parse().unwrap())
        })
        .collect();
    frames.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
    frames
}

#[test]
fn the_widest_leaf_is_the_top_of_the_ranking() {
    for (kind, top, cost) in [
        (CostKind::Allocations, "eat&lt;&gt; (a.c)", 3),
        (CostKind::Leaked, "work (a.c)", 1000),
        (CostKind::Peak, "work (a.c)", 1000),
        (CostKind::Temporary, "eat&lt;&gt; (a.c)", 1),
    ] {
        let frames = frames(&svg("+ 1\n+ 1\n+ 2\n+ 1\n- 1\n", None, kind).unwrap());
        let leaf = frames
            .iter()
            .find(|(name, _)| !["all", "main (a.c)"].contains(&name.as_str()));
        assert_eq!(leaf, Some(&(top.to_owned(), cost)), "{kind:?}: {frames:?}");
    }
}

#[test]
fn a_comparing_picture_is_drawn() {
    let picture = svg("+ 1\n+ 1\n", Some("+ 1\n+ 2\n"), CostKind::Allocations).unwrap();
    assert!(picture.contains("allocations, compared"));
    assert!(
        picture.contains("eat&lt;&gt; (a.c) (2 allocations"),
        "{picture}"
    );
}

#[test]
fn a_picture_of_nothing_is_refused() {
    let error = svg("+ 1\n", None, CostKind::Temporary).unwrap_err();
    assert_eq!(
        error.to_string(),
        "nothing to draw: no backtrace has a cost of the kind temporary"
    );
}

#[test]
fn a_comparison_matches_by_name_across_moved_lines_and_addresses() {
    let before = read("+ 1\n+ 1\n+ 2\n").profile;
    let moved = TABLES
        .replace("i 2 0 2 4 2", "i 9 0 2 4 63")
        .replace("s 4 work", "s 4 play");
    let after = format!("{moved}+ 1\n+ 2\n+ 2\n");
    let after = load(after.as_bytes(), Rules::LENIENT, &mut ()).profile;
    let comparison = compare(&before, &after);
    let rows: Vec<_> = comparison
        .changed(CostKind::Allocations)
        .into_iter()
        .map(|row| {
            let change = row.change(CostKind::Allocations).unwrap();
            (
                row.stack[0].clone(),
                change,
                row.delta(CostKind::Allocations),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("play".into(), Change::Appeared, 2),
            ("eat<>".into(), Change::Shrank, -1),
            ("work".into(), Change::Vanished, -1),
        ]
    );
    let mut table = Vec::new();
    comparison.write(CostKind::Leaked, 1, &mut table).unwrap();
    let table = String::from_utf8(table).unwrap();
    assert!(
        table.contains("appeared        +2.00K           0B        2.00K  play <- main\n"),
        "{table}"
    );
    assert!(table.contains("(1 more that shrank)"), "{table}");
}

#[test]
fn a_check_says_whole_or_what_is_wrong() {
    let check = |events: &str| {
        let mut out = Vec::new();
        write_check("f", &read(events), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let good = check("+ 1\nc a\n");
    assert!(
        good.starts_with("f: whole\n  written by: heaptrack"),
        "{good}"
    );
    assert!(good.contains("1 allocations over 0.01 s, 2 backtraces, 3 instruction pointers"));
    let bad = check("+ 9\n# htrace-bpf: version 1.2.3\n# htrace-bpf: lost ring-full 7\n");
    assert!(bad.starts_with("f: damaged\n"), "{bad}");
    for line in [
        "wrong: the recording was cut short",
        "wrong: line 16, byte ",
        "odd: 7 events",
    ] {
        assert!(bad.contains(line), "{line} in {bad}");
    }
}
