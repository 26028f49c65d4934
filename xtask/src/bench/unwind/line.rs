//! The straight line that fits points best.

/// `y = at_zero + slope * x`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    pub(super) slope: f64,
    pub(super) at_zero: f64,
}

impl Line {
    /// By least squares; `None` unless two points have different `x`.
    pub(super) fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let both: f64 = points
            .iter()
            .map(|point| (point.0 - x) * (point.1 - y))
            .sum();
        let slope = both / spread;
        slope.is_finite().then_some(Self {
            slope,
            at_zero: y - slope * x,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_give_that_line() {
        let line = Line::through(&[(4.0, 108.0), (12.0, 124.0), (33.0, 166.0)]).unwrap();
        assert!((line.slope - 2.0).abs() < 1e-9 && (line.at_zero - 100.0).abs() < 1e-9);
    }

    #[test]
    fn one_point_gives_none() {
        assert_eq!(Line::through(&[(4.0, 1.0)]), None);
        assert_eq!(Line::through(&[]), None);
    }
}
