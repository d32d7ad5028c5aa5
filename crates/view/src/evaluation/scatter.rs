//! Accuracy against tokens: a point for each method with its intervals, and the front as a stair.

use super::labels::{Area, Obstacle, place};
use super::markup::{escape, fit, width};
use super::words::{number, percent, percent_range};
use crate::MethodReport;
use std::fmt::Write;

/// Spans beyond this are drawn on a logarithmic axis.
const LOG_FROM: f64 = 10.0;
/// Means beyond this are no token counts, and stay at the edge.
const MOST_TOKENS: f64 = 1e15;
const FONT: f64 = 12.0;
/// Names farther from their points than this have a line to them.
const LEADER_FROM: f64 = 13.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 14.0;

/// The picture, `wide` pixels wide and `high` high, as an element of a page that defines the colours.
pub fn scatter(methods: &[MethodReport], class: &str, wide: f64, high: f64) -> String {
    let methods: Vec<&MethodReport> =
        methods.iter().filter(|method| method.tokens.is_finite() && method.accuracy.is_finite()).collect();
    let plot = Area { left: LEFT, top: TOP, right: wide - RIGHT, bottom: high - BOTTOM };
    let x = Axis::tokens(&methods, plot.left, plot.right);
    let y = Axis::accuracy(&methods, plot.bottom, plot.top);
    let marks: Vec<Mark> = methods.iter().map(|method| Mark::new(method, &x, &y)).collect();
    let mut svg = format!(
        "<svg class=\"chart {class}\" viewBox=\"0 0 {wide:.0} {high:.0}\" width=\"{wide:.0}\" height=\"{high:.0}\" \
         role=\"img\" aria-label=\"Accuracy against mean tokens per run; the numbers are in the table above\">\n"
    );
    draw_axes(&mut svg, &x, &y, &plot);
    let stair = stair(&marks, plot.right);
    draw_stair(&mut svg, &stair);
    marks.iter().for_each(|mark| mark.draw_whiskers(&mut svg));
    draw_names(&mut svg, &marks, &stair, &plot);
    marks.iter().for_each(|mark| mark.draw_point(&mut svg));
    svg.push_str("</svg>\n");
    svg
}

/// From values to pixels.
struct Axis {
    /// Lowest and highest value.
    domain: (f64, f64),
    /// Their pixels.
    pixels: (f64, f64),
    is_log: bool,
    ticks: Vec<f64>,
}

impl Axis {
    fn tokens(methods: &[&MethodReport], from: f64, to: f64) -> Axis {
        let finite = |x: &f64| (0.0..=MOST_TOKENS).contains(x);
        let means: Vec<f64> = methods.iter().map(|method| method.tokens).filter(finite).collect();
        let low = means.iter().copied().fold(f64::INFINITY, f64::min);
        let high = means.iter().copied().fold(0.0, f64::max);
        let is_log = low > 0.0 && high / low > LOG_FROM;
        let ends = methods.iter().flat_map(|method| method.tokens_interval).filter(finite);
        let shown: Vec<f64> = means.iter().copied().chain(ends).filter(|x| !is_log || *x > low / 10.0).collect();
        let low = shown.iter().copied().fold(f64::INFINITY, f64::min);
        let high = shown.iter().copied().fold(0.0, f64::max);
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        if is_log {
            let domain = (low / 1.15, high * 1.15);
            return Axis { domain, pixels: (from, to), is_log, ticks: log_ticks(domain) };
        }
        let margin = ((high - low) * 0.08).max(high * 0.02).max(0.5);
        let domain = ((low - margin).max(0.0), high + margin);
        let most_ticks = ((to - from) / 90.0).max(2.0);
        Axis { domain, pixels: (from, to), is_log, ticks: ticks(domain, most_ticks) }
    }

    fn accuracy(methods: &[&MethodReport], from: f64, to: f64) -> Axis {
        let ends = methods.iter().flat_map(|method| [method.accuracy, method.interval[0], method.interval[1]]);
        let ends: Vec<f64> = ends.filter(|share| share.is_finite()).map(|share| share.clamp(0.0, 1.0)).collect();
        let low = ends.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ends.iter().copied().fold(0.0, f64::max);
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        let margin = ((high - low) * 0.06).max(0.02);
        let domain = ((low - margin).max(0.0), (high + margin).min(1.0));
        Axis { domain, pixels: (from, to), is_log: false, ticks: ticks(domain, 6.0) }
    }

    fn at(&self, value: f64) -> f64 {
        let scale = |x: f64| if self.is_log { x.max(f64::MIN_POSITIVE).ln() } else { x };
        let (low, high) = (scale(self.domain.0), scale(self.domain.1));
        let share = ((scale(value) - low) / (high - low)).clamp(0.0, 1.0);
        let (from, to) = self.pixels;
        // Values so large that their span is infinite.
        from + (to - from) * if share.is_finite() { share } else { 0.5 }
    }
}

/// Round values inside a domain: multiples of 1, 2 or 5 times a power of ten.
fn ticks((low, high): (f64, f64), most: f64) -> Vec<f64> {
    let span = high - low;
    if !(span > 0.0 && span.is_finite()) {
        return Vec::new();
    }
    let power = 10_f64.powf((span / most).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|step| span / step <= most).unwrap_or(span);
    let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
    // At most `most` ticks by the choice of the step, whatever rounding does to their first and last.
    (0..=most as usize)
        .map(|tick| first + tick as f64)
        .take_while(|tick| *tick <= last)
        .map(|tick| tick * step)
        .collect()
}

/// 1, 2 and 5 in each power of ten; over many powers only 1.
fn log_ticks((low, high): (f64, f64)) -> Vec<f64> {
    let powers = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let factors: &[f64] = if (high / low).log10() > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all = powers.flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
    all.filter(|tick| (low..=high).contains(tick)).collect()
}

/// A method on the picture.
struct Mark<'a> {
    method: &'a MethodReport,
    x: f64,
    y: f64,
    /// Pixels of the interval of tokens.
    across: (f64, f64),
    /// Pixels of the interval of accuracy.
    down: (f64, f64),
}

impl<'a> Mark<'a> {
    fn new(method: &'a MethodReport, x: &Axis, y: &Axis) -> Mark<'a> {
        // An interval that is no number shrinks to its point.
        let ends = |axis: &Axis, interval: [f64; 2], middle: f64| {
            let [low, high] = interval.map(|end| axis.at(if end.is_finite() { end } else { middle }));
            (low.min(high), low.max(high))
        };
        let across = ends(x, method.tokens_interval, method.tokens);
        let down = ends(y, method.interval, method.accuracy);
        Mark { method, x: x.at(method.tokens), y: y.at(method.accuracy), across, down }
    }

    fn draw_whiskers(&self, svg: &mut String) {
        let Mark { x, y, across, down, .. } = self;
        let class = if self.method.on_front { "whisker front" } else { "whisker" };
        let _ = writeln!(
            svg,
            "<path class=\"{class}\" d=\"M{x:.1} {:.1}V{:.1}m-3 0h6M{:.1} {:.1}h6\
             M{:.1} {y:.1}H{:.1}m0-3v6M{:.1} {:.1}v6\"/>",
            down.0,
            down.1,
            x - 3.0,
            down.0,
            across.0,
            across.1,
            across.0,
            y - 3.0,
        );
    }

    fn draw_point(&self, svg: &mut String) {
        let class = if self.method.on_front { "point front" } else { "point" };
        let method = self.method;
        let [low, high] = method.tokens_interval;
        let tip = format!(
            "{}: {} ({}), {} tokens ({}–{})",
            method.method,
            percent(method.accuracy),
            percent_range(method.interval),
            number(method.tokens),
            number(low),
            number(high)
        );
        let _ = writeln!(
            svg,
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\"><title>{}</title></circle>",
            self.x,
            self.y,
            escape(&tip)
        );
    }
}

/// The corners of the front: what can be had for so many tokens, by rising cost and on to the right edge.
fn stair(marks: &[Mark], right: f64) -> Vec<(f64, f64)> {
    let mut front: Vec<&Mark> = marks.iter().filter(|mark| mark.method.on_front).collect();
    front.sort_by(|a, b| a.x.total_cmp(&b.x).then(b.y.total_cmp(&a.y)));
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for mark in front {
        corners.extend(corners.last().map(|(_, y)| (mark.x, *y)));
        corners.push((mark.x, mark.y));
    }
    corners.extend(corners.last().map(|(_, y)| (right, *y)));
    corners
}

fn draw_stair(svg: &mut String, corners: &[(f64, f64)]) {
    let Some(((x, y), rest)) = corners.split_first() else { return };
    let _ = write!(svg, "<path class=\"stair\" d=\"M{x:.1} {y:.1}");
    for (x, y) in rest {
        let _ = write!(svg, "L{x:.1} {y:.1}");
    }
    svg.push_str("\"/>\n");
}

fn draw_axes(svg: &mut String, x: &Axis, y: &Axis, plot: &Area) {
    for tick in &y.ticks {
        let at = y.at(*tick);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{:.1} {at:.1}H{:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{:.0} %</text>",
            plot.left,
            plot.right,
            plot.left - 7.0,
            at + 4.0,
            tick * 100.0
        );
    }
    let mut free_from = f64::NEG_INFINITY;
    for tick in &x.ticks {
        let (at, text) = (x.at(*tick), number(*tick));
        let half = width(&text, FONT) / 2.0;
        let _ = write!(svg, "<path class=\"grid\" d=\"M{at:.1} {:.1}v5\"/>", plot.bottom);
        if at - half > free_from && at + half <= plot.right + RIGHT {
            let y = plot.bottom + 18.0;
            let _ = write!(svg, "<text class=\"tick\" x=\"{at:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{text}</text>");
            free_from = at + half + 6.0;
        }
        svg.push('\n');
    }
    let scale = if x.is_log { ", logarithmic" } else { "" };
    let _ = writeln!(
        svg,
        "<path class=\"axis\" d=\"M{:.1} {:.1}H{:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" \
         text-anchor=\"end\">mean tokens per run{scale}</text>",
        plot.left,
        plot.bottom,
        plot.right,
        plot.right,
        plot.bottom + 37.0
    );
}

fn draw_names(svg: &mut String, marks: &[Mark], stair: &[(f64, f64)], plot: &Area) {
    // Only a name wider than the whole picture is cut.
    let longest = (plot.right - plot.left) / 1.1;
    let names: Vec<String> = marks.iter().map(|mark| fit(&mark.method.method, longest, FONT)).collect();
    // Names on the front are bold.
    let font = |mark: &Mark| if mark.method.on_front { FONT * 1.1 } else { FONT };
    let sizes: Vec<(f64, f64)> =
        marks.iter().zip(&names).map(|(mark, name)| (width(name, font(mark)), FONT + 3.0)).collect();
    let points: Vec<(f64, f64)> = marks.iter().map(|mark| (mark.x, mark.y)).collect();
    let places = place(&points, &sizes, &obstacles(marks, stair), plot);
    for ((mark, name), area) in marks.iter().zip(&names).zip(places) {
        // Where there is no room, the point has its name as a tip, and the table has all.
        let Some(area) = area else { continue };
        let middle = (area.left + area.right) / 2.0;
        let near = (mark.x.clamp(area.left, area.right), mark.y.clamp(area.top, area.bottom));
        if (near.0 - mark.x).hypot(near.1 - mark.y) > LEADER_FROM {
            let _ =
                write!(svg, "<path class=\"leader\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>", mark.x, mark.y, near.0, near.1);
        }
        let class = if mark.method.on_front { "name front" } else { "name" };
        let _ = writeln!(
            svg,
            "<text class=\"{class}\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            area.bottom - 4.0,
            escape(name)
        );
    }
}

/// What names had better not cover: points above all, then whiskers, then the stair.
fn obstacles(marks: &[Mark], stair: &[(f64, f64)]) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    for mark in marks {
        let Mark { x, y, across, down, .. } = *mark;
        obstacles.push(Obstacle { area: Area::about((x, y), 12.0, 12.0), weight: 200.0 });
        let upright = Area { left: x - 2.0, top: down.0, right: x + 2.0, bottom: down.1 };
        let level = Area { left: across.0, top: y - 2.0, right: across.1, bottom: y + 2.0 };
        obstacles.extend([upright, level].map(|area| Obstacle { area, weight: 30.0 }));
    }
    for ((x, y), (next_x, next_y)) in stair.iter().zip(stair.iter().skip(1)) {
        let area = Area {
            left: x.min(*next_x) - 1.0,
            top: y.min(*next_y) - 1.0,
            right: x.max(*next_x) + 1.0,
            bottom: y.max(*next_y) + 1.0,
        };
        obstacles.push(Obstacle { area, weight: 12.0 });
    }
    obstacles
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round() {
        let check = |domain, most, expected: &[f64]| {
            let ticks = ticks(domain, most);
            assert_eq!(ticks.len(), expected.len(), "{ticks:?}");
            assert!(ticks.iter().zip(expected).all(|(tick, expected)| (tick - expected).abs() < 1e-9), "{ticks:?}");
        };
        check((0.43, 0.91), 6.0, &[0.5, 0.6, 0.7, 0.8, 0.9]);
        check((0.0, 1.0), 6.0, &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        check((130.0, 1900.0), 5.0, &[500.0, 1000.0, 1500.0]);
        check((3.0, 3.0), 5.0, &[]);
        check((0.0, f64::INFINITY), 5.0, &[]);
        assert_eq!(log_ticks((80.0, 3000.0)), [100.0, 200.0, 500.0, 1000.0, 2000.0]);
        assert_eq!(log_ticks((80.0, 90_000.0)), [100.0, 1000.0, 10_000.0]);
    }

    proptest! {
        #[test]
        fn ticks_stay_in_their_domain(low in -1e6..1e6, span in 1e-6..1e6, most in 2.0..12.0) {
            let ticks = ticks((low, low + span), most);
            prop_assert!(ticks.len() <= most as usize + 1);
            prop_assert!(ticks.iter().all(|tick| (low - span * 1e-3..=low + span * 1.001).contains(tick)));
        }
    }
}
