//! Accuracy against tokens: a point for each method with its intervals, and the front as a stair.

use super::MethodPoint;
use super::labels::{Obstacle, place};
use crate::frame::{Frame, labels};
use crate::markup::Markup;
use crate::measure::{fit, width};
use crate::scale::Scale;
use crate::svg::{Anchor, Element, Path, circle, line, picture, text};
use crate::words::{number, percent, percent_range};

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
pub(super) fn scatter(methods: &[MethodPoint], class: &str, wide: f64, high: f64) -> Markup {
    let methods: Vec<&MethodPoint> =
        methods.iter().filter(|method| method.tokens.is_finite() && method.accuracy.is_finite()).collect();
    let plot = Frame { left: LEFT, top: TOP, right: wide - RIGHT, bottom: high - BOTTOM };
    let x = tokens(&methods, (plot.left, plot.right));
    let y = accuracy(&methods, (plot.bottom, plot.top));
    let marks: Vec<Mark> = methods.iter().map(|method| Mark::new(method, &x, &y)).collect();
    let label = "Accuracy against mean tokens per run; the numbers are in the table above";
    let stair = stair(&marks, plot.right);
    let stair_line = Path::through(stair.iter().copied()).map(|path| path.element("stair"));
    picture(&format!("chart {class}"), (wide, high), label)
        .child(axes(&x, &y, &plot))
        .child(stair_line.into_iter().collect::<Markup>())
        .child(marks.iter().flat_map(Mark::whiskers).collect::<Markup>())
        .child(names(&marks, &stair, &plot))
        .child(marks.iter().map(Mark::point).collect::<Markup>())
        .into()
}

fn tokens(methods: &[&MethodPoint], pixels: (f64, f64)) -> Scale {
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
        return Scale::log((low / 1.15, high * 1.15), pixels);
    }
    let margin = ((high - low) * 0.08).max(high * 0.02).max(0.5);
    Scale::linear(((low - margin).max(0.0), high + margin), pixels)
}

fn accuracy(methods: &[&MethodPoint], pixels: (f64, f64)) -> Scale {
    let ends = methods.iter().flat_map(|method| [method.accuracy, method.interval[0], method.interval[1]]);
    let ends: Vec<f64> = ends.filter(|share| share.is_finite()).map(|share| share.clamp(0.0, 1.0)).collect();
    let low = ends.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ends.iter().copied().fold(0.0, f64::max);
    let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
    let margin = ((high - low) * 0.06).max(0.02);
    Scale::linear(((low - margin).max(0.0), (high + margin).min(1.0)), pixels)
}

/// A method on the picture.
struct Mark<'a> {
    method: &'a MethodPoint,
    x: f64,
    y: f64,
    /// Pixels of the interval of tokens.
    across: (f64, f64),
    /// Pixels of the interval of accuracy.
    down: (f64, f64),
}

impl<'a> Mark<'a> {
    fn new(method: &'a MethodPoint, x: &Scale, y: &Scale) -> Mark<'a> {
        // An interval that is no number shrinks to its point.
        let ends = |axis: &Scale, interval: [f64; 2], middle: f64| {
            let [low, high] = interval.map(|end| axis.at(if end.is_finite() { end } else { middle }));
            (low.min(high), low.max(high))
        };
        let across = ends(x, method.tokens_interval, method.tokens);
        let down = ends(y, method.interval, method.accuracy);
        Mark { method, x: x.at(method.tokens), y: y.at(method.accuracy), across, down }
    }

    fn whiskers(&self) -> [Element; 2] {
        let class = if self.method.on_front { "whisker front" } else { "whisker" };
        let upright = Path::whisker(self.down, self.x, true);
        [upright, Path::whisker(self.across, self.y, false)].map(|path| path.element(class))
    }

    fn point(&self) -> Element {
        let class = if self.method.on_front { "point front" } else { "point" };
        let method = self.method;
        let [low, high] = method.tokens_interval;
        circle(class, (self.x, self.y), 5.0).title(&format!(
            "{}: {} ({}), {} tokens ({}–{})",
            method.name,
            percent(method.accuracy),
            percent_range(method.interval),
            number(method.tokens),
            number(low),
            number(high)
        ))
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

fn axes(x: &Scale, y: &Scale, plot: &Frame) -> Markup {
    let scale = if x.is_log() { ", logarithmic" } else { "" };
    let most = ((plot.right - plot.left) / 90.0).max(2.0);
    let rows = plot.rows(&labels(y.ticks(6.0), |share, _| format!("{:.0} %", share * 100.0)));
    let axis =
        plot.axis(&labels(x.ticks(if x.is_log() { most.max(8.0) } else { most }), |tokens, _| number(tokens)), RIGHT);
    let name = format!("mean tokens per run{scale}");
    [rows, axis, text("tick", (plot.right, plot.bottom + 37.0), Anchor::End, &name).into()].into_iter().collect()
}

fn names(marks: &[Mark], stair: &[(f64, f64)], plot: &Frame) -> Markup {
    // Only a name wider than the whole picture is cut.
    let longest = (plot.right - plot.left) / 1.1;
    let names: Vec<String> = marks.iter().map(|mark| fit(&mark.method.name, longest, FONT)).collect();
    // Names on the front are bold.
    let font = |mark: &Mark| if mark.method.on_front { FONT * 1.1 } else { FONT };
    let sizes: Vec<(f64, f64)> =
        marks.iter().zip(&names).map(|(mark, name)| (width(name, font(mark)), FONT + 3.0)).collect();
    let points: Vec<(f64, f64)> = marks.iter().map(|mark| (mark.x, mark.y)).collect();
    let places = place(&points, &sizes, &obstacles(marks, stair), plot);
    let mut drawn = Markup::default();
    for ((mark, name), area) in marks.iter().zip(&names).zip(places) {
        // Where there is no room, the point has its name as a tip, and the table has all.
        let Some(area) = area else { continue };
        let middle = (area.left + area.right) / 2.0;
        let near = (mark.x.clamp(area.left, area.right), mark.y.clamp(area.top, area.bottom));
        if (near.0 - mark.x).hypot(near.1 - mark.y) > LEADER_FROM {
            drawn.push(line("leader", (mark.x, mark.y), near));
        }
        let class = if mark.method.on_front { "name front" } else { "name" };
        drawn.push(text(class, (middle, area.bottom - 4.0), Anchor::Middle, name));
    }
    drawn
}

/// What names had better not cover: points above all, then whiskers, then the stair.
fn obstacles(marks: &[Mark], stair: &[(f64, f64)]) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    for mark in marks {
        let Mark { x, y, across, down, .. } = *mark;
        obstacles.push(Obstacle { area: Frame::about((x, y), 12.0, 12.0), weight: 200.0 });
        let upright = Frame { left: x - 2.0, top: down.0, right: x + 2.0, bottom: down.1 };
        let level = Frame { left: across.0, top: y - 2.0, right: across.1, bottom: y + 2.0 };
        obstacles.extend([upright, level].map(|area| Obstacle { area, weight: 30.0 }));
    }
    for ((x, y), (next_x, next_y)) in stair.iter().zip(stair.iter().skip(1)) {
        let area = Frame {
            left: x.min(*next_x) - 1.0,
            top: y.min(*next_y) - 1.0,
            right: x.max(*next_x) + 1.0,
            bottom: y.max(*next_y) + 1.0,
        };
        obstacles.push(Obstacle { area, weight: 12.0 });
    }
    obstacles
}
