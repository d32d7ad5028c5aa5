//! The methods on one set: a bar each, with its interval and a mark for the legacy rule.

use super::markup::{escape, fit, width};
use super::words::{percent, percent_range};
use crate::MethodReport;
use std::fmt::Write;

const WIDTH: f64 = 360.0;
const ROW: f64 = 26.0;
const BAR: f64 = 13.0;
const TOP: f64 = 8.0;
const AXIS: f64 = 24.0;
const FONT: f64 = 12.0;
/// Room for the number at the right.
const NUMBER: f64 = 52.0;
/// Longer names stand above their bars.
const LONGEST_NAME: f64 = 120.0;
/// Room for a name above its bar.
const ABOVE: f64 = 16.0;

/// The picture, as an element of a page that defines the colours.
pub fn bars(set: &str, methods: &[MethodReport]) -> String {
    // Names on the front are bold: in some fonts a fifth wider.
    let longest = methods.iter().map(|method| width(&method.method, FONT * 1.25)).fold(0.0, f64::max);
    let (left, above) = if longest <= LONGEST_NAME { (longest + 10.0, 0.0) } else { (2.0, ABOVE) };
    let row = ROW + above;
    let scale = |share: f64| left + (WIDTH - NUMBER - left) * share.clamp(0.0, 1.0);
    let bottom = TOP + row * methods.len() as f64;
    let height = bottom + AXIS;
    let mut svg = format!(
        "<svg class=\"chart bars\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         aria-label=\"Accuracy on {}; the numbers stand beside the bars\">\n",
        escape(set)
    );
    for tick in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let x = scale(tick);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{}\" \
             text-anchor=\"middle\">{:.0}</text>",
            bottom + 16.0,
            tick * 100.0
        );
    }
    for (place, method) in methods.iter().enumerate() {
        let y = TOP + row * place as f64 + above + ROW / 2.0;
        let name = match above {
            0.0 => (left - 8.0, y + 4.0, "end"),
            _ => (left, y - ROW / 2.0 + 1.0, "start"),
        };
        draw_row(&mut svg, method, name, y, left, scale);
    }
    svg.push_str("</svg>\n");
    svg
}

/// `name`: where the name begins or ends, and which of the two.
fn draw_row(
    svg: &mut String,
    method: &MethodReport,
    name: (f64, f64, &str),
    y: f64,
    left: f64,
    scale: impl Fn(f64) -> f64,
) {
    let front = if method.on_front { " front" } else { "" };
    let tip = format!(
        "{}: {} ({}); legacy {} ({})",
        method.method,
        percent(method.accuracy),
        percent_range(method.interval),
        percent(method.legacy_accuracy),
        percent_range(method.legacy_interval),
    );
    let _ = write!(
        svg,
        "<g><title>{}</title><text class=\"name{front}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{}\">{}</text>",
        escape(&tip),
        name.0,
        name.1,
        name.2,
        escape(&fit(&method.method, WIDTH - 4.0, FONT * 1.08))
    );
    if method.accuracy.is_finite() {
        let _ = write!(
            svg,
            "<rect class=\"bar{front}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR}\"/>",
            y - BAR / 2.0,
            scale(method.accuracy) - left
        );
    }
    let [low, high] = method.interval.map(&scale);
    if low.is_finite() && high.is_finite() {
        let cap = y - 3.5;
        let _ = write!(
            svg,
            "<path class=\"whisker over\" d=\"M{low:.1} {cap:.1}v7M{low:.1} {y:.1}H{high:.1}M{high:.1} {cap:.1}v7\"/>"
        );
    }
    if method.legacy_accuracy.is_finite() {
        let x = scale(method.legacy_accuracy);
        let _ = write!(svg, "<path class=\"legacy\" d=\"M{x:.1} {:.1}l4.5 4.5-4.5 4.5-4.5-4.5z\"/>", y - 4.5);
    }
    let _ = writeln!(
        svg,
        "<text class=\"name{front}\" x=\"{WIDTH}\" y=\"{:.1}\" text-anchor=\"end\">{}</text></g>",
        y + 4.0,
        percent(method.accuracy)
    );
}
