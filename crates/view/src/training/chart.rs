//! A small chart: curves over steps.

use super::scale::{Scale, Unit};
use lemon_trace::export::escape;
use std::fmt::Write;

const WIDE: f64 = 380.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 22.0;
/// More points than this could not be told apart.
const MOST_POINTS: usize = 400;

/// What is drawn.
pub(super) struct Chart {
    /// What it shows, for those who do not see it.
    pub(super) about: String,
    pub(super) high: f64,
    pub(super) unit: Unit,
    /// Least and greatest value that can be.
    pub(super) bounds: (f64, f64),
    pub(super) is_log: bool,
    /// Values that have to be on the axis, so that charts can be compared.
    pub(super) shown: Vec<f64>,
    /// A value to compare with.
    pub(super) rule: Option<f64>,
    pub(super) curves: Vec<Curve>,
}

/// Values at steps. What is not finite is a gap.
pub(super) struct Curve {
    pub(super) style: Style,
    pub(super) points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// A thin line beneath a smooth one.
    Faint,
    Main,
    Second,
    /// Points, joined.
    Looks,
}

impl Style {
    fn class(self) -> &'static str {
        match self {
            Style::Faint => "faint",
            Style::Main => "main",
            Style::Second => "second",
            Style::Looks => "looks",
        }
    }
}

/// The curves of one quantity that differs from step to step: as it is, and smooth where there are enough steps for that.
pub(super) fn smooth(points: Vec<(f64, f64)>, style: Style) -> Vec<Curve> {
    let half = points.len() / 24;
    if half == 0 {
        return vec![Curve { style, points }];
    }
    let mean = |at: usize| {
        let from = at.saturating_sub(half);
        let near = points.iter().skip(from).take(at + half + 1 - from).map(|(_, value)| *value);
        mean(near.filter(|value| value.is_finite()))
    };
    let smooth = points.iter().enumerate().map(|(at, (step, _))| (*step, mean(at))).collect();
    vec![Curve { style: Style::Faint, points }, Curve { style, points: smooth }]
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

impl Chart {
    /// The picture, as an element of a page that defines the colours.
    pub(super) fn svg(&self, steps: (f64, f64)) -> String {
        let high = self.high;
        let mut svg = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDE} {high}\" role=\"img\" aria-label=\"{}\">\n",
            escape(&self.about)
        );
        let x = Scale::steps(steps, (LEFT, WIDE - RIGHT));
        match self.values(high) {
            Some(y) => {
                self.draw_axes(&mut svg, &x, &y);
                self.curves.iter().for_each(|curve| curve.draw(&mut svg, &x, &y, self.unit));
            }
            None => {
                let (x, y) = ((LEFT + WIDE - RIGHT) / 2.0, high / 2.0);
                let _ = writeln!(
                    svg,
                    "<text class=\"tick\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">not measured</text>"
                );
            }
        }
        svg.push_str("</svg>");
        svg
    }

    /// The axis of values, where there are any.
    fn values(&self, high: f64) -> Option<Scale> {
        let values = || self.curves.iter().flat_map(|curve| &curve.points).map(|(_, value)| *value);
        values().find(|value| value.is_finite())?;
        let values = values().chain(self.shown.iter().copied());
        let pixels = (high - BOTTOM, TOP);
        match self.is_log {
            true => Scale::log(values, self.bounds, pixels),
            false => Scale::linear(values, self.bounds, pixels),
        }
    }

    fn draw_axes(&self, svg: &mut String, x: &Scale, y: &Scale) {
        let (right, bottom) = (WIDE - RIGHT, self.high - BOTTOM);
        for tick in &y.ticks {
            let at = y.at(*tick);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>\
                 <text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                y.label(*tick, self.unit)
            );
        }
        let _ = writeln!(svg, "<path class=\"axis\" d=\"M{LEFT} {bottom}H{right}\"/>");
        for tick in &x.ticks {
            let at = x.at(*tick);
            let label = x.label(*tick, Unit::Plain);
            // A label in the middle of its tick would stand out of the picture at the right.
            let anchor = if at > right - 12.0 { "end" } else { "middle" };
            let end = if at > right - 12.0 { right } else { at };
            let _ = writeln!(
                svg,
                "<path class=\"axis\" d=\"M{at:.1} {bottom}v3\"/>\
                 <text class=\"tick\" x=\"{end:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{label}</text>",
                self.high - 6.0
            );
        }
        if let Some(rule) = self.rule {
            let _ = writeln!(svg, "<path class=\"rule\" d=\"M{LEFT} {:.1}H{right}\"/>", y.at(rule));
        }
    }
}

impl Curve {
    fn draw(&self, svg: &mut String, x: &Scale, y: &Scale, unit: Unit) {
        let class = self.style.class();
        let path = path(&thinned(&self.points), x, y);
        if !path.is_empty() {
            let _ = writeln!(svg, "<path class=\"curve {class}\" d=\"{path}\"/>");
        }
        if self.style != Style::Looks {
            return;
        }
        for (step, value) in self.points.iter().filter(|(_, value)| value.is_finite()) {
            let _ = writeln!(
                svg,
                "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>step {step}: {}</title></circle>",
                x.at(*step),
                y.at(*value),
                written(*value, unit)
            );
        }
    }
}

/// A value of a chart by itself.
pub(super) fn written(value: f64, unit: Unit) -> String {
    use lemon_eval::report::words::{NONE, number, percent};
    match (unit, value.abs()) {
        _ if !value.is_finite() => NONE.to_owned(),
        (Unit::Percent, _) => percent(value),
        (Unit::Plain, 0.0) => "0".to_owned(),
        (Unit::Plain, x) if x >= 100.0 => number(value),
        (Unit::Plain, x) if x >= 10.0 => format!("{value:.1}"),
        (Unit::Plain, x) if x >= 1.0 => format!("{value:.2}"),
        (Unit::Plain, x) if x < 1e-3 => format!("{value:.1e}"),
        (Unit::Plain, _) => format!("{value:.3}"),
    }
    .replace('-', "−")
}

/// A line through the points, with gaps where there are none. A point alone is a dot.
fn path(points: &[(f64, f64)], x: &Scale, y: &Scale) -> String {
    let mut path = String::new();
    for line in points.split(|(_, value)| !value.is_finite()) {
        for (place, (step, value)) in line.iter().enumerate() {
            let sign = if place == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{sign}{:.1} {:.1}", x.at(*step), y.at(*value));
        }
        if line.len() == 1 {
            path.push_str("h.01");
        }
    }
    path
}

/// Means of neighbours, where there are more points than one could see.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let size = points.len().div_ceil(MOST_POINTS).max(1);
    let middle = |chunk: &[(f64, f64)]| {
        let finite = || chunk.iter().filter(|(_, value)| value.is_finite());
        (mean(chunk.iter().map(|(step, _)| *step)), mean(finite().map(|(_, value)| *value)))
    };
    points.chunks(size).map(middle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(f64, f64)]) -> String {
        let curves = vec![Curve { style: Style::Main, points: points.to_vec() }];
        let bounds = (f64::NEG_INFINITY, f64::INFINITY);
        let about = "<x>".to_owned();
        let chart =
            Chart { about, high: 110.0, unit: Unit::Plain, bounds, is_log: false, shown: vec![], rule: None, curves };
        chart.svg((0.0, 4.0))
    }

    #[test]
    fn curves_have_gaps_and_dots() {
        let check = |points: &[(f64, f64)], expected: Option<&str>| {
            let svg = chart(points);
            let path = svg.split("class=\"curve main\" d=\"").nth(1).and_then(|rest| rest.split('"').next());
            assert_eq!(path, expected, "{points:?}");
            assert_eq!(svg.contains("not measured"), expected.is_none());
            assert!(!svg.contains("NaN") && !svg.contains("<x>"), "{svg}");
        };
        check(&[], None);
        check(&[(1.0, f64::NAN)], None);
        check(&[(2.0, 0.5)], Some("M209.0 48.0h.01"));
        check(&[(0.0, 1.0), (4.0, 1.0)], Some("M46.0 48.0L372.0 48.0"));
        check(
            &[(0.0, 0.0), (1.0, 1.0), (2.0, f64::NAN), (3.0, 0.0), (4.0, f64::INFINITY)],
            Some("M46.0 83.7L127.5 12.3M290.5 83.7h.01"),
        );
    }

    #[test]
    fn many_steps_are_smooth_and_few_points() {
        let points = |count: usize| (0..count).map(|at| (at as f64, (at % 2) as f64)).collect::<Vec<_>>();
        let check = |count, curves| assert_eq!(smooth(points(count), Style::Main).len(), curves, "{count}");
        check(0, 1);
        check(23, 1);
        check(24, 2);
        let smooth = smooth(points(480), Style::Main).pop().unwrap().points;
        assert!(smooth.iter().all(|(_, value)| (value - 0.5).abs() < 0.05));
        assert_eq!(thinned(&points(10_000)).len(), MOST_POINTS);
        assert_eq!(thinned(&points(400)), points(400));
    }

    #[test]
    fn values_by_themselves() {
        let check = |value, unit, expected: &str| assert_eq!(written(value, unit), expected);
        check(0.655, Unit::Percent, "65.5 %");
        check(0.655, Unit::Plain, "0.655");
        check(-0.2, Unit::Plain, "−0.200");
        check(12.34, Unit::Plain, "12.3");
        check(2.529, Unit::Plain, "2.53");
        check(1234.5, Unit::Plain, "1,234");
        check(0.000_02, Unit::Plain, "2.0e−5");
        check(0.0, Unit::Plain, "0");
        check(f64::NAN, Unit::Plain, "–");
    }
}
