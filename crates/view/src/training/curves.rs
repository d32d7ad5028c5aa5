//! How the run went, as small charts: first what the teams came to, then what happened to the policy.

use super::chart::{Chart, Curve, Figure, Style, Unit, smooth, written};
use super::{RunMeans, StepPoint};

const ANY: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);
const POSITIVE: (f64, f64) = (0.0, f64::INFINITY);
const SHARE: (f64, f64) = (0.0, 1.0);

/// Something that rollouts and held-out evaluations both have.
struct Outcome {
    name: &'static str,
    unit: Unit,
    bounds: (f64, f64),
    of: fn(&RunMeans) -> f64,
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
    of: fn(&StepPoint) -> f64,
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
pub(super) fn outcomes(all: &[StepPoint], steps: (f64, f64)) -> Vec<Figure> {
    let figure = |outcome: &Outcome| {
        let Outcome { name, unit, bounds, of } = *outcome;
        let rollouts: Vec<_> = taken(all).map(|it| (it.step as f64, of(&it.rollouts))).collect();
        let held_out: Vec<_> = all.iter().filter_map(|it| Some((it.step as f64, of(&it.held_out?)))).collect();
        let last = held_out.last().or(rollouts.last()).map_or(f64::NAN, |(_, value)| *value);
        let mut curves = smooth(rollouts, Style::Main);
        curves.push(Curve { style: Style::HeldOut, points: held_out });
        let pictures = vec![chart(name, unit, bounds, curves).svg(steps)];
        Figure { name, value: written(last, unit), has_two_curves: false, pictures }
    };
    OUTCOMES.iter().map(figure).collect()
}

/// What the teams of two trainings came to, one over the other. The number beside a title is that of the last step of each.
pub(super) fn both(all: [&[StepPoint]; 2], steps: (f64, f64)) -> Vec<Figure> {
    let figure = |outcome: &Outcome| {
        let Outcome { name, unit, bounds, of } = *outcome;
        let curve = |(all, style): (&[StepPoint], Style)| {
            let points = taken(all).map(|it| (it.step as f64, of(&it.rollouts))).collect();
            // The smooth one lies over that of each step.
            smooth(points, style).pop()
        };
        let curves: Vec<Curve> = all.into_iter().zip([Style::Main, Style::Second]).filter_map(curve).collect();
        let last = |all: &[StepPoint]| written(taken(all).last().map_or(f64::NAN, |it| of(&it.rollouts)), unit);
        let value = all.map(last).join(" / ");
        Figure { name, value, has_two_curves: false, pictures: vec![chart(name, unit, bounds, curves).svg(steps)] }
    };
    OUTCOMES.iter().map(figure).collect()
}

/// What happened to the policy.
pub(super) fn policy(all: &[StepPoint], steps: (f64, f64)) -> Vec<Figure> {
    // A step that was left out did nothing to the policy.
    let points = |of: fn(&StepPoint) -> f64| -> Vec<(f64, f64)> {
        taken(all).map(|it| (it.step as f64, if it.skipped { f64::NAN } else { of(it) })).collect()
    };
    let figure = |inner: &Inner| {
        let Inner { name, unit, bounds, of } = *inner;
        let mut curves = match name {
            // It has no noise.
            LEARNING_RATE => vec![Curve { style: Style::Main, points: points(of) }],
            _ => smooth(points(of), Style::Main),
        };
        let last = curves.last().and_then(|curve| curve.points.last());
        let value = written(last.map_or(f64::NAN, |(_, value)| *value), unit);
        // A divergence that is always zero was not measured.
        let has_two_curves = name == DIVERGENCE && all.iter().any(|it| it.kl_reference != 0.0);
        if has_two_curves {
            curves.push(Curve { style: Style::Second, points: points(|it| it.kl_reference) });
        }
        let pictures = vec![chart(name, unit, bounds, curves).svg(steps)];
        Figure { name, value, has_two_curves, pictures }
    };
    INNER.iter().map(figure).collect()
}

/// Those that are steps: before the first there is a held-out evaluation.
fn taken(all: &[StepPoint]) -> impl Iterator<Item = &StepPoint> {
    all.iter().filter(|it| it.rollouts.runs > 0)
}

fn chart(name: &str, unit: Unit, bounds: (f64, f64), curves: Vec<Curve>) -> Chart {
    let about = format!("{name} over steps");
    Chart { about, high: 190.0, unit, bounds, is_log: false, shown: Vec::new(), rule: None, curves }
}
