//! Printing of instruction pointers and backtraces.

use std::io::{self, Write};

use htrace_trace_format::{IpIndex, TraceIndex};
use rustc_hash::FxHashSet;

use crate::filter::stops_anywhere;
use crate::report::{OnCycle, Style};
use crate::tables::{Ip, Tables};
use crate::template;

/// Prints backtraces of one trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BacktracePrinter<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) style: Style,
    pub(crate) shorten_templates: bool,
}

impl BacktracePrinter<'_> {
    /// Prints the function at `ip` with its place and module, then what it was inlined into, each
    /// indented by `indent` steps.
    pub(crate) fn ip(&self, index: IpIndex, indent: usize, out: &mut impl Write) -> io::Result<()> {
        let ip = self.tables.ip(index);
        if ip.frame.function.is_none() {
            writeln!(out, "{:indent$}0x{:x}", "", ip.address, indent = indent * 2)?;
        } else {
            self.function(ip.frame.function, indent, out)?;
        }
        let deeper = (indent + 1) * 2;
        if !ip.frame.file.is_none() {
            self.place(ip.frame.file, ip.frame.line, deeper, out)?;
        }
        write!(out, "{:deeper$}in ", "")?;
        if ip.module.is_none() {
            out.write_all(b"??\n")?;
        } else {
            out.write_all(self.tables.strings.get(ip.module))?;
            out.write_all(b"\n")?;
        }
        for frame in self.tables.inlined(&ip) {
            self.function(frame.function, indent, out)?;
            self.place(frame.file, frame.line, deeper, out)?;
        }
        Ok(())
    }

    fn function(
        &self,
        function: htrace_trace_format::StringIndex,
        indent: usize,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let name = self.tables.strings.get(function);
        write!(out, "{:indent$}", "", indent = indent * 2)?;
        if self.shorten_templates {
            out.write_all(&template::shorten(name))?;
        } else {
            out.write_all(name)?;
        }
        out.write_all(b"\n")
    }

    fn place(
        &self,
        file: htrace_trace_format::StringIndex,
        line: i32,
        columns: usize,
        out: &mut impl Write,
    ) -> io::Result<()> {
        write!(out, "{:columns$}at ", "")?;
        out.write_all(self.tables.strings.get(file))?;
        writeln!(out, ":{line}")
    }

    /// Prints a backtrace from its leaf to the first stop frame or the root. `skip_leaf` leaves
    /// out the first instruction pointer.
    pub(crate) fn backtrace(
        &self,
        trace: TraceIndex,
        indent: usize,
        skip_leaf: bool,
        out: &mut impl Write,
        on_cycle: &mut OnCycle<'_>,
    ) -> io::Result<()> {
        if trace.is_none() {
            let end = if self.style == Style::Mended {
                "\n"
            } else {
                ""
            };
            return write!(out, "  ??{end}");
        }
        let mut seen = FxHashSet::default();
        let mut node = self.tables.node(trace);
        let mut skip = skip_leaf;
        while !node.ip.is_none() {
            if !std::mem::take(&mut skip) {
                self.ip(node.ip, indent, out)?;
            }
            if self.ends_at(&self.tables.ip(node.ip)) {
                break;
            }
            if !seen.insert(node.parent) {
                on_cycle(node.parent);
                break;
            }
            node = self.tables.node(node.parent);
        }
        Ok(())
    }

    fn ends_at(&self, ip: &Ip) -> bool {
        match self.style {
            Style::Heaptrack => self.tables.is_stop_ip(ip),
            Style::Mended => stops_anywhere(self.tables, ip),
        }
    }
}
