//! Numbers as reports print them: sizes in decimal units, and C's `%g`.

/// How units are abbreviated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// `K`, `M`, … and `B` for bytes: the report.
    Short,
    /// `KB`, `MB`, …: the statistics of suppressions.
    Long,
}

/// A number of bytes in the largest unit that leaves it above 1, with two decimals; plain bytes up
/// to and including 1000.
#[must_use]
pub fn size(bytes: i64, unit: Unit) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut step = 0;
    while value.abs() > 1000.0 && step + 1 < UNITS.len() {
        value /= 1000.0;
        step += 1;
    }
    if step == 0 {
        return format!("{bytes}B");
    }
    let name = UNITS[step];
    match unit {
        Unit::Short => format!("{value:.2}{}", &name[..1]),
        Unit::Long => format!("{value:.2}{name}"),
    }
}

/// `part` of `whole` in percent with two decimals, computed in single precision.
#[must_use]
pub fn percentage(part: i64, whole: i64) -> String {
    let percent = part as f32 * 100.0 / whole as f32;
    if percent.is_nan() {
        // The sign that the machine gives to 0/0, as printf shows it.
        return "-nan".into();
    }
    format!("{percent:.2}")
}

/// `value` as C prints it with `%g`: up to six significant digits, exponents where shorter.
#[must_use]
pub fn general(value: f64) -> String {
    const DIGITS: i32 = 6;
    if !value.is_finite() || value == 0.0 {
        return if value.is_nan() {
            "-nan".into()
        } else {
            format!("{value}")
        };
    }
    let scientific = format!("{:.*e}", DIGITS as usize - 1, value);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or(0);
        return without_trailing_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!(
        "{}e{sign}{:02}",
        without_trailing_zeros(mantissa),
        exponent.abs()
    )
}

fn without_trailing_zeros(number: &str) -> &str {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_change_unit_above_a_thousand() {
        for (bytes, expected) in [
            (0, "0B"),
            (1000, "1000B"),
            (1001, "1.00K"),
            (1125, "1.12K"),
            (1375, "1.38K"),
            (2625, "2.62K"),
            (-1125, "-1.12K"),
            (999_995, "1000.00K"),
            (1_000_000, "1000.00K"),
            (1_000_001, "1.00M"),
            (1_000_000_000_001, "1.00T"),
            (5_000_000_000_000_000, "5000.00T"),
        ] {
            assert_eq!(size(bytes, Unit::Short), expected);
        }
        assert_eq!(size(1500, Unit::Long), "1.50KB");
        assert_eq!(size(9, Unit::Long), "9B");
    }

    #[test]
    fn general_format_is_that_of_c() {
        for (value, expected) in [
            (0.031, "0.031"),
            (12.345, "12.345"),
            (1234.567, "1234.57"),
            (1e6, "1e+06"),
            (999_999.5, "1e+06"),
            (123_456.0, "123456"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25, "1.25"),
            (100.0, "100"),
            (0.0, "0"),
        ] {
            assert_eq!(general(value), expected);
        }
    }

    #[test]
    fn percentages() {
        assert_eq!(percentage(1, 3), "33.33");
        assert_eq!(percentage(-1, 0), "-inf");
        assert_eq!(percentage(1, 0), "inf");
    }
}
