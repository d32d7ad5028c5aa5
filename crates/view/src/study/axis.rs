//! From values to pixels, with round ticks.

use lemon_eval::report::words::{NONE, number};

/// A linear axis.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    domain: [f64; 2],
    pixels: [f64; 2],
}

impl Axis {
    /// One that shows all of these values, with a little room beyond; never without an extent. What is not finite has no
    /// place on it.
    pub fn around(values: impl IntoIterator<Item = f64>, pixels: [f64; 2]) -> Axis {
        let Axis { domain: [low, high], .. } = Axis::exactly(values, pixels);
        let room = 0.06 * (high - low);
        Axis { domain: [low - room, high + room], pixels }
    }

    /// One from the smallest to the largest.
    pub fn exactly(values: impl IntoIterator<Item = f64>, pixels: [f64; 2]) -> Axis {
        let values = values.into_iter().filter(|value| value.is_finite());
        let (low, high) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let domain = match high - low {
            extent if extent > 1e-9 * high.abs().max(low.abs()) => [low, high],
            _ if low <= high => [low - low.abs().max(1.0) * 0.05, high + high.abs().max(1.0) * 0.05],
            _ => [0.0, 1.0],
        };
        Axis { domain, pixels }
    }

    /// The pixel of a value; one beyond the axis is at its end.
    pub fn at(&self, value: f64) -> f64 {
        let ([low, high], [from, to]) = (self.domain, self.pixels);
        let share = ((value - low) / (high - low)).clamp(0.0, 1.0);
        // Values so large that their extent is infinite have no share.
        from + (to - from) * if share.is_finite() { share } else { 0.5 }
    }

    /// Round values on it and how they are written: multiples of 1, 2 or 5 times a power of ten.
    pub fn ticks(&self, most: f64) -> Vec<(f64, String)> {
        let [low, high] = self.domain;
        let extent = high - low;
        if !(extent > 0.0 && extent.is_finite()) {
            return Vec::new();
        }
        let power = 10_f64.powf((extent / most).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
        let step = steps.into_iter().find(|step| extent / step <= most).unwrap_or(extent);
        let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
        let places = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        let multiples = (0..=most as usize).map(|tick| first + tick as f64).take_while(|tick| *tick <= last);
        multiples.map(|tick| tick * step).map(|tick| (tick, written(tick, places))).collect()
    }
}

/// A value of an axis with steps of so many places.
fn written(value: f64, places: usize) -> String {
    if value.abs() >= 10_000.0 {
        return large(value);
    }
    // Adding zero makes −0 one without a sign.
    let digits = format!("{:.places$}", (value + 0.0).abs());
    if value < 0.0 && digits.contains(|char: char| ('1'..='9').contains(&char)) {
        format!("−{digits}")
    } else {
        digits
    }
}

/// A large number in short: `12.5 M`, `340 k`.
pub fn large(value: f64) -> String {
    let short = |value: f64, unit: &str| {
        let digits = format!("{value:.1}");
        format!("{} {unit}", digits.trim_end_matches(".0"))
    };
    match value.abs() {
        size if !size.is_finite() => NONE.to_owned(),
        size if size >= 999_950_000.0 => short(value / 1e9, "G"),
        size if size >= 999_950.0 => short(value / 1e6, "M"),
        size if size >= 10_000.0 => short(value / 1e3, "k"),
        _ => number(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round() {
        let check = |values: [f64; 2], most, expected: &[&str]| {
            let ticks = Axis::exactly(values, [0.0, 100.0]).ticks(most);
            assert_eq!(ticks.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), expected);
        };
        check([-0.021, 0.034], 6.0, &["−0.02", "−0.01", "0.00", "0.01", "0.02", "0.03"]);
        check([0.0, 1.0], 6.0, &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        check([0.0, 20.4e6], 5.0, &["0", "5 M", "10 M", "15 M", "20 M"]);
        check([0.0, 3_000.0], 4.0, &["0", "1000", "2000", "3000"]);
        check([f64::MIN, f64::MAX], 4.0, &[]);
    }

    #[test]
    fn large_numbers_are_short() {
        let check = |value, expected: &str| assert_eq!(large(value), expected);
        check(0.0, "0");
        check(9_999.0, "9,999");
        check(12_340.0, "12.3 k");
        check(999_960.0, "1 M");
        check(2.5e9, "2.5 G");
        check(f64::NAN, "–");
    }

    proptest! {
        #[test]
        fn every_value_has_a_pixel(values in prop::collection::vec(prop::num::f64::ANY, 0..6), value: f64) {
            for axis in [Axis::exactly(values.clone(), [10.0, 90.0]), Axis::around(values, [10.0, 90.0])] {
                prop_assert!((10.0..=90.0).contains(&axis.at(value)));
                prop_assert!(axis.ticks(6.0).len() <= 7);
            }
        }
    }
}
