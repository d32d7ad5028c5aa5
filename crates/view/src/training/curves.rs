//! How the run went, as small charts: first what the teams came to, then what happened to the policy.

use super::chart::{Chart, Curve, Style, smooth, written};
use super::scale::Unit;
use crate::train::metrics::{Means, Metrics};
use std::fmt::Write;

const ANY: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);
const POSITIVE: (f64, f64) = (0.0, f64::INFINITY);
const SHARE: (f64, f64) = (0.0, 1.0);

/// Something that rollouts and looks both have.
struct Outcome {
    name: &'static str,
    unit: Unit,
    bounds: (f64, f64),
    of: fn(&Means) -> f64,
}

const OUTCOMES: [Outcome; 6] = [
    Outcome { name: "Reward", unit: Unit::Plain, bounds: ANY, of: |means| means.reward },
    Outcome { name: "Right answers", unit: Unit::Percent, bounds: SHARE, of: |means| means.success },
    Outcome { name: "Tokens per run", unit: Unit::Plain, bounds: POSITIVE, of: |means| means.tokens },
    Outcome { name: "Valid specifications", unit: Unit::Percent, bounds: SHARE, of: |means| means.valid },
    Outcome { name: "Agents per run", unit: Unit::Plain, bounds: POSITIVE, of: |means| means.agents },
    Outcome { name: "Runs with a second round", unit: Unit::Percent, bounds: SHARE, of: |means| means.review },
];

/// Something that only a step has.
struct Inner {
    name: &'static str,
    unit: Unit,
    bounds: (f64, f64),
    of: fn(&Metrics) -> f64,
}

const INNER: [Inner; 6] = [
    Inner { name: "Entropy, nats", unit: Unit::Plain, bounds: POSITIVE, of: |it| it.entropy },
    Inner { name: DIVERGENCE, unit: Unit::Plain, bounds: ANY, of: |it| it.kl_old },
    Inner { name: "Gradient norm", unit: Unit::Plain, bounds: POSITIVE, of: |it| it.gradient_norm },
    Inner { name: "Clipped tokens", unit: Unit::Percent, bounds: SHARE, of: |it| it.clipped },
    Inner { name: "Loss", unit: Unit::Plain, bounds: ANY, of: |it| it.loss },
    Inner { name: LEARNING_RATE, unit: Unit::Plain, bounds: POSITIVE, of: |it| it.learning_rate },
];
const DIVERGENCE: &str = "Divergence, nats";
const LEARNING_RATE: &str = "Learning rate";

/// What the teams came to.
pub(super) fn outcomes(metrics: &[Metrics], steps: (f64, f64)) -> String {
    let mut html = String::from("<div class=\"charts\">\n");
    for outcome in &OUTCOMES {
        let Outcome { name, unit, bounds, of } = *outcome;
        let rollouts: Vec<_> = taken(metrics).map(|it| (it.step as f64, of(&it.rollouts))).collect();
        let looks: Vec<_> = metrics.iter().filter_map(|it| Some((it.step as f64, of(&it.look?)))).collect();
        let last = looks.last().or(rollouts.last()).map_or(f64::NAN, |(_, value)| *value);
        let mut curves = smooth(rollouts, Style::Main);
        curves.push(Curve { style: Style::Looks, points: looks });
        figure(&mut html, name, &written(last, unit), &chart(name, unit, bounds, curves).svg(steps));
    }
    html.push_str(
        "</div>\n<p class=\"hint\"><i class=\"dot\"></i> held-out tasks, and the number beside each title; \
         <i class=\"main\"></i> training runs, smoothed; <i class=\"faint\"></i> training runs of each step. Horizontal axis: \
         steps.</p>\n",
    );
    html
}

/// What happened to the policy.
pub(super) fn inner(metrics: &[Metrics], steps: (f64, f64)) -> String {
    // A step that was left out did nothing to the policy.
    let points = |of: fn(&Metrics) -> f64| -> Vec<(f64, f64)> {
        taken(metrics).map(|it| (it.step as f64, if it.skipped { f64::NAN } else { of(it) })).collect()
    };
    let mut html = String::from("<div class=\"charts\">\n");
    for inner in &INNER {
        let Inner { name, unit, bounds, of } = *inner;
        let mut curves = match name {
            // It has no noise.
            LEARNING_RATE => vec![Curve { style: Style::Main, points: points(of) }],
            _ => smooth(points(of), Style::Main),
        };
        let last = curves.last().and_then(|curve| curve.points.last());
        let mut value = written(last.map_or(f64::NAN, |(_, value)| *value), unit);
        // A divergence that is always nothing is one that nobody measured.
        if name == DIVERGENCE && metrics.iter().any(|it| it.kl_reference != 0.0) {
            curves.push(Curve { style: Style::Second, points: points(|it| it.kl_reference) });
            value = "<i class=\"main\"></i> in a step <i class=\"second\"></i> since the start".to_owned();
        }
        figure(&mut html, name, &value, &chart(name, unit, bounds, curves).svg(steps));
    }
    html.push_str("</div>\n");
    html
}

/// Those that are steps: before the first there is a look.
fn taken(metrics: &[Metrics]) -> impl Iterator<Item = &Metrics> {
    metrics.iter().filter(|it| it.rollouts.runs > 0)
}

fn chart(name: &str, unit: Unit, bounds: (f64, f64), curves: Vec<Curve>) -> Chart {
    let about = format!("{name} over steps");
    Chart { about, high: 190.0, unit, bounds, is_log: false, shown: Vec::new(), rule: None, curves }
}

/// `value` is markup.
pub(super) fn figure(html: &mut String, name: &str, value: &str, pictures: &str) {
    let _ = writeln!(html, "<figure><figcaption>{name} <span>{value}</span></figcaption>{pictures}</figure>");
}
