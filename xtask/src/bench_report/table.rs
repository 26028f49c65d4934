//! From the rounds' figures to a table, and into the document.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::contenders::{Contender, Run};

/// One round: a run of each of [`Contender::ALL`], in that order.
pub(super) type Round = Vec<Run>;

/// One line of the table.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    pub(super) contender: Contender,
    median: f64,
    fastest: f64,
    slowest: f64,
    /// Median of the multiples of the same round's heaptrack_print, in time.
    pub(super) times: f64,
    /// Median of the largest resident set in MiB.
    peak: f64,
    /// The same, as a multiple of heaptrack_print's.
    pub(super) peak_times: f64,
}

/// Medians, in the order of [`Contender::ALL`]. Ratios are taken within each round, between runs
/// that stood side by side.
pub(super) fn rows(rounds: &[Round]) -> Result<Vec<Row>> {
    let row = |(position, contender): (usize, &Contender)| {
        let runs = |of: &dyn Fn(&Run, &Run) -> f64| -> Option<Vec<f64>> {
            let each = rounds
                .iter()
                .map(|round| Some(of(round.get(position)?, round.first()?)));
            let mut values = each.collect::<Option<Vec<f64>>>()?;
            values.sort_by(f64::total_cmp);
            Some(values)
        };
        let seconds = runs(&|run, _| run.seconds)?;
        Some(Row {
            contender: *contender,
            median: median(&seconds)?,
            fastest: *seconds.first()?,
            slowest: *seconds.last()?,
            times: median(&runs(&|run, first| run.seconds / first.seconds)?)?,
            peak: median(&runs(&|run, _| run.peak / 1024.0)?)?,
            peak_times: median(&runs(&|run, first| run.peak / first.peak)?)?,
        })
    };
    let rows = Contender::ALL.iter().enumerate().map(row);
    rows.collect::<Option<_>>().context("a round is not whole")
}

/// The middle of sorted values; the mean of the middle two of an even number.
fn median(sorted: &[f64]) -> Option<f64> {
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

pub(super) fn render(rows: &[Row]) -> String {
    let mut table = String::from(
        "| reader            | seconds | fastest – slowest | of heaptrack_print | MiB at most | of heaptrack_print |\n\
         |-------------------|--------:|------------------:|-------------------:|------------:|-------------------:|\n",
    );
    for row in rows {
        let spread = format!("{:.3} – {:.3}", row.fastest, row.slowest);
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| {:<17} | {:>7.3} | {spread:>17} | {:>18.3} | {:>11.1} | {:>18.2} |",
            row.contender, row.median, row.times, row.peak, row.peak_times
        );
    }
    table
}

/// `document` with the part between the lines `<!-- NAME -->` and `<!-- end of NAME -->` replaced
/// by `text`; with the part added if it was not there.
pub(super) fn replace_part(document: &str, name: &str, text: &str) -> String {
    let (start, end) = (
        format!("<!-- {name} -->\n"),
        format!("<!-- end of {name} -->\n"),
    );
    let part = format!("{start}\n{text}\n{end}");
    let bounds = document.find(&start).zip(document.find(&end));
    match bounds {
        Some((from, to)) if from < to => {
            let behind = document.get(to + end.len()..).unwrap_or_default();
            format!("{}{part}{behind}", document.get(..from).unwrap_or_default())
        }
        _ if document.is_empty() => part,
        _ => format!("{}\n\n{part}", document.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(seconds: [f64; 3]) -> Round {
        let run = |seconds| Run {
            seconds,
            peak: seconds * 1024.0,
        };
        seconds.map(run).to_vec()
    }

    #[test]
    fn ratios_are_of_one_round_and_medians_ignore_one_slow_one() {
        let rounds = [
            round([1.0, 0.1, 0.2]),
            round([2.0, 0.2, 0.2]),
            round([9.0, 0.8, 0.2]),
        ];
        let rows = rows(&rounds).unwrap();
        assert_eq!((rows[1].median, rows[1].times), (0.2, 0.1));
        assert_eq!((rows[0].fastest, rows[0].slowest), (1.0, 9.0));
        assert_eq!((rows[0].times, rows[0].peak), (1.0, 2.0));
        assert!(super::rows(&[vec![]]).is_err());
        assert!(super::rows(&[]).is_err());
    }

    #[test]
    fn columns_line_up() {
        let table = render(&rows(&[round([12.0, 1.5, 0.3])]).unwrap());
        let widths: Vec<_> = table.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [widths[0]; 5], "{table}");
    }

    #[test]
    fn a_part_is_replaced_where_it_stands() {
        let first = replace_part("# Title\n", "x", "old\n");
        assert_eq!(first, "# Title\n\n<!-- x -->\n\nold\n\n<!-- end of x -->\n");
        let more = first + "behind\n";
        let second = replace_part(&more, "x", "new\n");
        assert_eq!(second, more.replace("old", "new"));
    }
}
