//! From values to pixels, with round ticks.

use lemon_eval::report::words::{NONE, number};

/// An axis.
pub(super) struct Scale {
    /// Lowest and highest value.
    domain: (f64, f64),
    /// Their pixels.
    pixels: (f64, f64),
    is_log: bool,
    pub(super) ticks: Vec<f64>,
}

/// How the values of an axis are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Plain,
    Percent,
}

impl Scale {
    /// An axis of steps.
    pub(super) fn steps((first, last): (f64, f64), pixels: (f64, f64)) -> Scale {
        // A step alone stands in the middle.
        let domain = if last > first { (first, last) } else { (first - 1.0, first + 1.0) };
        let ticks = ticks(domain, 4.0).into_iter().filter(|tick| tick.fract() == 0.0).collect();
        Scale { domain, pixels, is_log: false, ticks }
    }

    /// An axis that shows these values with a margin, and nothing outside `bounds`.
    pub(super) fn linear(values: impl Iterator<Item = f64>, bounds: (f64, f64), pixels: (f64, f64)) -> Option<Scale> {
        let (low, high) = extent(values, bounds)?;
        let size = low.abs().max(high.abs());
        // All the same: a span of its own, so that nothing looks like a change. Nearly the same: not all of the room for it.
        let margin = match high - low {
            0.0 if size == 0.0 => 0.5,
            0.0 => size * 0.25,
            span => (span * 0.06).max(size * 0.02),
        };
        let domain = ((low - margin).max(bounds.0), (high + margin).min(bounds.1));
        let most = ((pixels.0 - pixels.1).abs() / 24.0).clamp(2.0, 8.0);
        Some(Scale { domain, pixels, is_log: false, ticks: ticks(domain, most) })
    }

    /// A logarithmic axis of positive bounds that shows these values and 1; what lies outside the bounds stays at its edge.
    pub(super) fn log(values: impl Iterator<Item = f64>, bounds: (f64, f64), pixels: (f64, f64)) -> Option<Scale> {
        let (low, high) = extent(values, bounds)?;
        let domain = (low.min(1.0) / 1.3, high.max(1.0) * 1.3);
        Some(Scale { domain, pixels, is_log: true, ticks: log_ticks(domain) })
    }

    /// The pixel of a value. A value outside is drawn at the edge.
    pub(super) fn at(&self, value: f64) -> f64 {
        let scale = |x: f64| if self.is_log { x.max(f64::MIN_POSITIVE).ln() } else { x };
        let (low, high) = (scale(self.domain.0), scale(self.domain.1));
        let share = ((scale(value) - low) / (high - low)).clamp(0.0, 1.0);
        let (from, to) = self.pixels;
        // Values so large that their span is infinite.
        from + (to - from) * if share.is_finite() { share } else { 0.5 }
    }

    /// A tick as it is written.
    pub(super) fn label(&self, tick: f64, unit: Unit) -> String {
        let gaps = self.ticks.iter().zip(self.ticks.iter().skip(1)).map(|(a, b)| b - a);
        let step = gaps.fold(f64::INFINITY, f64::min);
        let step = if self.is_log || !step.is_finite() { tick.abs() } else { step };
        match unit {
            Unit::Plain => plain(tick, step),
            Unit::Percent => format!("{} %", plain(tick * 100.0, step * 100.0)),
        }
    }
}

/// The least and the greatest of the finite ones.
fn extent(values: impl Iterator<Item = f64>, bounds: (f64, f64)) -> Option<(f64, f64)> {
    let join = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
    let shown = values.filter(|value| value.is_finite()).map(|value| value.max(bounds.0).min(bounds.1));
    shown.fold(None, |extent, value| Some(join(extent.unwrap_or((value, value)), value)))
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
    // At most `most` steps fit, by their choice, whatever rounding does to the first and the last.
    let all = (0..=most as usize).map(|tick| first + tick as f64).take_while(|tick| *tick <= last);
    // Not -0.
    all.map(|tick| tick * step + 0.0).collect()
}

/// Powers of ten; over few of them also halves, over many only some.
fn log_ticks((low, high): (f64, f64)) -> Vec<f64> {
    let powers = (low.log10().ceil() as i32)..=(high.log10().floor() as i32);
    let every = powers.clone().count().div_ceil(4);
    let is_shown = |power: &i32| power.rem_euclid(every.max(1) as i32) == 0;
    let factors: &[f64] = if powers.clone().count() < 2 { &[0.2, 0.5, 1.0, 2.0, 5.0] } else { &[1.0] };
    let all = powers.filter(is_shown).flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
    all.filter(|tick| (low..=high).contains(tick)).collect()
}

/// A value with as many places as tell it from one that is `step` away.
fn plain(value: f64, step: f64) -> String {
    // A step of 0.01 times 100 is not quite 1.
    let power = |x: f64| (x.abs().log10() + 1e-9).floor();
    let places = -power(step).min(0.0);
    match value.abs() {
        _ if !value.is_finite() => NONE.to_owned(),
        0.0 => "0".to_owned(),
        x if places > 4.0 || x >= 1e9 => {
            let digits = (power(x) - power(step)).clamp(0.0, 6.0) as usize;
            signed(value, &format!("{x:.digits$e}"))
        }
        x if x >= 1e6 && step >= 1e5 => signed(value, &format!("{}M", (x / 1e5).round() / 10.0)),
        x if x >= 1e4 && step >= 1e2 => signed(value, &format!("{}k", (x / 1e2).round() / 10.0)),
        x if x >= 1e3 && places == 0.0 => signed(value, &number(x)),
        x => {
            let places = places.clamp(0.0, 6.0) as usize;
            signed(value, &format!("{x:.places$}"))
        }
    }
}

fn signed(value: f64, digits: &str) -> String {
    format!("{}{digits}", if value < 0.0 { "−" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANY: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

    fn labels(scale: &Scale, unit: Unit) -> String {
        scale.ticks.iter().map(|tick| scale.label(*tick, unit)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ticks_are_round_and_written_as_short_as_can_be() {
        let check = |values: &[f64], bounds, unit, expected: &str| {
            let scale = Scale::linear(values.iter().copied(), bounds, (160.0, 0.0)).unwrap();
            assert_eq!(labels(&scale, unit), expected, "{values:?}");
        };
        let (plain, percent, share) = (Unit::Plain, Unit::Percent, (0.0, 1.0));
        check(&[0.43, 0.91], ANY, plain, "0.5 0.6 0.7 0.8 0.9");
        check(&[0.43, 0.91], share, percent, "50 % 60 % 70 % 80 % 90 %");
        check(&[0.951, 0.958], share, percent, "94 % 95 % 96 % 97 %");
        check(&[130.0, 1900.0], ANY, plain, "500 1,000 1,500 2,000");
        check(&[12_000.0, 61_000.0], ANY, plain, "10k 20k 30k 40k 50k 60k");
        check(&[1.2e6, 3.4e6], ANY, plain, "1.5M 2M 2.5M 3M 3.5M");
        check(&[10_150.0, 10_151.0], ANY, plain, "10k 10.1k 10.2k 10.3k");
        check(&[1e-5, 1e-4], ANY, plain, "2e-5 4e-5 6e-5 8e-5 1.0e-4");
        check(&[-0.3, 0.4], ANY, plain, "−0.2 0 0.2 0.4");
        check(&[1e12, 3e12], ANY, plain, "1.0e12 1.5e12 2.0e12 2.5e12 3.0e12");
        // One value, or always the same.
        check(&[0.5], ANY, plain, "0.40 0.45 0.50 0.55 0.60");
        check(&[1.0; 9], share, percent, "75 % 80 % 85 % 90 % 95 % 100 %");
        check(&[0.0, 0.0], share, percent, "0 % 10 % 20 % 30 % 40 % 50 %");
        check(&[0.0], ANY, plain, "−0.4 −0.2 0 0.2 0.4");
        // What is no number has no place.
        check(&[f64::NAN, 0.2, f64::INFINITY, 0.8], ANY, plain, "0.2 0.4 0.6 0.8");
        for none in [&[][..], &[f64::NAN], &[f64::INFINITY, f64::NEG_INFINITY]] {
            assert!(Scale::linear(none.iter().copied(), ANY, (160.0, 0.0)).is_none());
            assert!(Scale::log(none.iter().copied(), (1e-3, 1e3), (160.0, 0.0)).is_none());
        }
    }

    #[test]
    fn logarithmic_ticks() {
        let check = |values: &[f64], expected: &str| {
            let scale = Scale::log(values.iter().copied(), (1e-3, 1e3), (60.0, 0.0)).unwrap();
            assert_eq!(labels(&scale, Unit::Plain), expected, "{values:?}");
        };
        check(&[1.0], "1");
        check(&[0.3, 4.0], "0.5 1 2 5");
        check(&[0.02, 7.0], "0.1 1");
        check(&[0.02, 70.0], "0.1 1 10");
        check(&[-1.0, 1e9], "0.01 1 100");
    }

    #[test]
    fn steps() {
        let check = |ends, expected: &str, middle: f64| {
            let scale = Scale::steps(ends, (0.0, 100.0));
            assert_eq!(labels(&scale, Unit::Plain), expected);
            assert_eq!(scale.at(middle), 50.0);
        };
        check((0.0, 200.0), "0 50 100 150 200", 100.0);
        check((1.0, 3.0), "1 2 3", 2.0);
        check((0.0, 0.0), "−1 0 1", 0.0);
        check((0.0, 20_000.0), "0 5,000 10k 15k 20k", 10_000.0);
    }

    #[test]
    fn what_lies_outside_is_drawn_at_the_edge() {
        let scale = Scale::linear([0.0, 1.0].into_iter(), (0.0, 1.0), (160.0, 0.0)).unwrap();
        let check = |value, expected| assert_eq!(scale.at(value), expected, "{value}");
        check(0.0, 160.0);
        check(0.25, 120.0);
        check(7.0, 0.0);
        check(f64::NEG_INFINITY, 160.0);
        check(f64::NAN, 80.0);
    }

    proptest! {
        #[test]
        fn every_value_has_a_pixel(values in prop::collection::vec(any::<f64>(), 1..8), value: f64) {
            let scales = [
                Scale::linear(values.iter().copied(), ANY, (160.0, 0.0)),
                Scale::linear(values.iter().copied(), (0.0, 1.0), (160.0, 0.0)),
                Scale::log(values.iter().copied(), (1e-3, 1e3), (160.0, 0.0)),
            ];
            for scale in scales.into_iter().flatten() {
                prop_assert!((0.0..=160.0).contains(&scale.at(value)));
                prop_assert!(scale.ticks.len() <= 9, "{:?}", scale.ticks);
                for tick in &scale.ticks {
                    prop_assert!(scale.label(*tick, Unit::Plain).len() < 20);
                }
            }
        }

        #[test]
        fn ticks_stay_in_their_domain(low in -1e6..1e6, span in 1e-6..1e6, most in 2.0..8.0) {
            let ticks = ticks((low, low + span), most);
            prop_assert!(ticks.len() <= most as usize + 1);
            prop_assert!(ticks.iter().all(|tick| (low - span * 1e-3..=low + span * 1.001).contains(tick)));
        }

        #[test]
        fn no_two_ticks_are_written_alike(low in 0.0..1e5, span in 1e-3..1e5) {
            let scale = Scale::linear([low, low + span].into_iter(), ANY, (160.0, 0.0)).unwrap();
            let mut labels: Vec<String> = scale.ticks.iter().map(|tick| scale.label(*tick, Unit::Plain)).collect();
            let count = labels.len();
            labels.dedup();
            prop_assert_eq!(labels.len(), count);
        }
    }
}
