//! Decides which frame description answers for which stretch of code.
//!
//! Knows address ranges only. Afterwards ranges are sorted, lie within one executable segment
//! each, and where two overlap neither is trusted: which of them a run-time unwinder would pick
//! depends on its search, so neither answer can be proven.

use crate::frames::Fde;
use crate::image::Code;

/// FDEs in the order of their addresses, fit to the code.
pub(crate) struct Layout {
    pub(crate) fdes: Vec<Fde>,
    /// FDEs that cover no code.
    pub(crate) skipped: u64,
}

/// Puts `.eh_frame` FDEs and, where those say nothing, `.debug_frame` FDEs in order.
pub(crate) fn lay_out(eh: Vec<Fde>, debug: Vec<Fde>, code: &[Code<'_>]) -> Layout {
    let found = (eh.len() + debug.len()) as u64;
    let eh = fit_to_code(eh, code);
    let mut debug = fit_to_code(debug, code);
    remove_covered(&mut debug, &eh);
    // A .debug_frame FDE that .eh_frame repeats is no loss and is not counted as such.
    let kept = (eh.len() + debug.len()) as u64;
    let mut fdes = eh;
    if !debug.is_empty() {
        fdes.append(&mut debug);
        fdes.sort_unstable_by_key(order);
    }
    distrust_overlaps(&mut fdes);
    Layout {
        fdes,
        skipped: found - kept,
    }
}

fn order(fde: &Fde) -> (u64, u64, u32, usize) {
    (fde.start, fde.end, fde.section, fde.offset)
}

/// Sorts, drops what is outside of executable segments, and cuts what reaches beyond one.
fn fit_to_code(mut fdes: Vec<Fde>, code: &[Code<'_>]) -> Vec<Fde> {
    fdes.retain_mut(|fde| clip(fde, code));
    fdes.sort_unstable_by_key(order);
    fdes
}

/// Cuts an FDE to the first segment that it touches; false when it touches none.
fn clip(fde: &mut Fde, code: &[Code<'_>]) -> bool {
    let Some(home) = code.iter().find(|code| code.end > fde.start) else {
        return false;
    };
    let (start, end) = (fde.start.max(home.segment.address), fde.end.min(home.end));
    if (start, end) != (fde.start, fde.end) {
        fde.trusted = false;
    }
    (fde.start, fde.end) = (start, end);
    start < end
}

/// Drops those of `fdes` that overlap one of `others`; both are sorted.
fn remove_covered(fdes: &mut Vec<Fde>, others: &[Fde]) {
    let mut reach = 0;
    let reaches: Vec<u64> = others
        .iter()
        .map(|other| {
            reach = other.end.max(reach);
            reach
        })
        .collect();
    fdes.retain(|fde| {
        let before = others.partition_point(|other| other.start < fde.end);
        before == 0 || reaches[before - 1] <= fde.start
    });
}

fn distrust_overlaps(fdes: &mut [Fde]) {
    let mut reach = 0;
    for index in 0..fdes.len() {
        let next = fdes.get(index + 1).map_or(u64::MAX, |next| next.start);
        let fde = &mut fdes[index];
        if fde.start < reach || fde.end > next {
            fde.trusted = false;
        }
        reach = reach.max(fde.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Segment;

    fn fde(start: u64, end: u64) -> Fde {
        Fde {
            start,
            end,
            section: 0,
            offset: start as usize,
            trusted: true,
        }
    }

    fn code(address: u64, size: u64) -> Code<'static> {
        let segment = Segment {
            file_offset: 0,
            size,
            address,
        };
        Code {
            segment,
            bytes: &[],
            end: address + size,
        }
    }

    fn ranges(layout: &Layout) -> Vec<(u64, u64, bool)> {
        layout
            .fdes
            .iter()
            .map(|fde| (fde.start, fde.end, fde.trusted))
            .collect()
    }

    #[test]
    fn neighbours_are_trusted_and_sorted() {
        let layout = lay_out(vec![fde(20, 30), fde(10, 20)], vec![], &[code(0, 100)]);
        assert_eq!(ranges(&layout), [(10, 20, true), (20, 30, true)]);
    }

    #[test]
    fn every_partner_of_an_overlap_is_distrusted() {
        let eh = vec![fde(10, 90), fde(20, 30), fde(40, 50), fde(90, 95)];
        let layout = lay_out(eh, vec![], &[code(0, 100)]);
        let expected = [
            (10, 90, false),
            (20, 30, false),
            (40, 50, false),
            (90, 95, true),
        ];
        assert_eq!(ranges(&layout), expected);
    }

    #[test]
    fn ranges_are_cut_to_one_segment() {
        let segments = [code(100, 100), code(300, 100)];
        let eh = vec![
            fde(50, 110),
            fde(190, 310),
            fde(210, 220),
            fde(390, 500),
            fde(600, 700),
        ];
        let layout = lay_out(eh, vec![], &segments);
        let expected = [(100, 110, false), (190, 200, false), (390, 400, false)];
        assert_eq!(ranges(&layout), expected);
        assert_eq!(layout.skipped, 2);
    }

    #[test]
    fn debug_frame_fills_only_what_eh_frame_leaves() {
        let eh = vec![fde(10, 50), fde(20, 30)];
        let debug = vec![
            fde(0, 10),
            fde(0, 11),
            fde(35, 40),
            fde(49, 60),
            fde(50, 60),
        ];
        let mut kept = debug;
        remove_covered(&mut kept, &eh);
        assert_eq!(kept, [fde(0, 10), fde(50, 60)]);
    }
}
