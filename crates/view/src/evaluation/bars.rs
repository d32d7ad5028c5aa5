//! The methods on one set: a bar each, with its interval and a mark for the legacy rule.

use super::MethodPoint;
use crate::frame::{Frame, Label};
use crate::markup::Markup;
use crate::measure::{fit, width};
use crate::scale::Scale;
use crate::svg::{Anchor, Path, element, picture, rect, text};
use crate::words::{percent, percent_range};

const WIDTH: f64 = 360.0;
const ROW: f64 = 26.0;
const BAR: f64 = 13.0;
const TOP: f64 = 8.0;
const AXIS: f64 = 24.0;
const FONT: f64 = 12.0;
/// Room for the number at the right.
const NUMBER: f64 = 62.0;
/// Longer names stand above their bars.
const LONGEST_NAME: f64 = 120.0;
/// Room for a name above its bar.
const ABOVE: f64 = 16.0;

/// The picture, as an element of a page that defines the colours.
pub(super) fn bars(set: &str, methods: &[MethodPoint]) -> Markup {
    // Names on the front are bold: in some fonts a fifth wider.
    let longest = methods.iter().map(|method| width(&method.name, FONT * 1.25)).fold(0.0, f64::max);
    let (left, above) = if longest <= LONGEST_NAME { (longest + 10.0, 0.0) } else { (2.0, ABOVE) };
    let row = ROW + above;
    let bottom = TOP + row * methods.len() as f64;
    let plot = Frame { left, top: TOP, right: WIDTH - NUMBER, bottom };
    let scale = Scale::linear((0.0, 1.0), (plot.left, plot.right));
    let quarter = |share| Label { at: scale.at(share), text: format!("{:.0}", share * 100.0) };
    let label = format!("Accuracy on {set}; the numbers stand beside the bars");
    let mut svg = picture("chart bars", (WIDTH, bottom + AXIS), &label)
        .child(plot.columns(&[0.0, 0.25, 0.5, 0.75, 1.0].map(quarter)));
    for (place, method) in methods.iter().enumerate() {
        let y = TOP + row * place as f64 + above + ROW / 2.0;
        let name = match above {
            0.0 => ((left - 8.0, y + 4.0), Anchor::End),
            _ => ((left, y - ROW / 2.0 + 1.0), Anchor::Start),
        };
        svg = svg.child(draw_row(method, name, y, left, &scale));
    }
    svg.into()
}

/// `name`: where the name begins or ends, and which of the two.
fn draw_row(method: &MethodPoint, name: ((f64, f64), Anchor), y: f64, left: f64, scale: &Scale) -> Markup {
    let class = |class: &str| if method.on_front { format!("{class} front") } else { class.to_owned() };
    let tip = format!(
        "{}: {} ({}); legacy {} ({})",
        method.name,
        percent(method.accuracy),
        percent_range(method.interval),
        percent(method.legacy_accuracy),
        percent_range(method.legacy_interval),
    );
    let shown = fit(&method.name, WIDTH - 4.0, FONT * 1.08);
    let mut row = element("g").title(&tip).child(text(&class("name"), name.0, name.1, &shown));
    if method.accuracy.is_finite() {
        let long = scale.at(method.accuracy) - left;
        row = row.child(rect(&class("bar"), (left, y - BAR / 2.0), (long, BAR)));
    }
    if method.interval.iter().all(|end| end.is_finite()) {
        let [low, high] = method.interval.map(|end| scale.at(end));
        row = row.child(Path::whisker((low, high), y, false).element("whisker over"));
    }
    if method.legacy_accuracy.is_finite() {
        let x = scale.at(method.legacy_accuracy);
        let rhombus = Path::from((x, y - 4.5)).line((x + 4.5, y)).line((x, y + 4.5)).line((x - 4.5, y)).close();
        row = row.child(rhombus.element("legacy"));
    }
    row.child(text(&class("name"), (WIDTH, y + 4.0), Anchor::End, &percent(method.accuracy))).into()
}
