//! Massif files, for ms_print and massif-visualizer.
//!
//! A snapshot is written for every time stamp and one at the end. Between two stamps the moment
//! with most live bytes counts. As with peaks, backtraces are not copied at each maximum; they
//! catch up when they change next.
//!
//! heaptrack 1.3 to 1.6 write trees without content and the header at the end; that is kept in
//! their style only.

mod tree;

use std::io::{self, Write};

use htrace_trace_format::{AllocationInfoIndex, TraceIndex};

use crate::number_format::general;
use crate::observer::{Observer, Snapshot};
use crate::report::Style;

/// How the file is to look.
#[derive(Clone, Copy, Debug)]
pub struct MassifOptions {
    /// Oddities.
    pub style: Style,
    /// Percentage of the live bytes below which backtraces are summed up.
    pub threshold: f64,
    /// Every how many snapshots there is a tree; 0 for never.
    pub detailed_frequency: u64,
}

impl MassifOptions {
    /// The defaults, in the given style.
    #[must_use]
    pub fn new(style: Style) -> Self {
        Self {
            style,
            threshold: 1.0,
            detailed_frequency: 2,
        }
    }
}

/// Writes a Massif file while a trace is read.
#[derive(Debug)]
pub struct MassifWriter<W> {
    out: W,
    options: MassifOptions,
    header_written: bool,
    snapshots: u64,
    /// Most live bytes since the last snapshot, once there were any.
    captured: Option<i64>,
    /// Number of maxima so far.
    maxima: u64,
    at_maximum: Vec<AtMaximum>,
    error: Option<io::Error>,
}

/// What a backtrace held at the maximum with the given number.
#[derive(Clone, Copy, Debug, Default)]
struct AtMaximum {
    maximum: u64,
    live: i64,
}

impl<W: Write> MassifWriter<W> {
    /// A writer into `out`.
    pub fn new(out: W, options: MassifOptions) -> Self {
        Self {
            out,
            options,
            header_written: false,
            snapshots: 0,
            captured: None,
            maxima: 0,
            at_maximum: Vec::new(),
            error: None,
        }
    }

    /// Writes the header if it is still to come, flushes, and gives the sink back.
    ///
    /// # Errors
    /// Those of the sink, whenever they happened.
    pub fn finish(mut self, command: Option<&[u8]>) -> io::Result<W> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if !self.header_written {
            self.header(command)?;
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn header(&mut self, command: Option<&[u8]>) -> io::Result<()> {
        self.header_written = true;
        let command = match command {
            Some(command) => command,
            None if self.options.style == Style::Heaptrack => return Ok(()),
            // ms_print does not read a file without header.
            None => b"(unknown)",
        };
        self.out.write_all(b"desc: heaptrack\ncmd: ")?;
        self.out.write_all(command)?;
        // ms_print knows no seconds.
        let unit = match self.options.style {
            Style::Heaptrack => "s",
            Style::Mended => "ms",
        };
        writeln!(self.out, "\ntime_unit: {unit}")
    }

    fn snapshot(&mut self, so_far: Snapshot<'_>, is_last: bool) -> io::Result<()> {
        if self.options.style == Style::Mended && !self.header_written {
            self.header(so_far.command)?;
        }
        let live = self.captured.unwrap_or(so_far.accounting.total().leaked);
        self.snapshot_head(so_far.now, live)?;
        let frequency = self.options.detailed_frequency;
        if frequency != 0 && (is_last || self.snapshots.is_multiple_of(frequency)) {
            self.out.write_all(b"heap_tree=detailed\n")?;
            self.tree(so_far, live)?;
        } else {
            self.out.write_all(b"heap_tree=empty\n")?;
        }
        self.snapshots += 1;
        self.captured = None;
        Ok(())
    }

    fn snapshot_head(&mut self, now: i64, live: i64) -> io::Result<()> {
        let time = match self.options.style {
            Style::Heaptrack => general(0.001 * now as f64),
            Style::Mended => now.to_string(),
        };
        write!(
            self.out,
            "#-----------\nsnapshot={}\n#-----------\ntime={time}\nmem_heap_B={}\n\
             mem_heap_extra_B=0\nmem_stacks_B=0\n",
            self.snapshots,
            live.cast_unsigned(),
        )
    }

    fn tree(&mut self, so_far: Snapshot<'_>, live: i64) -> io::Result<()> {
        let style = self.options.style;
        let leaves: Vec<(TraceIndex, i64)> = so_far
            .accounting
            .entries()
            .iter()
            .enumerate()
            .map(|(position, entry)| match style {
                Style::Heaptrack => (entry.trace, 0),
                Style::Mended => (
                    entry.trace,
                    self.live_at_maximum(position, entry.costs.leaked),
                ),
            })
            .collect();
        let tree = tree::Tree::new(so_far.tables, self.options.threshold, live, style);
        tree.write(leaves, &mut self.out)
    }

    /// What an entry held at the captured maximum; without one, what it holds now.
    fn live_at_maximum(&self, position: usize, now: i64) -> i64 {
        match self.at_maximum.get(position) {
            Some(at) if self.captured.is_some() && at.maximum == self.maxima => at.live,
            _ => now,
        }
    }

    /// An entry is about to change, or has just changed from `before`.
    fn keep(&mut self, so_far: Snapshot<'_>, index: AllocationInfoIndex, sign: i64) {
        let Some(info) = so_far.accounting.infos().get(index.position()) else {
            return;
        };
        let position = info.entry as usize;
        let Some(entry) = so_far.accounting.entries().get(position) else {
            return;
        };
        if position >= self.at_maximum.len() {
            self.at_maximum
                .resize(so_far.accounting.entries().len(), AtMaximum::default());
        }
        let Some(at) = self.at_maximum.get_mut(position) else {
            return;
        };
        if at.maximum != self.maxima {
            let change = info.size.cast_signed().wrapping_mul(sign);
            *at = AtMaximum {
                maximum: self.maxima,
                live: entry.costs.leaked.wrapping_sub(change),
            };
        }
    }
}

impl<W: Write> Observer for MassifWriter<W> {
    fn allocated(&mut self, index: AllocationInfoIndex, so_far: Snapshot<'_>) {
        if self.options.style == Style::Heaptrack {
            return;
        }
        self.keep(so_far, index, 1);
        let live = so_far.accounting.total().leaked;
        if live > self.captured.unwrap_or(0) {
            self.captured = Some(live);
            self.maxima += 1;
        }
    }

    fn freed(&mut self, index: AllocationInfoIndex, so_far: Snapshot<'_>) {
        if self.options.style == Style::Mended {
            self.keep(so_far, index, -1);
        }
    }

    fn time_passed(&mut self, so_far: Snapshot<'_>) {
        if self.error.is_none() {
            self.error = self.snapshot(so_far, false).err();
        }
    }

    fn ended(&mut self, so_far: Snapshot<'_>) {
        if self.error.is_none() {
            self.error = self.snapshot(so_far, true).err();
        }
    }
}
