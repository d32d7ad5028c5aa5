//! A whole and its parts, as one bar.

use lemon_eval::report::words::percent;
use std::fmt::Write;

/// A part of a whole.
pub(super) struct Part {
    pub(super) name: &'static str,
    /// The class that gives it its colour.
    pub(super) class: &'static str,
    pub(super) value: f64,
    pub(super) written: String,
}

/// The bar and its legend.
pub(super) fn stack(parts: &[Part]) -> String {
    let size = |part: &Part| if part.value.is_finite() { part.value.max(0.0) } else { 0.0 };
    let whole: f64 = parts.iter().map(size).sum();
    if !(whole > 0.0 && whole.is_finite()) {
        return "<p class=\"hint\">Nothing to show.</p>\n".to_owned();
    }
    let mut bar = String::from("<div class=\"stack\" aria-hidden=\"true\">");
    let mut legend = String::from("<ul class=\"legend\">");
    for part in parts {
        let share = size(part) / whole;
        let Part { name, class, written, .. } = part;
        if share > 0.0 {
            let _ = write!(bar, "<i class=\"{class}\" style=\"width:{:.2}%\"></i>", share * 100.0);
        }
        let _ = write!(
            legend,
            "<li><i class=\"{class}\"></i>{name} <b>{written}</b> <small>{}</small></li>",
            percent(share)
        );
    }
    format!("{bar}</div>\n{legend}</ul>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_the_whole() {
        let check = |values: &[f64], expected: &[&str]| {
            let part = |value: &f64| Part { name: "x", class: "c", value: *value, written: String::new() };
            let html = stack(&values.iter().map(part).collect::<Vec<_>>());
            let widths: Vec<&str> = html.split("width:").skip(1).filter_map(|rest| rest.split('"').next()).collect();
            assert_eq!(widths, expected, "{html}");
        };
        check(&[1.0, 3.0], &["25.00%", "75.00%"]);
        check(&[1.0, 0.0], &["100.00%"]);
        check(&[2.0, f64::NAN, -1.0, 2.0], &["50.00%", "50.00%"]);
        check(&[], &[]);
        check(&[0.0, f64::INFINITY], &[]);
        check(&[f64::MAX, f64::MAX], &[]);
    }
}
