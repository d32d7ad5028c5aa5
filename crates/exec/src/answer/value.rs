//! Answers by their value: one number however it is written, one option by its letter or its text.

use super::{letter_in, numbers};

/// Digits that count: programs print 17.999999999999996 where they mean 18.
const DIGITS: usize = 11;

/// A number in one way of writing. Two numbers that differ in the twelfth digit are the same.
fn canonical(number: f64) -> String {
    // What was formatted as a number reads as one.
    let rounded = format!("{number:.DIGITS$e}").parse::<f64>().unwrap_or(number);
    if rounded == 0.0 { "0".to_owned() } else { rounded.to_string() }
}

/// The value of a text that is a number and nothing else: signs of currency, a percent sign, thousands separators,
/// fractions (`3/4`, `1 1/2`, `\frac{3}{4}`) and brackets of formulas are part of it.
pub(super) fn value_of(text: &str) -> Option<String> {
    let mut bare = text.trim();
    for (open, close) in [("\\(", "\\)"), ("\\[", "\\]"), ("$", "$"), ("\\text{", "}")] {
        if let Some(inside) = bare.strip_prefix(open).and_then(|rest| rest.strip_suffix(close)) {
            bare = inside.trim();
        }
    }
    let bare = bare.strip_suffix("\\%").or_else(|| bare.strip_suffix('%')).unwrap_or(bare).trim();
    let fraction = bare.strip_prefix("\\frac{").or_else(|| bare.strip_prefix("\\dfrac{"));
    if let Some((above, below)) = fraction.and_then(|rest| rest.strip_suffix('}')?.split_once("}{")) {
        return quotient(above, below).map(canonical);
    }
    if let Some((above, below)) = bare.split_once('/') {
        let (whole, above) = above.trim().rsplit_once(' ').unwrap_or(("", above));
        let quotient = quotient(above, below)?;
        let whole = if whole.is_empty() { Some(0.0) } else { whole_number(whole) }?;
        let signed = if whole < 0.0 { whole - quotient } else { whole + quotient };
        return Some(canonical(signed));
    }
    let digits: String = bare.chars().filter(|c| !matches!(c, ',' | '$' | '€' | '£' | ' ' | '\\')).collect();
    let number = digits.parse::<f64>().ok().filter(|number| number.is_finite())?;
    digits.chars().any(|c| c.is_ascii_digit()).then(|| canonical(number))
}

fn whole_number(text: &str) -> Option<f64> {
    let text = text.trim().replace(',', "");
    let digits = text.strip_prefix('-').unwrap_or(&text);
    let whole = !digits.is_empty() && digits.len() <= 15 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole { text.parse().ok() } else { None }
}

fn quotient(above: &str, below: &str) -> Option<f64> {
    let (above, below) = (whole_number(above)?, whole_number(below)?);
    (below != 0.0).then(|| above / below)
}

/// The last number of a line, as it is written, but for digits that no one meant.
pub(crate) fn last_number(line: &str) -> Option<String> {
    let number = line.get(numbers(line).last()?)?.replace(',', "");
    if number.bytes().filter(u8::is_ascii_digit).count() <= DIGITS { Some(number) } else { value_of(&number) }
}

/// The options that a question lists, by their letters: `A) …` and the like at the beginning of lines, or in one line.
pub fn options_in(question: &str) -> Vec<(char, String)> {
    let lines = question.lines().filter_map(lettered).map(|(letter, text)| (letter, text.to_owned()));
    let in_order = |options: Vec<(char, String)>| -> Vec<(char, String)> {
        let begins = options.iter().rposition(|(letter, _)| *letter == 'A').unwrap_or(options.len());
        let expected = |at: usize, letter: char| u32::from(letter) == u32::from('A') + at as u32;
        let options = options.into_iter().skip(begins).enumerate();
        options.take_while(|(at, (letter, _))| expected(*at, *letter)).map(|(_, option)| option).collect()
    };
    let listed = in_order(lines.collect());
    if listed.len() > 1 {
        return listed;
    }
    let groups = question.split('(').skip(1).filter_map(|group| {
        let (letter, text) = group.split_once(')')?;
        let mut letters = letter.chars();
        let letter = letters.next().filter(char::is_ascii_alphabetic)?;
        letters.next().is_none().then(|| (letter.to_ascii_uppercase(), text.trim().trim_end_matches(',').to_owned()))
    });
    let grouped = in_order(groups.collect());
    if grouped.len() > 1 { grouped } else { Vec::new() }
}

/// A line that begins with the letter of an option.
fn lettered(line: &str) -> Option<(char, &str)> {
    let line = line.trim().trim_start_matches("Option ").trim_start_matches('(');
    let letter = line.chars().next().filter(char::is_ascii_alphabetic)?;
    let rest = line.get(1..)?.strip_prefix([')', '.', ':'])?;
    let upper = letter.is_ascii_uppercase() || line.get(1..2) == Some(")");
    (upper && !rest.trim().is_empty()).then(|| (letter.to_ascii_uppercase(), rest.trim()))
}

/// The option that an answer names: by its letter, by its text, or by its value where only one option has it.
pub(crate) fn option_in(answer: &str, options: &[(char, String)]) -> Option<char> {
    let known = |letter: &char| options.is_empty() || options.iter().any(|(option, _)| option == letter);
    if let Some(letter) = letter_in(answer).filter(known) {
        return Some(letter);
    }
    let only = |key: &dyn Fn(&str) -> Option<String>| {
        let wanted = key(answer)?;
        let mut same = options.iter().filter(|(_, text)| key(text).as_ref() == Some(&wanted));
        let (letter, _) = same.next()?;
        same.next().is_none().then_some(*letter)
    };
    let text = |text: &str| {
        let plain = text.trim().trim_end_matches('.').to_lowercase();
        Some(plain.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|text| !text.is_empty())
    };
    // "9 miles": a number and what is counted.
    let first = |text: &str| {
        let mut all = numbers(text);
        let one = all.next().filter(|_| all.next().is_none() && !text.contains('/'));
        one.and_then(|range| value_of(text.get(range)?))
    };
    only(&text)
        .or_else(|| only(&|text| value_of(text)))
        .or_else(|| only(&|text| value_of(text).or_else(|| first(text))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_has_one_value_however_it_is_written() {
        let check = |same: &[&str], value: &str| {
            for text in same {
                assert_eq!(value_of(text).as_deref(), Some(value), "{text}");
            }
        };
        check(&["1", "1.0", "1.", "$1", "$1.00", "1%", "\\(1\\)", "$1$", "0.99999999999999", "2/2", " 01 "], "1");
        check(&["3/4", "0.75", ".75", "\\frac{3}{4}", "\\dfrac{3}{4}", "75/100"], "0.75");
        check(&["1 1/2", "1.5", "3/2"], "1.5");
        check(&["-1 1/2", "-1.5"], "-1.5");
        check(&["1,250", "1250", "€ 1 250", "1.25e3"], "1250");
        check(&["0", "-0", "0.0", "0/7"], "0");
        check(&["17.999999999999996"], "18");
        for text in ["", "a", "1/0", "1/2/3", "3 apples", "inf", "nan", "12/25/2020", "$", "%", "1/x"] {
            assert_eq!(value_of(text), None, "{text}");
        }
        assert_ne!(value_of("50%"), value_of("0.5"), "a percentage is not its hundredth");
        assert_ne!(value_of("123456789012"), value_of("123456789013"));
    }

    #[test]
    fn options_are_read_off_the_question() {
        let check = |question: &str, expected: &[(char, &str)]| {
            let found = options_in(question);
            let found: Vec<(char, &str)> = found.iter().map(|(letter, text)| (*letter, text.as_str())).collect();
            assert_eq!(found, expected, "{question}");
        };
        check("How fast?\nA) 10 km\nB) 20 km\nC) none", &[('A', "10 km"), ('B', "20 km"), ('C', "none")]);
        check("Which?\nA. red\nB. blue\nAnswer with a letter.", &[('A', "red"), ('B', "blue")]);
        check("Pick one: (A) red (B) blue", &[('A', "red"), ('B', "blue")]);
        check("a) red\nb) blue\nc) green", &[('A', "red"), ('B', "blue"), ('C', "green")]);
        check("A. is a letter.\nA) one\nB) two", &[('A', "one"), ('B', "two")]);
        check("Explain vitamin A.", &[]);
    }

    #[test]
    fn an_option_is_named_by_letter_text_or_value() {
        let options: Vec<(char, String)> =
            [('A', "3/4"), ('B', "12 km"), ('C', "Paris"), ('D', "1,000")].map(|(c, t)| (c, t.to_owned())).into();
        let check =
            |answer: &str, expected: Option<char>| assert_eq!(option_in(answer, &options), expected, "{answer}");
        check("B", Some('B'));
        check("(c) Paris", Some('C'));
        check("paris.", Some('C'));
        check("0.75", Some('A'));
        check("12", Some('B'));
        check("12.0 km", Some('B'));
        check("1000", Some('D'));
        check("13", None);
        check("E", None);
        let twice = [('A', "5".to_owned()), ('B', "5.0".to_owned())];
        assert_eq!(option_in("5.00", &twice), None, "two options have this value");
        assert_eq!(option_in("5", &twice), Some('A'), "one has this very text");
    }

    proptest! {
        #[test]
        fn writing_a_number_differently_does_not_change_it(whole in -99_999i64..99_999, cents in 0u32..100) {
            let plain = format!("{whole}.{cents:02}");
            prop_assert_eq!(value_of(&plain), value_of(&format!("{plain}000")));
            prop_assert_eq!(value_of(&plain), value_of(&format!("{plain}%")));
            prop_assert_eq!(value_of(&whole.to_string()), value_of(&format!("{}/1", whole)));
        }

        #[test]
        fn nothing_breaks_it(text in "(?s).{0,80}") {
            let options = options_in(&text);
            prop_assert!(options.iter().enumerate().all(|(at, (letter, _))| *letter == (b'A' + at as u8) as char));
            if let Some(value) = value_of(&text) {
                prop_assert_eq!(value_of(&value), Some(value.clone()), "{}", text);
            }
        }
    }
}
