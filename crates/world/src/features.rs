//! Features that any text has: what difficulty is estimated from.

use serde::{Deserialize, Serialize};

/// How many features there are.
pub const COUNT: usize = 14;
/// The features of a question, in this order: log of its words; numbers; number words; digits of the largest number;
/// whether it has fractions, per cent, times; words like "each"; comparisons; whether something is left over, negated,
/// given as statements; the share of long words; quotes.
pub fn features(question: &str) -> [f64; COUNT] {
    let lower = question.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|w| !w.is_empty()).collect();
    let count = |list: &[&str]| words.iter().filter(|word| list.contains(word)).count() as f64;
    let has = |list: &[&str]| f64::from(u8::from(list.iter().any(|part| lower.contains(part))));
    let numbers: Vec<&&str> = words.iter().filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).collect();
    let digits = |word: &&&str| word.chars().filter(char::is_ascii_digit).count();
    let long = words.iter().filter(|word| word.len() >= 9).count() as f64;
    [
        (words.len().max(1) as f64).ln(),
        (numbers.len() as f64).min(20.0),
        count(&NUMBER_WORDS).min(8.0),
        numbers.iter().map(digits).max().unwrap_or(0).min(8) as f64,
        has(&["half", "third", "quarter", "twice", "double", "triple", "/"]),
        has(&["%", "percent"]),
        has(&["hour", "minute", "day", "week", "year", " age", " old"]),
        count(&["each", "every", "per"]).min(6.0),
        count(&["more", "less", "fewer", "than"]).min(6.0),
        has(&["rest", "remain", "left"]),
        has(&[" not ", "except", "n't", "false"]),
        has(&["statement", "following", "____"]),
        long / words.len().max(1) as f64,
        has(&["\"", "“", "‘"]),
    ]
}

const NUMBER_WORDS: [&str; 14] =
    ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve", "dozen", "half", "twice"];

/// How features become a difficulty: standardised, weighted, summed. Zero is the mean of the items it was fitted on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difficulty {
    /// The features' means.
    pub mean: Vec<f64>,
    /// Their standard deviations.
    pub deviation: Vec<f64>,
    /// Their weights, in the order of [`features`].
    pub weight: Vec<f64>,
}

impl Difficulty {
    /// The difficulty of a question: harder is more.
    pub fn of(&self, question: &str) -> f64 {
        let parts = features(question).into_iter().zip(&self.mean).zip(&self.deviation).zip(&self.weight);
        // Texts unlike any seen are taken as the most extreme ones seen.
        parts.map(|(((x, mean), deviation), weight)| weight * ((x - mean) / deviation).clamp(-3.0, 3.0)).sum()
    }
}
