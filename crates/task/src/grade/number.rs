//! Numbers in running text: signs, separators, currency, percent, fractions, powers and scales.

use std::{fmt, ops::Range};

use serde::{Deserialize, Serialize};

use super::{
    place::{self, Place},
    plain::plain,
};

/// A number as a reply or a gold states it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quantity {
    pub value: f64,
    pub percent: bool,
    /// The value with its scale word: 3 million is 3,000,000. Whether the question counts in millions is not known
    /// here, so both readings stand.
    scaled: Option<f64>,
}

/// The final answer of a reply: the number in the last place that announces one, else the result that the last line
/// concludes with, else the last number.
pub(crate) fn answer(reply: &str) -> Option<Quantity> {
    let text = plain(reply);
    let places = place::places(&text, place::ANSWER);
    let mut readings = places.iter().flat_map(Place::readings).filter(|reading| !place::excludes(reading));
    let announced = readings.find_map(stated);
    announced.or_else(|| concluded(&text)).or_else(|| quantities(&text).last().map(|(_, quantity)| *quantity))
}

/// The result of the last calculation, if the last line takes it up: "6 * 3 = 18. Therefore, 18 eggs in 5 days." ends
/// in a number that is not the answer.
fn concluded(text: &str) -> Option<Quantity> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let opening = line.trim_start().to_ascii_lowercase();
    if !["therefore", "thus", "hence", "so"].iter().any(|word| opening.starts_with(word)) || line.contains('=') {
        return None;
    }
    let (_, right) = text.rsplit_once('=')?;
    let (_, result) = quantities(right.lines().next()?).into_iter().next()?;
    quantities(line).into_iter().map(|(_, stated)| stated).find(|stated| close(stated.value, result.value))
}

/// The number that a text states as an answer: the one it begins with, unless that begins a calculation; then the one
/// behind the last equals sign; else the first.
fn stated(text: &str) -> Option<Quantity> {
    let first = |text: &str| quantities(text).into_iter().next();
    let (range, quantity) = first(text)?;
    let opens = text[..range.start].chars().all(|c| c.is_whitespace() || is_currency(c));
    if opens && !calculates(&text[range.end..]) {
        return Some(quantity);
    }
    let result = text.rsplit_once('=').and_then(|(_, right)| first(right));
    Some(result.map_or(quantity, |(_, result)| result))
}

/// Whether a text goes on with an operator and an operand.
fn calculates(rest: &str) -> bool {
    let operand = rest.trim_start().strip_prefix(['+', '-', '*', '/', '÷', 'x']);
    operand
        .is_some_and(|text| text.trim_start().starts_with(|c: char| c.is_ascii_digit() || c == '(' || is_currency(c)))
}

/// The number that a text is, with nothing beside it but signs of currency and percent.
pub(crate) fn whole(text: &str) -> Option<Quantity> {
    let text = plain(text);
    let found = quantities(&text);
    let [(range, quantity)] = found.as_slice() else { return None };
    let mut outside = text[..range.start].chars().chain(text[range.end..].chars());
    outside.all(|c| c.is_whitespace() || is_currency(c)).then_some(*quantity)
}

impl Quantity {
    /// Whether this answer is the gold. 15 % is 15; it is 0.15 only if the gold is a percentage.
    pub fn agrees_with(&self, gold: &Quantity) -> bool {
        let readings = [Some(self.value), self.scaled];
        let as_share = (gold.percent && !self.percent).then_some(self.value * 100.0);
        let golds = [Some(gold.value), gold.scaled];
        readings.into_iter().chain([as_share]).flatten().any(|a| golds.into_iter().flatten().any(|b| close(a, b)))
    }
}

/// Within a millionth, not of the gold but absolute, so that large whole numbers one apart differ; and never more than
/// a thousandth of the gold, so that a tiny one is not zero.
fn close(a: f64, gold: f64) -> bool {
    let rounding = 1e-12 * gold.abs();
    (a - gold).abs() <= (1e-3 * gold.abs()).min(1e-6).max(rounding)
}

impl From<i64> for Quantity {
    fn from(whole: i64) -> Self {
        // What a float cannot hold exactly is no answer that a task can have.
        Quantity { value: whole as f64, percent: false, scaled: None }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.scaled.unwrap_or(self.value), if self.percent { "%" } else { "" })
    }
}

/// All numbers of a plain text, with the bytes they take (sign included).
pub(crate) fn quantities(text: &str) -> Vec<(Range<usize>, Quantity)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(offset) = text[at..].find(|c: char| c.is_ascii_digit()) {
        let digit = at + offset;
        let point = text[at..digit].ends_with('.') && !text[..digit - 1].ends_with(|c: char| c.is_ascii_digit());
        let start = if point { digit - 1 } else { digit };
        let (magnitude, end) = magnitude(text, start);
        if part_of_a_name(&text[..start]) {
            at = end;
            continue;
        }
        let (mut quantity, end) = tail(text, magnitude, start, end);
        let (negative, start) = sign(text, start);
        if negative {
            quantity.value = -quantity.value;
            quantity.scaled = quantity.scaled.map(|value| -value);
        }
        if quantity.value.is_finite() {
            found.push((start..end, quantity));
        }
        at = end;
    }
    found
}

/// Digits right behind a letter, an index mark or a power belong to a name or a unit (H2O, x_1, cm^2), unless the
/// letters are a currency (Rs500).
fn part_of_a_name(before: &str) -> bool {
    let letters = before.len() - before.trim_end_matches(|c: char| c.is_alphabetic()).len();
    let word = before[before.len() - letters..].to_ascii_lowercase();
    if letters > 0 {
        return !CURRENCY_CODES.contains(&word.as_str());
    }
    let marked = before.strip_suffix('{').unwrap_or(before);
    marked.ends_with('^') || marked.strip_suffix('_').is_some_and(|name| name.ends_with(char::is_alphanumeric))
}

const CURRENCY_CODES: [&str; 10] = ["rs", "usd", "us", "eur", "gbp", "inr", "rm", "aud", "cad", "chf"];

fn is_currency(c: char) -> bool {
    "$€£¥₹₽₩¢".contains(c)
}

/// The plain decimal number at `start`, thousands separators and exponent included, and where it ends.
fn magnitude(text: &str, start: usize) -> (f64, usize) {
    let mut end = start + digits(&text[start..]);
    let mut number = text[start..end].to_owned();
    if (1..=3).contains(&number.len()) {
        let separator = text[end..].chars().next().filter(|c| ",' _".contains(*c));
        while let Some(group) = separator.and_then(|separator| thousands(&text[end..], separator)) {
            number.push_str(group);
            end += 1 + group.len();
        }
    }
    let decimals = text[end..].strip_prefix('.').map_or(0, digits);
    if decimals > 0 {
        number.push_str(&text[end..=end + decimals]);
        end += 1 + decimals;
    }
    if let Some(exponent) = exponent(&text[end..]) {
        number.push_str(exponent);
        end += exponent.len();
    }
    (number.parse().unwrap_or(f64::NAN), end)
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Three digits behind a separator, and no fourth.
fn thousands(text: &str, separator: char) -> Option<&str> {
    let rest = text.strip_prefix(separator)?;
    (digits(rest) == 3).then(|| &rest[..3])
}

/// `e6`, `E-3`: not the beginning of a word such as `3eggs`.
fn exponent(text: &str) -> Option<&str> {
    let sign = text.strip_prefix(['e', 'E'])?;
    let number = sign.strip_prefix(['+', '-']).unwrap_or(sign);
    let count = digits(number);
    let end = text.len() - number.len() + count;
    (count > 0 && !text[end..].starts_with(char::is_alphanumeric)).then(|| &text[..end])
}

/// What may follow a number and belongs to it: a fraction, a power, a percent sign, a scale word.
fn tail(text: &str, magnitude: f64, start: usize, end: usize) -> (Quantity, usize) {
    let is_integer = text[start..end].bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
    let (value, end) = denominator(text, magnitude, end)
        .or_else(|| mixed(text, magnitude, end).filter(|_| is_integer))
        .or_else(|| power(text, magnitude, end))
        .or_else(|| power_of_ten(text, magnitude, end))
        .unwrap_or((magnitude, end));
    let rest = text[end..].trim_start_matches([' ', '-']);
    let follows = |word: &str| rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
    let word_end = |word: &str| text.len() - (rest.len() - word.len());
    if let Some(sign) = ["%", "percent", "per cent"].into_iter().find(|sign| follows(sign)) {
        return (Quantity { value, percent: true, scaled: None }, word_end(sign));
    }
    let scale = SCALES.iter().find(|(word, _)| follows(word));
    let scaled = scale.map(|(_, factor)| value * factor);
    let end = scale.map_or(end, |(word, _)| word_end(word));
    (Quantity { value, percent: false, scaled }, end)
}

const SCALES: [(&str, f64); 5] =
    [("hundred", 1e2), ("thousand", 1e3), ("million", 1e6), ("billion", 1e9), ("trillion", 1e12)];

/// `/4` behind a number. A date or a chain of divisions is none.
fn denominator(text: &str, above: f64, end: usize) -> Option<(f64, usize)> {
    let rest = text[end..].trim_start_matches(' ').strip_prefix('/')?.trim_start_matches(' ');
    if !rest.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (below, end) = magnitude(text, text.len() - rest.len());
    let chain = text[end..].starts_with('/') && digits(&text[end + 1..]) > 0;
    (below != 0.0 && !chain).then_some((above / below, end))
}

/// ` 1/2` or ` and 1/2` behind a whole number.
fn mixed(text: &str, whole: f64, end: usize) -> Option<(f64, usize)> {
    let rest = text[end..].strip_prefix(" and ").or_else(|| text[end..].strip_prefix(' '))?;
    let above = digits(rest);
    let below = rest[above..].strip_prefix('/').map_or(0, digits);
    if above == 0 || below == 0 {
        return None;
    }
    let above: f64 = rest[..above].parse().ok()?;
    let start = text.len() - rest.len();
    let (part, end) = denominator(text, above, start + digits(rest))?;
    (part < 1.0).then_some((whole + part, end))
}

/// `^6` or `^{6}` behind a number.
fn power(text: &str, base: f64, end: usize) -> Option<(f64, usize)> {
    let rest = text[end..].strip_prefix('^')?;
    let inside = rest.strip_prefix('{').unwrap_or(rest);
    let number = inside.strip_prefix('-').unwrap_or(inside);
    let count = digits(number);
    let exponent: i32 = number[..count].parse().ok()?;
    let exponent = if inside.len() == number.len() { exponent } else { -exponent };
    let after = &number[count..];
    let after = if rest.starts_with('{') { after.strip_prefix('}')? } else { after };
    Some((base.powi(exponent), text.len() - after.len()))
}

/// ` * 10^6` behind a number, with `x` for the multiplication sign too.
fn power_of_ten(text: &str, factor: f64, end: usize) -> Option<(f64, usize)> {
    let rest = text[end..].trim_start_matches(' ').strip_prefix(['*', 'x', 'X'])?.trim_start_matches(' ');
    let ten = rest.strip_prefix("10").filter(|rest| rest.starts_with('^'))?;
    let (value, end) = power(text, 10.0, text.len() - ten.len())?;
    Some((factor * value, end))
}

/// Whether the number at `start` has a minus sign, before its currency or behind it, and where the sign begins. A
/// minus behind another number or a letter is a subtraction, a range or a hyphen.
fn sign(text: &str, start: usize) -> (bool, usize) {
    let before = &text[..start];
    if let Some(before) = before.strip_suffix('-') {
        return (is_sign(before), if is_sign(before) { before.len() } else { start });
    }
    let currency = before.trim_end_matches(' ').trim_end_matches(is_currency);
    match currency.strip_suffix('-') {
        Some(before) if currency.len() < before_space(text, start) && is_sign(before) => (true, before.len()),
        _ => (false, start),
    }
}

fn before_space(text: &str, start: usize) -> usize {
    text[..start].trim_end_matches(' ').len()
}

fn is_sign(before: &str) -> bool {
    let operand = |c: char| c.is_alphanumeric() || ")]}%".contains(c);
    let glued = before.trim_end_matches(is_currency);
    if glued.ends_with(operand) {
        return false;
    }
    !glued.trim_end_matches(' ').ends_with(|c: char| c.is_ascii_digit() || ")%".contains(c))
}
