//! A whole and its parts, as one bar.

use crate::words::percent;

/// A part of a whole.
pub(super) struct Part {
    pub name: &'static str,
    /// The class that gives it its colour.
    pub class: &'static str,
    pub value: f64,
    pub written: String,
}

/// The bar and its legend.
pub(super) struct Stack {
    /// Class and width in percent of each part that can be seen.
    pub bars: Vec<(&'static str, String)>,
    pub legend: Vec<StackEntry>,
}

pub(super) struct StackEntry {
    pub name: &'static str,
    pub class: &'static str,
    pub written: String,
    pub share: String,
}

impl Stack {
    /// `None` where there is nothing to show.
    pub(super) fn new(parts: &[Part]) -> Option<Stack> {
        let size = |part: &Part| if part.value.is_finite() { part.value.max(0.0) } else { 0.0 };
        let whole: f64 = parts.iter().map(size).sum();
        if !(whole > 0.0 && whole.is_finite()) {
            return None;
        }
        let entry = |part: &Part| StackEntry {
            name: part.name,
            class: part.class,
            written: part.written.clone(),
            share: percent(size(part) / whole),
        };
        let seen = parts.iter().filter(|part| size(part) > 0.0);
        Some(Stack {
            bars: seen.map(|part| (part.class, format!("{:.2}", size(part) / whole * 100.0))).collect(),
            legend: parts.iter().map(entry).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_the_whole() {
        let check = |values: &[f64], expected: &[&str]| {
            let part = |value: &f64| Part { name: "x", class: "c", value: *value, written: String::new() };
            let stack = Stack::new(&values.iter().map(part).collect::<Vec<_>>());
            let bars = stack.map(|stack| stack.bars).unwrap_or_default();
            let widths: Vec<String> = bars.into_iter().map(|(_, width)| format!("{width}%")).collect();
            assert_eq!(widths, expected);
        };
        check(&[1.0, 3.0], &["25.00%", "75.00%"]);
        check(&[1.0, 0.0], &["100.00%"]);
        check(&[2.0, f64::NAN, -1.0, 2.0], &["50.00%", "50.00%"]);
        check(&[], &[]);
        check(&[0.0, f64::INFINITY], &[]);
        check(&[f64::MAX, f64::MAX], &[]);
    }
}
