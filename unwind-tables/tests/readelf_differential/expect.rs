//! Maps readelf's notation to the rules that a table should hold.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use htrace_unwind_tables::Rule;

use crate::parse::{self, Expressions, TextEntry, TextRow};

const PLT: [&str; 2] = [
    "DW_OP_breg7 (rsp): 8; DW_OP_breg16 (rip): 0; DW_OP_lit15; DW_OP_and; DW_OP_lit",
    "; DW_OP_ge; DW_OP_lit3; DW_OP_shl; DW_OP_plus",
];

/// The rules of one FDE, equal neighbours merged.
pub(crate) struct ExpectedFde {
    pub(crate) offset: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) rows: Vec<(u64, Rule)>,
}

/// What readelf says about a file, by ascending code address.
pub(crate) fn of_file(path: &Path) -> Vec<ExpectedFde> {
    let entries = parse::interpreted(path);
    let cies: HashMap<u64, &TextEntry> = entries
        .iter()
        .filter(|entry| entry.covers.is_none())
        .map(|entry| (entry.offset, entry))
        .collect();
    let with_expressions: BTreeSet<u64> = entries
        .iter()
        .filter(|entry| entry.rows.iter().any(mentions_expression))
        .map(|entry| entry.offset)
        .collect();
    let expressions = parse::expressions(path, &with_expressions);
    let none = Expressions::new();
    let mut expected: Vec<_> = entries
        .iter()
        .filter_map(|fde| {
            let (cie, start, end) = fde.covers?;
            let expressions = expressions.get(&fde.offset).unwrap_or(&none);
            (start < end).then(|| expected_fde(fde, cies[&cie], (start, end), expressions))
        })
        .collect();
    expected.sort_by_key(|fde| fde.start);
    expected
}

fn mentions_expression(row: &TextRow) -> bool {
    ["CFA", "rbp", "rsp", "ra"]
        .iter()
        .any(|name| column(row, name) == "exp")
}

fn column<'row>(row: &'row TextRow, name: &str) -> &'row str {
    row.columns.get(name).map_or("u", String::as_str)
}

fn expected_fde(
    fde: &TextEntry,
    cie: &TextEntry,
    (start, end): (u64, u64),
    expressions: &Expressions,
) -> ExpectedFde {
    let is_signal = cie.augmentation.contains('S');
    let mut rows: Vec<(u64, Rule)> = Vec::new();
    // An FDE without instructions of its own is shown without rows: its CIE's row holds.
    let own = if fde.rows.is_empty() {
        &cie.rows
    } else {
        &fde.rows
    };
    for row in own {
        let address = if fde.rows.is_empty() {
            start
        } else {
            row.address
        };
        let notation = Notation {
            row,
            expressions,
            address,
        };
        let rule = if is_signal {
            notation.signal_frame()
        } else {
            notation.ordinary_frame()
        };
        let rule = rule.unwrap_or(Rule::UNSUPPORTED);
        if rows.last().is_some_and(|last| last.0 == address) {
            rows.pop();
        }
        if address < end && rows.last().is_none_or(|last| last.1 != rule) {
            rows.push((address, rule));
        }
    }
    ExpectedFde {
        offset: fde.offset,
        start,
        end,
        rows,
    }
}

/// One row as readelf writes it, with the texts behind "exp".
struct Notation<'text> {
    row: &'text TextRow,
    expressions: &'text Expressions,
    address: u64,
}

impl<'text> Notation<'text> {
    /// The column, or the text of its expression in parentheses.
    fn column(&self, name: &str) -> &'text str {
        match column(self.row, name) {
            "exp" => {
                let set = self.expressions.iter().rev();
                let mut before = set
                    .filter(|(address, register, _)| *address <= self.address && register == name);
                before.next().map(|(_, _, text)| text.as_str()).unwrap()
            }
            other => other,
        }
    }

    fn ordinary_frame(&self) -> Option<Rule> {
        match self.column("ra") {
            "u" => return Some(Rule::END_OF_STACK),
            "c-8" => {}
            _ => return None,
        }
        if !matches!(self.column("rsp"), "u" | "v+0") {
            return None;
        }
        let (cfa, rbp) = (self.column("CFA"), self.column("rbp"));
        if let Some(threshold) = cfa
            .strip_prefix(PLT[0])
            .and_then(|t| t.strip_suffix(PLT[1]))
        {
            return if rbp == "u" {
                Rule::plt(threshold.parse().unwrap())
            } else {
                None
            };
        }
        if let Some(offset) = cfa
            .strip_prefix("DW_OP_breg6 (rbp): -")
            .and_then(|text| text.strip_suffix("; DW_OP_deref"))
        {
            let saved = rbp == "DW_OP_breg6 (rbp): 0";
            return if saved {
                Rule::drap(offset.parse().unwrap())
            } else {
                None
            };
        }
        let (register, offset) = cfa.split_once('+')?;
        let (offset, slot) = (offset.parse().ok()?, slot(rbp)?);
        match register {
            "rsp" => Rule::rsp(offset, slot),
            "rbp" => Rule::rbp(offset, slot),
            _ => None,
        }
    }

    fn signal_frame(&self) -> Option<Rule> {
        let matches = self.column("CFA") == "DW_OP_breg7 (rsp): 160; DW_OP_deref"
            && self.column("ra") == "DW_OP_breg7 (rsp): 168"
            && self.column("rbp") == "DW_OP_breg7 (rsp): 120"
            && self.column("rsp") == "DW_OP_breg7 (rsp): 160";
        matches.then_some(Rule::SIGNAL_FRAME)
    }
}

fn slot(rbp: &str) -> Option<u8> {
    if matches!(rbp, "u" | "s") {
        return Some(0);
    }
    let below: u64 = rbp.strip_prefix("c-")?.parse().ok()?;
    (below >= 16 && below.is_multiple_of(8)).then(|| (below / 8 - 1) as u8)
}
