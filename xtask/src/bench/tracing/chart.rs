//! Draws bars as SVG.

use std::fmt::Write as _;

/// One bar: its name, its length as a number, and what stands behind it.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) label: String,
    pub(super) is_ours: bool,
}

const WIDTH: f64 = 760.0;
const NAMES: f64 = 250.0;
const LABELS: f64 = 110.0;
const ROW: f64 = 22.0;
const TOP: f64 = 34.0;

/// Horizontal bars under a title, the longest as wide as there is room.
pub(super) fn draw(title: &str, bars: &[Bar]) -> String {
    let longest = bars
        .iter()
        .map(|bar| bar.value)
        .fold(f64::MIN_POSITIVE, f64::max);
    let height = TOP + ROW * bars.len() as f64 + 8.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"20\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    for (index, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        let length = (bar.value / longest * (WIDTH - NAMES - LABELS)).max(1.0);
        let colour = if bar.is_ours { "#1a7f5a" } else { "#9aa5b1" };
        let text = y + 14.0;
        let (end, behind) = (NAMES - 8.0, NAMES + length + 6.0);
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"{end}\" y=\"{text}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{NAMES}\" y=\"{y}\" width=\"{length:.1}\" height=\"17\" fill=\"{colour}\"/>\
             <text x=\"{behind:.1}\" y=\"{text}\">{}</text>",
            escaped(&bar.name),
            escaped(&bar.label)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_room_and_words_are_escaped() {
        let bar = |value, name: &str| Bar {
            name: name.to_owned(),
            value,
            label: format!("{value}"),
            is_ours: false,
        };
        let svg = draw("a < b", &[bar(200.0, "x & y"), bar(100.0, "z")]);
        assert!(svg.contains("width=\"400.0\" height=\"17\"") && svg.contains("width=\"200.0\""));
        assert!(svg.contains("a &lt; b") && svg.contains("x &amp; y"));
    }
}
