//! Raw traces are interpreted right, and never badly.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use htrace_trace_format::raw::{Interpreted, ResolvedFrame, Resolver, interpret, is_raw};
use proptest::prelude::*;

const EXAMPLE: &str = "v 10400 3\nx 9 /opt/demo\nX ./demo\nI 1000 400000\nS a leak:thing\n\
    m 1 -\nm 1 x 400000 0 2000 3000 100\nm f linux-vdso.so.1 7ff000 0 1000\n\
    t 401010 0\nt 401020 1\n+ 40 2 5500a0\n- 5500a0\nc a\nR 120\n";

/// Names `work` at one address of one module, inlined into `outer`.
struct Names;

impl Resolver for Names {
    fn resolve(&mut self, path: &str, address: u64) -> Vec<ResolvedFrame> {
        let frame = |function: &str, line| ResolvedFrame {
            function: function.into(),
            file: "w.c".into(),
            line,
        };
        match (path, address) {
            ("/opt/demo", 0x1020) => vec![frame("work", 7), frame("outer", 9)],
            ("/lib/other", 0x1020) => vec![frame("other", 1)],
            _ => Vec::new(),
        }
    }
}

fn run(raw: &str) -> (String, Interpreted) {
    let mut out = Vec::new();
    let result = interpret(raw.as_bytes(), &mut out, &mut Names).unwrap();
    (String::from_utf8(out).unwrap(), result)
}

#[test]
fn the_example_is_interpreted() {
    let (out, result) = run(EXAMPLE);
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "v 10400 3\n# htrace-bpf: version {version}\nX ./demo\nI 1000 400000\nS leak:thing\n\
         s 9 /opt/demo\ni 401010 1\nt 1 0\ns 4 work\ns 3 w.c\ns 5 outer\ni 401020 1 2 3 7 4 3 9\n\
         t 2 1\na 40 2\n+ 0\n- 0\nc a\nR 120\n\n# strings: 4\n# ips: 2\n\
         # htrace-bpf: complete\n"
    );
    assert_eq!(out, expected);
    let counted = Interpreted {
        allocations: 1,
        ..Interpreted::default()
    };
    assert_eq!(result, counted);
}

#[test]
fn an_address_is_named_anew_when_another_module_lies_there() {
    let (out, _) = run(&format!(
        "{EXAMPLE}m 1 -\nm a /lib/other 400000 0 2000\nt 401020 0\n+ 8 3 1\n"
    ));
    assert!(out.contains("s 5 other\n"), "{out}");
}

#[test]
fn frees_of_unknown_blocks_are_left_out_and_reused_addresses_leak() {
    let (out, result) = run(&format!("{EXAMPLE}- 99\n+ 8 1 7\n+ 8 1 7\n- 7\n- 7\n"));
    assert_eq!(out.matches("\n- ").count(), 2, "{out}");
    assert_eq!((result.allocations, result.leaked), (3, 0));
}

#[test]
fn old_versions_have_unsized_names() {
    let (out, result) =
        run("v 10200 2\nx /opt/demo\nm -\nm x 400000 0 2000\nt 401020 0\n+ 1 1 1\n");
    assert!(out.contains("s 4 work\n"), "{out}");
    assert_eq!(result.leaked, 1);
}

#[test]
fn bad_lines_are_counted_and_a_cut_input_is_marked() {
    let (out, result) = run(&format!("{EXAMPLE}+ 1\n? what\nt 5"));
    assert_eq!(result.bad_lines, 2);
    assert_eq!(result.first_bad_line.unwrap().line, 15);
    assert!(result.cut_short);
    assert!(!out.contains("complete"));
}

#[test]
fn raw_traces_are_told_from_interpreted_ones() {
    assert!(is_raw(EXAMPLE.as_bytes()));
    assert!(is_raw(b"v 10400 3\nX ./x\nI 1 1\nm 1 -\n"));
    assert!(!is_raw(b"v 10400 3\nX ./x\nI 1 1\ns 1 m\nm 1 -\n"));
    assert!(!is_raw(b"v 10400 3\nX ./x\n"));
    assert!(!is_raw(b""));
}

proptest! {
    #[test]
    fn any_text_is_survived(lines in prop::collection::vec("[vxXISAmtRc+-] [0-9a-f ]{0,12}", 0..30)) {
        let _ = interpret(lines.join("\n").as_bytes(), std::io::sink(), &mut Names);
    }

    #[test]
    fn any_bytes_are_survived(bytes: Vec<u8>) {
        let _ = interpret(&bytes[..], std::io::sink(), &mut ());
    }
}
