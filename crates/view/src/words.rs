//! How numbers and names are written for people: the same in Markdown, in pictures and on pages.

use lemon_trace::text;

/// What stands for a number that does not exist.
pub const NONE: &str = "–";

/// A share: `0.715` as `71.5 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.is_finite() { format!("{percent:.1} %") } else { NONE.to_owned() }
}

/// An interval of shares, without the sign of percent: `64.9–77.3`.
pub fn percent_range(interval: [f64; 2]) -> String {
    let [low, high] = interval.map(|share| share * 100.0);
    if low.is_finite() && high.is_finite() { format!("{low:.1}–{high:.1}") } else { NONE.to_owned() }
}

/// A difference of shares in points: `+8.5`, `−0.5`, `0.0`.
pub fn points(difference: f64) -> String {
    signed(difference * 100.0, 1)
}

/// An interval with signs: `−1.2 to +5.3`.
pub fn range(low: &str, high: &str) -> String {
    format!("{low} to {high}")
}

/// A difference of tokens: `+1,234`.
pub fn token_difference(difference: f64) -> String {
    if !difference.is_finite() {
        return NONE.to_owned();
    }
    let sign = match difference.round() {
        x if x > 0.0 => "+",
        x if x < 0.0 => "−",
        _ => "",
    };
    format!("{sign}{}", number(difference.abs()))
}

/// A number with its sign, to so many places: `+0.012`, `−0.5`, and `0.00` without one.
pub fn signed(x: f64, places: usize) -> String {
    if !x.is_finite() {
        return NONE.to_owned();
    }
    let digits = format!("{:.places$}", x.abs());
    let sign = match x {
        _ if digits.chars().all(|digit| matches!(digit, '0' | '.')) => "",
        x if x < 0.0 => "−",
        _ => "+",
    };
    format!("{sign}{digits}")
}

/// A number of many, rounded: `1234.6` as `1,235`.
pub fn number(x: f64) -> String {
    if !x.is_finite() {
        return NONE.to_owned();
    }
    let digits = format!("{:.0}", x.abs());
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if x.round() < 0.0 {
        text.push('−');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of few: `4.2`.
pub fn few(x: f64) -> String {
    if x.is_finite() { format!("{x:.1}") } else { NONE.to_owned() }
}

/// A number of things: `1 item`, `2 items`.
pub fn plural(n: usize, noun: &str) -> String {
    text::plural(n as u64, noun)
}

/// A p-value. One that is only known to be small is said to be.
pub fn p_value(p: f64) -> String {
    match p {
        p if !p.is_finite() => NONE.to_owned(),
        p if p < 0.001 => "< 0.001".to_owned(),
        p if p < 0.01 => format!("{p:.4}"),
        p => format!("{p:.3}"),
    }
}

/// An amount of money; small ones keep two significant digits.
pub fn usd(amount: Option<f64>) -> String {
    match amount.filter(|amount| amount.is_finite()) {
        None => NONE.to_owned(),
        Some(0.0) => "$0".to_owned(),
        Some(x) => text::usd(x),
    }
}

/// A ratio: `1.35×`.
pub fn times(x: Option<f64>) -> String {
    x.filter(|x| x.is_finite()).map_or_else(|| NONE.to_owned(), |x| format!("{x:.2}×"))
}

/// A share that may not have been measured.
pub fn measured(share: Option<f64>) -> String {
    share.map_or_else(|| NONE.to_owned(), percent)
}

/// `a`, `a and b`, `a, b and c`.
pub fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let check = |written: String, expected: &str| assert_eq!(written, expected);
        check(percent(0.7149), "71.5 %");
        check(percent(f64::NAN), "–");
        check(percent_range([0.649, 0.7734]), "64.9–77.3");
        check(percent_range([f64::NAN, 1.0]), "–");
        check(points(0.085), "+8.5");
        check(points(-0.005), "−0.5");
        check(points(-0.0001), "0.0");
        check(points(f64::INFINITY), "–");
        check(token_difference(-1234.6), "−1,235");
        check(token_difference(0.2), "0");
        check(token_difference(f64::NAN), "–");
        check(number(1_234_567.4), "1,234,567");
        check(number(-1234.0), "−1,234");
        check(number(999.5), "1,000");
        check(plural(1, "item"), "1 item");
        check(plural(2000, "item"), "2,000 items");
    }

    #[test]
    fn p_values_and_money() {
        let check = |p, expected: &str| assert_eq!(p_value(p), expected);
        check(0.0, "< 0.001");
        check(0.0049, "0.0049");
        check(0.04999, "0.050");
        check(1.0, "1.000");
        check(f64::NAN, "–");
        let check = |amount, expected: &str| assert_eq!(usd(amount), expected);
        check(None, "–");
        check(Some(0.0), "$0");
        check(Some(0.000_123_4), "$0.00012");
        check(Some(12.345), "$12.35");
        check(Some(f64::NAN), "–");
    }

    #[test]
    fn lists() {
        assert_eq!(list(&["a", "b", "c"].map(String::from)), "a, b and c");
    }
}
