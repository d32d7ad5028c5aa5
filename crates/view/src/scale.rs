//! From values to pixels, with round ticks: the axis of every chart.

use crate::words::{NONE, number};

/// An axis: linear or logarithmic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Lowest and highest value.
    domain: (f64, f64),
    /// Their pixels.
    pixels: (f64, f64),
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Linear,
    /// Linear, with ticks at whole numbers only.
    Whole,
    Log,
}

/// A round value on a scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tick {
    pub value: f64,
    /// Its pixel.
    pub at: f64,
    /// How far the next one is.
    pub step: f64,
}

impl Scale {
    /// A linear scale.
    pub fn linear(domain: (f64, f64), pixels: (f64, f64)) -> Scale {
        Scale { domain, pixels, kind: Kind::Linear }
    }

    /// A logarithmic scale; its domain is positive.
    pub fn log(domain: (f64, f64), pixels: (f64, f64)) -> Scale {
        Scale { domain, pixels, kind: Kind::Log }
    }

    /// From the smallest to the largest of these values; never without an extent. What is not finite has no place on it.
    pub fn exactly(values: impl IntoIterator<Item = f64>, pixels: (f64, f64)) -> Scale {
        let domain = match extent(values, (f64::NEG_INFINITY, f64::INFINITY)) {
            None => (0.0, 1.0),
            Some((low, high)) if high - low > 1e-9 * high.abs().max(low.abs()) => (low, high),
            Some((low, high)) => (low - low.abs().max(1.0) * 0.05, high + high.abs().max(1.0) * 0.05),
        };
        Scale::linear(domain, pixels)
    }

    /// All of these values, with a little room beyond.
    pub fn around(values: impl IntoIterator<Item = f64>, pixels: (f64, f64)) -> Scale {
        let Scale { domain: (low, high), .. } = Scale::exactly(values, pixels);
        let room = 0.06 * (high - low);
        Scale::linear((low - room, high + room), pixels)
    }

    /// These values with a margin, and nothing outside of `bounds`. `None` without a finite value.
    pub fn within(values: impl IntoIterator<Item = f64>, bounds: (f64, f64), pixels: (f64, f64)) -> Option<Scale> {
        let (low, high) = extent(values, bounds)?;
        let size = low.abs().max(high.abs());
        // All the same: a span of its own, so that nothing looks like a change. Nearly the same: not all of the room for it.
        let margin = match high - low {
            0.0 if size == 0.0 => 0.5,
            0.0 => size * 0.25,
            span => (span * 0.06).max(size * 0.02),
        };
        Some(Scale::linear(((low - margin).max(bounds.0), (high + margin).min(bounds.1)), pixels))
    }

    /// The same on a logarithmic scale of positive bounds that shows 1; what lies outside of the bounds stays at its edge.
    pub fn log_within(values: impl IntoIterator<Item = f64>, bounds: (f64, f64), pixels: (f64, f64)) -> Option<Scale> {
        let (low, high) = extent(values, bounds)?;
        Some(Scale::log((low.min(1.0) / 1.3, high.max(1.0) * 1.3), pixels))
    }

    /// Steps of training. One step alone stands in the middle.
    pub fn steps((first, last): (f64, f64), pixels: (f64, f64)) -> Scale {
        let domain = if last > first { (first, last) } else { (first - 1.0, first + 1.0) };
        Scale { domain, pixels, kind: Kind::Whole }
    }

    /// Whether it is logarithmic.
    pub fn is_log(&self) -> bool {
        self.kind == Kind::Log
    }

    /// The pixel of a value. A value outside is drawn at the edge.
    pub fn at(&self, value: f64) -> f64 {
        let scaled = |x: f64| if self.is_log() { x.max(f64::MIN_POSITIVE).ln() } else { x };
        let (low, high) = (scaled(self.domain.0), scaled(self.domain.1));
        let share = ((scaled(value) - low) / (high - low)).clamp(0.0, 1.0);
        let (from, to) = self.pixels;
        // Values so large that their span is infinite have no share.
        from + (to - from) * if share.is_finite() { share } else { 0.5 }
    }

    /// Round values on it: about `most` at most.
    pub fn ticks(&self, most: f64) -> Vec<Tick> {
        let tick = |(value, step)| Tick { value, at: self.at(value), step };
        match self.kind {
            Kind::Log => log_ticks(self.domain, most).into_iter().map(|value| tick((value, value.abs()))).collect(),
            Kind::Linear => ticks(self.domain, most).into_iter().map(tick).collect(),
            Kind::Whole => {
                let whole = ticks(self.domain, most).into_iter().filter(|(value, _)| value.fract() == 0.0);
                whole.map(|(value, step)| tick((value, step.max(1.0)))).collect()
            }
        }
    }
}

/// The least and the greatest of the finite ones.
fn extent(values: impl IntoIterator<Item = f64>, bounds: (f64, f64)) -> Option<(f64, f64)> {
    let join = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
    let finite = values.into_iter().filter(|value| value.is_finite());
    let shown = finite.map(|value| value.max(bounds.0).min(bounds.1));
    shown.fold(None, |extent, value| Some(join(extent.unwrap_or((value, value)), value)))
}

/// Multiples of 1, 2 or 5 times a power of ten, with that step.
fn ticks((low, high): (f64, f64), most: f64) -> Vec<(f64, f64)> {
    let span = high - low;
    if !(span > 0.0 && span.is_finite()) {
        return Vec::new();
    }
    let power = 10_f64.powf((span / most).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|step| span / step <= most).unwrap_or(span);
    let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
    // At most `most` steps fit, by their choice, whatever rounding does to the first and the last.
    let all = (0..=most as usize).map(|tick| first + tick as f64).take_while(|tick| *tick <= last);
    // Adding zero makes −0 a zero.
    all.map(|tick| (tick * step + 0.0, step)).collect()
}

/// 1, 2 and 5 in each power of ten; over many powers, or where there is little room, only 1, and only some of those.
fn log_ticks((low, high): (f64, f64), most: f64) -> Vec<f64> {
    let powers = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let with = |factors: &'static [f64], every: i32| -> Vec<f64> {
        let shown = powers.clone().filter(move |power| power.rem_euclid(every) == 0);
        let all = shown.flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
        all.filter(|tick| (low..=high).contains(tick)).collect()
    };
    let all = with(&[1.0, 2.0, 5.0], 1);
    if (high / low).log10() <= 2.5 && all.len() as f64 <= most {
        return all;
    }
    let whole = with(&[1.0], 1);
    with(&[1.0], whole.len().div_ceil(4).max(1) as i32)
}

/// A value with as many places as tell it from one that is `step` away: `0.25`, `1,500`, `12k`, `3M`.
pub fn plain(value: f64, step: f64) -> String {
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

/// A share in percent with as many places as tell it from one that is `step` away.
pub fn percent(value: f64, step: f64) -> String {
    format!("{} %", plain(value * 100.0, step * 100.0))
}

/// A value as documents write it: every tick of an axis has the same places, and a large one has its unit apart, `12 M`.
pub fn formal(value: f64, step: f64) -> String {
    if value.abs() >= 10_000.0 {
        return large(value);
    }
    let places = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    let digits = format!("{:.places$}", value.abs());
    let is_zero = !digits.contains(|char: char| ('1'..='9').contains(&char));
    signed(if is_zero { 0.0 } else { value }, &digits)
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

fn signed(value: f64, digits: &str) -> String {
    format!("{}{digits}", if value < 0.0 { "−" } else { "" })
}

#[cfg(test)]
mod tests;
