//! A small chart: curves over steps.

use crate::frame::{Frame, labels};
use crate::markup::Markup;
use crate::scale::{Scale, percent as percent_label, plain};
use crate::svg::{Anchor, Path, circle, element, line, text};
use crate::words::{NONE, number, percent};

const WIDE: f64 = 380.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 22.0;
/// More points than this could not be told apart.
const MOST_POINTS: usize = 400;

/// Charts under one title.
pub(super) struct Figure {
    pub name: &'static str,
    /// The number beside the title.
    pub value: String,
    /// The legend of two curves stands there instead.
    pub has_two_curves: bool,
    pub pictures: Vec<Markup>,
}

/// How values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Plain,
    Percent,
}

/// What is drawn.
pub(super) struct Chart {
    /// What it shows, for readers who do not see it.
    pub about: String,
    pub high: f64,
    pub unit: Unit,
    /// Least and greatest value that can be.
    pub bounds: (f64, f64),
    pub is_log: bool,
    /// Values that have to be on the axis, so that charts can be compared.
    pub shown: Vec<f64>,
    /// A value to compare with.
    pub rule: Option<f64>,
    pub curves: Vec<Curve>,
}

/// Values at steps. What is not finite is a gap.
pub(super) struct Curve {
    pub style: Style,
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// A thin line beneath a smooth one.
    Faint,
    Main,
    Second,
    /// Points of held-out evaluations, joined.
    HeldOut,
}

impl Style {
    fn class(self) -> &'static str {
        match self {
            Style::Faint => "faint",
            Style::Main => "main",
            Style::Second => "second",
            Style::HeldOut => "held-out",
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
    pub(super) fn svg(&self, steps: (f64, f64)) -> Markup {
        let plot = Frame { left: LEFT, top: TOP, right: WIDE - RIGHT, bottom: self.high - BOTTOM };
        let svg = element("svg").class("chart").attribute("viewBox", &format!("0 0 {WIDE} {}", self.high));
        let svg = svg.attribute("role", "img").attribute("aria-label", &self.about);
        let Some(y) = self.values(&plot) else {
            let middle = ((plot.left + plot.right) / 2.0, self.high / 2.0);
            return svg.child(text("tick", middle, Anchor::Middle, "not measured")).into();
        };
        let x = Scale::steps(steps, (plot.left, plot.right));
        let curves: Markup = self.curves.iter().map(|curve| curve.draw(&x, &y, self.unit)).collect();
        svg.child(self.axes(&plot, &x, &y)).child(curves).into()
    }

    /// The axis of values, where there are any.
    fn values(&self, plot: &Frame) -> Option<Scale> {
        let values = || self.curves.iter().flat_map(|curve| &curve.points).map(|(_, value)| *value);
        values().find(|value| value.is_finite())?;
        let values = values().chain(self.shown.iter().copied());
        let pixels = (plot.bottom, plot.top);
        match self.is_log {
            true => Scale::log_within(values, self.bounds, pixels),
            false => Scale::within(values, self.bounds, pixels),
        }
    }

    fn axes(&self, plot: &Frame, x: &Scale, y: &Scale) -> Markup {
        let write = match self.unit {
            Unit::Plain => plain,
            Unit::Percent => percent_label,
        };
        let most = ((plot.bottom - plot.top) / 24.0).clamp(2.0, 8.0);
        let rule = self.rule.map(|rule| line("rule", (plot.left, y.at(rule)), (plot.right, y.at(rule))));
        let rows = plot.rows(&labels(y.ticks(most), write));
        let axis = plot.axis(&labels(x.ticks(4.0), plain), RIGHT);
        [rows, axis].into_iter().chain(rule.map(Markup::from)).collect()
    }
}

impl Curve {
    fn draw(&self, x: &Scale, y: &Scale, unit: Unit) -> Markup {
        let class = self.style.class();
        let path = path(&thinned(&self.points), x, y);
        let path = (!path.is_empty()).then(|| path.element(&format!("curve {class}")));
        let points = self.points.iter().filter(|(_, value)| self.style == Style::HeldOut && value.is_finite());
        let points = points.map(|(step, value)| {
            circle(class, (x.at(*step), y.at(*value)), 3.5).title(&format!("step {step}: {}", written(*value, unit)))
        });
        path.into_iter().chain(points).collect()
    }
}

/// A value of a chart by itself.
pub(super) fn written(value: f64, unit: Unit) -> String {
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
fn path(points: &[(f64, f64)], x: &Scale, y: &Scale) -> Path {
    let mut all = Path::default();
    for part in points.split(|(_, value)| !value.is_finite()) {
        let Some(way) = Path::through(part.iter().map(|(step, value)| (x.at(*step), y.at(*value)))) else { continue };
        all = all.join(&if part.len() == 1 { way.dot() } else { way });
    }
    all
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
        chart.svg((0.0, 4.0)).into_string()
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
