//! Libraries whose unwind data lies: recording goes on, stacks through such a library are whole or
//! say that they are cut, and all others are as ever.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail and report"
)]

use std::path::Path;
use std::process::Command;

use htrace_tests::process::run;
use htrace_tests::trace_file::Ip;
use htrace_tests::{Feature, Launch, Recorded, Scratch, require, target};

const LOADS: i64 = 3;
const CALLS: i64 = 40;

/// Where a section's header lies in an ELF file, and what it says.
struct Section {
    header: usize,
    offset: usize,
    size: usize,
}

/// Finds a section by name. The files were made by the compiler just now.
fn section(image: &[u8], wanted: &str) -> Section {
    let word = |at: usize, bytes: usize| {
        (0..bytes).fold(0, |sum, i| sum | usize::from(image[at + i]) << (8 * i))
    };
    let (table, count, names) = (word(0x28, 8), word(0x3c, 2), word(0x3e, 2));
    let strings = word(table + names * 64 + 0x18, 8);
    let header = (0..count).map(|index| table + index * 64).find(|header| {
        let name = strings + word(*header, 4);
        image[name..].starts_with(format!("{wanted}\0").as_bytes())
    });
    let header = header.unwrap_or_else(|| panic!("no section {wanted}"));
    Section {
        header,
        offset: word(header + 0x18, 8),
        size: word(header + 0x20, 8),
    }
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A library that was damaged, and how.
type Damage = (&'static str, fn(&mut [u8], u64));

const DAMAGES: [Damage; 9] = [
    ("unwind data of zeros", |image, _| {
        let frames = section(image, ".eh_frame");
        image[frames.offset..frames.offset + frames.size].fill(0);
    }),
    ("an entry that is too long", |image, _| {
        let frames = section(image, ".eh_frame");
        put(image, frames.offset, &0x7fff_fff0_u32.to_le_bytes());
    }),
    ("an entry of 16 EiB", |image, _| {
        let frames = section(image, ".eh_frame");
        put(image, frames.offset, &[0xff; 12]);
    }),
    ("code ranges that overlap", |image, _| {
        for range in code_ranges(image) {
            put(image, range, &0x00ff_ffff_u32.to_le_bytes());
        }
    }),
    ("instructions at random", |image, seed| {
        let frames = section(image, ".eh_frame");
        let mut random = seed;
        // Behind the first CIE, so that it is not refused as a whole.
        for byte in &mut image[frames.offset + 24..frames.offset + frames.size] {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            if random >> 61 == 0 {
                *byte = (random >> 32) as u8;
            }
        }
    }),
    ("a section of 16 EiB", |image, _| {
        let frames = section(image, ".eh_frame");
        put(image, frames.header + 0x20, &[0xff; 8]);
    }),
    ("a section beyond the file", |image, _| {
        let frames = section(image, ".eh_frame");
        put(image, frames.header + 0x18, &(1_u64 << 40).to_le_bytes());
    }),
    ("a table of sections beyond the file", |image, _| {
        put(image, 0x28, &(u64::MAX - 63).to_le_bytes());
        put(image, 0x3c, &u16::MAX.to_le_bytes());
    }),
    ("a search table of four billion entries", |image, _| {
        let table = section(image, ".eh_frame_hdr");
        put(image, table.offset + 8, &[0xff; 4]);
        // So that it is looked for there.
        put(image, 0x28, &[0; 8]);
        put(image, 0x3c, &[0; 4]);
    }),
];

/// Offsets of the sizes of all code ranges in `.eh_frame`: its entries with a pointer back to a CIE.
fn code_ranges(image: &[u8]) -> Vec<usize> {
    let Section { offset, size, .. } = section(image, ".eh_frame");
    let number = |at: usize| {
        let bytes = image[at..at + 4].try_into().expect("4 bytes");
        u32::from_le_bytes(bytes) as usize
    };
    let (mut at, mut found) = (offset, Vec::new());
    while at + 16 < offset + size && number(at) != 0 {
        if number(at + 4) != 0 {
            found.push(at + 12);
        }
        at += 4 + number(at);
    }
    assert!(found.len() > 3, "{} frame descriptions", found.len());
    found
}

/// Records the program that loads a library in turn with a good one.
fn record(hostile: &Path) -> Recorded {
    let [loads, calls] = [LOADS, CALLS].map(|number| number.to_string());
    let good = target("beta.so");
    let args = [&loads, &calls, path(hostile), path(&good)];
    Launch::new().run(target("plugins"), &args)
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// All calls are there, and no stack is other than it should be.
fn assert_right(recorded: &Recorded, what: &str, may_be_cut: &[&str]) {
    assert_eq!(
        recorded.status.code(),
        Some(0),
        "{what}: {}",
        recorded.stderr
    );
    recorded.assert_nothing_lost();
    let trace = recorded.trace();
    let made_in = |module: &str| -> i64 {
        let stacks = trace.stacks();
        let of_module = stacks.iter().filter(|(_, stack)| is_in(stack[0], module));
        of_module.map(|(calls, _)| calls).sum()
    };
    for module in ["alpha.so", "beta.so"] {
        assert_eq!(made_in(module), LOADS * CALLS, "{what}: {module}");
    }
    for (_, stack) in trace.stacks() {
        assert_stack(&stack, what, may_be_cut);
    }
}

fn is_in(ip: &Ip, module: &str) -> bool {
    ip.module.ends_with(&format!("/{module}"))
}

/// From a plugin to the start of the program, or a part of that, which says so. A plugin whose tables
/// of symbols cannot be found has no names.
fn assert_stack(stack: &[&Ip], what: &str, may_be_cut: &[&str]) {
    let Some(plugin) = ["alpha.so", "beta.so"]
        .into_iter()
        .find(|plugin| is_in(stack[0], plugin))
    else {
        return;
    };
    let leaf = plugin.replace(".so", "_allocates");
    let expected = [leaf.as_str(), "plugin_work", "use", "main"];
    let names: Vec<&str> = stack.iter().map(|ip| ip.function.as_str()).collect();
    let cut = names.iter().position(|name| name.starts_with("[stack cut"));
    let own = &stack[..cut.unwrap_or(stack.len())];
    let agree = own.iter().zip(expected).all(|(ip, expected)| {
        ip.function == expected || ip.function.is_empty() && is_in(ip, plugin)
    });
    assert!(agree, "{what}: {names:?}");
    let is_whole = cut.is_none() && names.last() == Some(&"_start");
    let may_be_cut = cut.is_some() && may_be_cut.contains(&plugin);
    assert!(is_whole || may_be_cut, "{what}: {names:?}");
}

fn damaged(scratch: &Scratch, damage: fn(&mut [u8], u64), seed: u64) -> std::path::PathBuf {
    let mut image = std::fs::read(target("alpha.so")).expect("read a library");
    damage(&mut image, seed);
    let file = scratch.join("alpha.so");
    std::fs::write(&file, image).expect("write a library");
    file
}

#[test]
fn unwind_data_that_lies() {
    if !require(Feature::Root) {
        return;
    }
    for (what, damage) in DAMAGES {
        let scratch = Scratch::new();
        let recorded = record(&damaged(&scratch, damage, 1));
        assert_right(&recorded, what, &["alpha.so"]);
    }
}

#[test]
fn unwind_data_at_random() {
    if !require(Feature::Root) {
        return;
    }
    for seed in 0..12 {
        let scratch = Scratch::new();
        let (what, damage) = DAMAGES[4];
        let file = damaged(&scratch, damage, seed * 0x9e37 + 1);
        let what = format!("{what}, seed {seed}");
        assert_right(&record(&file), &what, &["alpha.so"]);
    }
}

/// A frame description with more rows than a table may have.
const MANY_ROWS: &str = "
.text
rows: .skip 18000000, 0x90
.section .eh_frame, \"a\", @progbits
cie: .long cie_end - cie_id
cie_id: .long 0
.byte 1
.string \"zR\"
.byte 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1
.balign 8, 0
cie_end:
fde: .long fde_end - fde_id
fde_id: .long fde_id - cie
.long rows - .
.long 18000000
.byte 0
.incbin \"rows.bin\"
.balign 8, 0
fde_end:
";

#[test]
fn millions_of_rows() {
    if !require(Feature::Root) {
        return;
    }
    let scratch = Scratch::new();
    // One byte further, and the frame is 16 or 24 bytes large.
    let rows = [0x41, 0x0e, 0x10, 0x41, 0x0e, 0x18].repeat(8_900_000);
    std::fs::write(scratch.join("rows.bin"), rows).expect("write rows");
    std::fs::write(scratch.join("rows.S"), MANY_ROWS).expect("write a source file");
    let mut compiler = Command::new("gcc");
    compiler
        .args(["-O1", "-g", "-shared", "-fPIC", "-fno-builtin"])
        .args(["-DPLUGIN=alpha_allocates", "-Wl,--no-eh-frame-hdr"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/targets/plugin.c"))
        .args(["rows.S", "-o", "alpha.so"])
        .current_dir(scratch.path());
    let ended = run(&mut compiler, b"");
    assert!(ended.status.success(), "{}", ended.stderr);
    let recorded = record(&scratch.join("alpha.so"));
    // Meanwhile nobody looks at the other library.
    assert_right(&recorded, "millions of rows", &["alpha.so", "beta.so"]);
    let cut = recorded.trace().calls_under("[stack cut: no-table]");
    assert!(cut >= LOADS * CALLS, "{cut} stacks are cut");
}
