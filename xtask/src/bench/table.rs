//! From the rounds' figures to the table.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::Results;
use super::contenders::Contender;

/// One line of the table.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    pub(super) contender: Contender,
    /// Median of nanoseconds a pair.
    pub(super) each: f64,
    /// Median of the multiples of the same round's untraced loop.
    pub(super) ratio: f64,
}

/// Medians, in the order of [`Contender::ALL`]. Ratios are taken within each round, between runs that
/// stood side by side, so that a machine that gets slower does not count as a slower contender.
pub(super) fn rows(results: &Results) -> Result<Vec<Row>> {
    let untraced = results
        .get(&Contender::Untraced)
        .context("the untraced loop was not run")?;
    let row = |(contender, all): (&Contender, &Vec<f64>)| {
        let ratios = all
            .iter()
            .zip(untraced)
            .map(|(each, untraced)| each / untraced);
        let ratio = median(&ratios.collect::<Vec<_>>())?;
        Some(Row {
            contender: *contender,
            each: median(all)?,
            ratio,
        })
    };
    Ok(results.iter().filter_map(row).collect())
}

/// The middle value; the mean of the middle two of an even number.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

pub(super) fn render(rows: &[Row]) -> String {
    let mut table = String::from("| malloc + free under     | ns a pair | times untraced |\n");
    table.push_str("|-------------------------|----------:|---------------:|\n");
    for Row {
        contender,
        each,
        ratio,
    } in rows
    {
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| {contender:<23} | {each:>9.1} | {ratio:>14.2} |");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_one_slow_round() {
        assert_eq!(median(&[25.0, 900.0, 24.0]), Some(25.0));
        assert_eq!(median(&[1.0, 2.0, 3.0, 10.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn ratios_are_of_one_round() {
        let results = Results::from([
            (Contender::Untraced, vec![10.0, 20.0, 40.0]),
            (Contender::Bystander, vec![10.0, 22.0, 60.0]),
        ]);
        let rows = rows(&results).unwrap();
        assert_eq!((rows[0].each, rows[0].ratio), (20.0, 1.0));
        assert_eq!(
            (rows[1].contender, rows[1].ratio),
            (Contender::Bystander, 1.1)
        );
        assert!(super::rows(&Results::new()).is_err());
    }

    #[test]
    fn columns_line_up() {
        let rows = [Row {
            contender: Contender::Bystander,
            each: 25.04,
            ratio: 1.0,
        }];
        let table = render(&rows);
        let widths = table.lines().map(str::len).collect::<Vec<_>>();
        assert_eq!(widths, [widths[0]; 3], "{table}");
    }
}
