//! Parses the text of `readelf --debug-dump=frames-interp` and `--debug-dump=frames`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// One line of an interpreted table: an address and what each column says.
#[derive(Clone, Debug)]
pub(crate) struct TextRow {
    pub(crate) address: u64,
    /// "CFA" and register names to readelf's notation ("rsp+8", "c-16", "u", "exp").
    pub(crate) columns: BTreeMap<String, String>,
}

/// A CIE or an FDE.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextEntry {
    pub(crate) offset: u64,
    pub(crate) rows: Vec<TextRow>,
    /// A CIE's augmentation string.
    pub(crate) augmentation: String,
    /// An FDE's CIE and code range.
    pub(crate) covers: Option<(u64, u64, u64)>,
}

pub(crate) fn readelf_exists() -> bool {
    Command::new("readelf")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok()
}

/// Calls `line` with each line of the `.eh_frame` part of a dump.
fn dump(path: &Path, what: &str, mut line: impl FnMut(&str)) {
    // Without "no-follow-links" a missing separate debug file counts as a failure.
    let mut child = Command::new("readelf")
        .args(["--wide", &format!("--debug-dump={what},no-follow-links")])
        .arg(path)
        .env("LC_ALL", "C")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut wanted = false;
    for text in BufReader::new(child.stdout.take().unwrap()).lines() {
        let text = text.unwrap();
        if text.starts_with("Contents of the ") {
            wanted = text.contains(" .eh_frame ");
        }
        if wanted {
            line(&text);
        }
    }
    assert!(
        child.wait().unwrap().success(),
        "readelf {}",
        path.display()
    );
}

/// All entries with their interpreted rows, in the order of the section.
pub(crate) fn interpreted(path: &Path) -> Vec<TextEntry> {
    let mut entries: Vec<TextEntry> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    dump(path, "frames-interp", |line| {
        if let Some(entry) = entry(line) {
            entries.push(entry);
            names.clear();
        } else if line.trim_start().starts_with("LOC ") {
            names = line.split_whitespace().skip(1).map(str::to_owned).collect();
        } else if let Some(row) = row(line, &names) {
            entries.last_mut().unwrap().rows.push(row);
        }
    });
    entries
}

/// `00000018 0000000000000024 0000001c FDE cie=00000000 pc=0000000000026000..0000000000026360`
/// `00000000 0000000000000014 00000000 CIE "zR" cf=1 df=-8 ra=16`
fn entry(line: &str) -> Option<TextEntry> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [offset, _length, _id, kind, rest @ ..] = words.as_slice() else {
        return None;
    };
    let offset = hex(offset)?;
    match (*kind, rest) {
        ("CIE", rest) => {
            let augmentation = rest.first().unwrap_or(&"").trim_matches('"').to_owned();
            Some(TextEntry {
                offset,
                augmentation,
                ..TextEntry::default()
            })
        }
        ("FDE", [cie, range, ..]) => {
            let (start, end) = range.strip_prefix("pc=")?.split_once("..")?;
            let covers = Some((hex(cie.strip_prefix("cie=")?)?, hex(start)?, hex(end)?));
            Some(TextEntry {
                offset,
                covers,
                ..TextEntry::default()
            })
        }
        _ => None,
    }
}

fn row(line: &str, names: &[String]) -> Option<TextRow> {
    let mut words = line.split_whitespace();
    let address = words.next().filter(|word| word.len() == 16).and_then(hex)?;
    // A register as a place is written as "r9 (r9)".
    let values: Vec<_> = words
        .filter(|word| !word.starts_with('('))
        .map(str::to_owned)
        .collect();
    assert_eq!(
        values.len(),
        names.len(),
        "a row that does not fit its headings: {line}"
    );
    Some(TextRow {
        address,
        columns: names.iter().cloned().zip(values).collect(),
    })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// Which expressions an FDE sets, in order: code address, register ("CFA", "rbp", …), text.
pub(crate) type Expressions = Vec<(u64, String, String)>;

/// Expressions of the FDEs at the given offsets, which the interpreted dump shows as "exp" only.
pub(crate) fn expressions(path: &Path, offsets: &BTreeSet<u64>) -> HashMap<u64, Expressions> {
    let mut found: HashMap<u64, Expressions> = HashMap::new();
    let mut current = None;
    let mut address = 0;
    if offsets.is_empty() {
        return found;
    }
    dump(path, "frames", |line| {
        if let Some(entry) = entry(line) {
            current = offsets.contains(&entry.offset).then_some(entry.offset);
            address = entry.covers.map_or(0, |(_, start, _)| start);
        } else if let Some(offset) = current {
            if let Some((_, to)) = line.split_once(" to ") {
                address = hex(to.trim()).unwrap();
            } else if let Some((register, text)) = expression(line.trim()) {
                found
                    .entry(offset)
                    .or_default()
                    .push((address, register, text));
            }
        }
    });
    found
}

/// `DW_CFA_def_cfa_expression (DW_OP_breg7 (rsp): 160; DW_OP_deref)`
/// `DW_CFA_expression: r8 (r8) (DW_OP_breg7 (rsp): 40)`
fn expression(line: &str) -> Option<(String, String)> {
    if let Some(text) = line.strip_prefix("DW_CFA_def_cfa_expression (") {
        return Some(("CFA".to_owned(), text.strip_suffix(')')?.to_owned()));
    }
    let rest = line.strip_prefix("DW_CFA_expression: ")?;
    let (register, text) = rest.split_once(") (")?;
    let (_, name) = register.split_once(" (")?;
    let name = if name == "rip" { "ra" } else { name };
    Some((name.to_owned(), text.strip_suffix(')')?.to_owned()))
}
