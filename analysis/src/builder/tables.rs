//! Records that fill tables, which are taken once, and refused when they grow too large.

use htrace_trace_format::fields::Fields;
use htrace_trace_format::record::InstructionPointer;
use htrace_trace_format::{Place, Record};

use super::{Builder, Pass};
use crate::problem::{Diagnostics, LoadError, Problem};
use crate::suppression::{SuppressionLine, parse_line};
use crate::tables::Node;

impl Builder {
    /// Records that fill tables: once, in the first pass.
    pub(super) fn table_record(
        &mut self,
        place: Place,
        record: Record<'_>,
        diagnostics: &mut impl Diagnostics,
    ) -> Result<(), LoadError> {
        if self.pass == Pass::Second {
            return Ok(());
        }
        match record {
            Record::String(text) => self.tables.push_string(text),
            Record::InstructionPointer(InstructionPointer {
                ip,
                module,
                frame,
                inlined,
            }) => {
                self.tables.push_ip(ip, module, frame, inlined);
            }
            Record::Trace { ip, parent } => {
                self.tables.push_trace(Node { ip, parent });
            }
            Record::AllocationInfo { size, trace } => {
                self.accounting
                    .push_info(size, trace, self.tables.nodes().len());
            }
            Record::Suppression(line) => self.suppression(place, line, diagnostics),
            Record::Attached => self.attach(),
            _ => {}
        }
        let limit = self.rules.memory_limit;
        if self.tables.memory() + self.accounting.memory() > limit {
            return Err(LoadError::TooLarge { place, limit });
        }
        Ok(())
    }

    fn attach(&mut self) {
        self.attached = true;
        self.irregular |= !self.accounting.total().is_zero();
        if self.pass == Pass::First {
            self.accounting.reset_total();
        }
    }

    fn suppression(&mut self, place: Place, text: &[u8], diagnostics: &mut impl Diagnostics) {
        if self.rules.ignore_suppressions {
            return;
        }
        let text = if self.rules.sized_suppressions {
            unsized_text(text)
        } else {
            text
        };
        match parse_line(text) {
            SuppressionLine::Pattern(pattern) => {
                self.embedded_suppressions.push(pattern.to_vec());
            }
            SuppressionLine::Nothing => {}
            SuppressionLine::Invalid(line) => {
                diagnostics.problem(place, &Problem::BadSuppression(line));
            }
        }
    }
}

/// The text of a line that may be a sized string: length in hexadecimal, a space, and exactly that
/// many bytes. Anything else is the text itself.
fn unsized_text(text: &[u8]) -> &[u8] {
    let Some(space) = text.iter().position(|&byte| byte == b' ') else {
        return text;
    };
    let line = [b"S ", text].concat();
    let length = Fields::new(&line)
        .hex()
        .ok()
        .and_then(|length| usize::try_from(length).ok());
    let rest = &text[space + 1..];
    if space > 0 && length == Some(rest.len()) {
        rest
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressions_are_taken_in_both_forms() {
        assert_eq!(unsized_text(b"8 leak:foo"), b"leak:foo");
        assert_eq!(unsized_text(b"leak:foo"), b"leak:foo");
        assert_eq!(unsized_text(b"9 leak:foo"), b"9 leak:foo");
        assert_eq!(unsized_text(b"0 "), b"");
        assert_eq!(unsized_text(b"c a b"), b"c a b");
    }
}
