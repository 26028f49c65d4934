//! The tree of one Massif snapshot: backtraces merged by place, level by level from the leaves.

use std::io::{self, Write};

use htrace_trace_format::{IpIndex, TraceIndex};

use crate::number_format::general;
use crate::report::Style;
use crate::std_sort::std_sort;
use crate::tables::{Ip, PlaceKey, Tables};

/// Deepest level written. A line is indented by its level, so the size of a tree grows with the
/// square of its depth.
const DEEPEST: usize = 4096;

/// What is needed to write one tree.
pub(super) struct Tree<'a> {
    tables: &'a Tables,
    threshold: f64,
    live: i64,
    least: i64,
    style: Style,
}

type Leaves = Vec<(TraceIndex, i64)>;

/// Backtraces at one place.
struct Group {
    ip: IpIndex,
    live: i64,
    leaves: Leaves,
}

/// What is still to be written.
enum Pending {
    Node {
        group: Group,
        depth: usize,
    },
    Skipped {
        count: usize,
        live: i64,
        depth: usize,
    },
}

impl<'a> Tree<'a> {
    /// A tree of `live` bytes in which places below `threshold` percent are summed up.
    pub(super) fn new(tables: &'a Tables, threshold: f64, live: i64, style: Style) -> Self {
        let least = (live.cast_unsigned() as f64 * threshold * 0.01) as i64;
        Self {
            tables,
            threshold,
            live,
            least,
            style,
        }
    }

    pub(super) fn write(&self, leaves: Leaves, out: &mut impl Write) -> io::Result<()> {
        let root = Group {
            ip: IpIndex::NONE,
            live: self.live,
            leaves,
        };
        let mut pending = vec![Pending::Node {
            group: root,
            depth: 0,
        }];
        while let Some(next) = pending.pop() {
            match next {
                Pending::Node { group, depth } => {
                    let children = self.node(group, depth, out)?;
                    pending.extend(children.into_iter().rev());
                }
                Pending::Skipped { count, live, depth } => self.skipped(count, live, depth, out)?,
            }
        }
        Ok(())
    }

    /// Writes the line of a node and returns what stands below it, in order.
    fn node(&self, group: Group, depth: usize, out: &mut impl Write) -> io::Result<Vec<Pending>> {
        let ip = self.tables.ip(group.ip);
        let is_stop = depth > 0 && self.tables.is_stop_ip(&ip);
        let deepest = match self.style {
            Style::Heaptrack => DEEPEST,
            // No backtrace is longer than the tree has nodes, unless it goes round in a cycle.
            Style::Mended => DEEPEST.min(self.tables.nodes().len()),
        };
        let groups = if is_stop || depth >= deepest {
            Vec::new()
        } else {
            self.groups(group.leaves)
        };
        let shown = |group: &&Group| group.live >= self.least;
        let considered: Vec<&Group> = groups
            .iter()
            .take_while(|group| group.live >= 0)
            .filter(|group| self.counts(group))
            .collect();
        let count = considered
            .iter()
            .copied()
            .filter(|group| shown(group))
            .count();
        let skipped = considered.len() - count;
        let skipped_live = considered
            .iter()
            .filter(|group| !shown(group))
            .fold(0i64, |sum, group| sum.wrapping_add(group.live));
        write!(
            out,
            "{:depth$}n{}: {}",
            "",
            count + usize::from(skipped > 0),
            self.bytes(group.live, depth)
        )?;
        self.location(&ip, depth, out)?;
        Ok(self.children(groups, (skipped, skipped_live), depth + 1))
    }

    /// Places that hold nothing have no line. heaptrack counts them all the same where there is no
    /// threshold, and then ms_print misses their lines.
    fn counts(&self, group: &Group) -> bool {
        self.style == Style::Heaptrack || group.live > 0
    }

    /// The root's bytes are unsigned in the file.
    fn bytes(&self, live: i64, depth: usize) -> String {
        if depth == 0 {
            live.cast_unsigned().to_string()
        } else {
            live.to_string()
        }
    }

    fn location(&self, ip: &Ip, depth: usize, out: &mut impl Write) -> io::Result<()> {
        if depth == 0 {
            let root = " (heap allocation functions) malloc/new/new[], --alloc-fns, etc.\n";
            return out.write_all(root.as_bytes());
        }
        let strings = &self.tables.strings;
        write!(out, " 0x{:x}: ", ip.address)?;
        if ip.frame.function.is_none() {
            out.write_all(b"???")?;
        } else {
            out.write_all(strings.get(ip.frame.function))?;
        }
        out.write_all(b" (")?;
        if !ip.frame.file.is_none() {
            out.write_all(strings.get(ip.frame.file))?;
            write!(out, ":{}", ip.frame.line)?;
        } else if !ip.module.is_none() {
            out.write_all(strings.get(ip.module))?;
        } else {
            out.write_all(b"???")?;
        }
        out.write_all(b")\n")
    }

    /// Children that are large enough, with the line for all others before the first child that
    /// holds less than they do together.
    fn children(
        &self,
        groups: Vec<Group>,
        (skipped, skipped_live): (usize, i64),
        depth: usize,
    ) -> Vec<Pending> {
        let mut children = Vec::new();
        let mut to_write = skipped > 0;
        let summed = || Pending::Skipped {
            count: skipped,
            live: skipped_live,
            depth,
        };
        for group in groups {
            if group.live <= 0 || group.live < self.least {
                continue;
            }
            if to_write && skipped_live > group.live {
                children.push(summed());
                to_write = false;
            }
            let leaves = self.to_parents(group.leaves);
            children.push(Pending::Node {
                group: Group { leaves, ..group },
                depth,
            });
        }
        if to_write {
            children.push(summed());
        }
        children
    }

    fn to_parents(&self, leaves: Leaves) -> Leaves {
        leaves
            .into_iter()
            .map(|(trace, live)| (self.tables.node(trace).parent, live))
            .collect()
    }

    fn skipped(
        &self,
        count: usize,
        live: i64,
        depth: usize,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let percent = general(self.threshold);
        writeln!(
            out,
            "{:depth$}n0: {live} in {count} places, all below massif's threshold ({percent})",
            ""
        )
    }

    /// Merges by place, most bytes first. Backtraces that have come to their end are dropped, but
    /// not by heaptrack since 1.3.
    fn groups(&self, leaves: Leaves) -> Vec<Group> {
        let mut keyed: Vec<(PlaceKey, usize)> = leaves
            .iter()
            .enumerate()
            .filter(|(_, (trace, _))| self.style == Style::Heaptrack || !trace.is_none())
            .map(|(position, (trace, _))| (self.key(*trace), position))
            .collect();
        keyed.sort_unstable();
        let mut groups: Vec<Group> = keyed
            .chunk_by(|left, right| left.0 == right.0)
            .map(|group| self.gather(&leaves, group))
            .collect();
        self.sort(&mut groups);
        groups
    }

    fn key(&self, trace: TraceIndex) -> PlaceKey {
        self.tables.ip(self.tables.node(trace).ip).key()
    }

    fn gather(&self, leaves: &Leaves, group: &[(PlaceKey, usize)]) -> Group {
        let leaves: Leaves = group
            .iter()
            .filter_map(|&(_, position)| leaves.get(position))
            .copied()
            .collect();
        let live = leaves
            .iter()
            .fold(0i64, |sum, (_, live)| sum.wrapping_add(*live));
        let first = leaves.first().map_or(TraceIndex::NONE, |(trace, _)| *trace);
        Group {
            ip: self.tables.node(first).ip,
            live,
            leaves,
        }
    }

    fn sort(&self, groups: &mut Vec<Group>) {
        if self.style == Style::Mended {
            groups.sort_by_key(|group| std::cmp::Reverse(group.live));
            return;
        }
        let mut order: Vec<usize> = (0..groups.len()).collect();
        std_sort(&mut order, &mut |&left, &right| {
            groups[left].live > groups[right].live
        });
        let mut slots: Vec<Option<Group>> = groups.drain(..).map(Some).collect();
        groups.extend(order.into_iter().filter_map(|at| slots.get_mut(at)?.take()));
    }
}
