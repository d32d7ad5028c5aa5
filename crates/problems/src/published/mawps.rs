//! MAWPS and ASDiv: numbers as `number0`, equations with the operation first.

use super::template::{Piece, Slot, Template, slot_name};
use super::{DataError, Record, equation};
use crate::problem::{LARGEST, Op};
use crate::situation::{Operand, StepRule};
use serde::Deserialize;
use std::path::Path;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Row {
    question: String,
    numbers: String,
    equation: String,
    answer: String,
}

pub(super) fn read(path: &Path) -> Result<Vec<Record>, DataError> {
    let fault = |record: usize, error: csv::Error| DataError::Record {
        path: path.to_owned(),
        record,
        message: error.to_string(),
    };
    let mut reader = csv::Reader::from_path(path).map_err(|error| fault(0, error))?;
    let rows = reader.deserialize().enumerate();
    rows.map(|(index, row)| row.map(|row: Row| record(&row)).map_err(|error| fault(index + 1, error))).collect()
}

fn record(row: &Row) -> Record {
    let numbers: Vec<&str> =
        row.numbers.split_whitespace().map(|number| number.strip_suffix(".0").unwrap_or(number)).collect();
    let mut text = joined(&row.question);
    // From the last, since `number1` begins `number10`.
    for (index, number) in numbers.iter().enumerate().rev() {
        text = text.replace(&format!("number{index}"), number);
    }
    Record { template: template(row, &numbers), text }
}

fn template(row: &Row, numbers: &[&str]) -> Option<Template> {
    let fits = |number: &&str| number.parse().ok().filter(|value| (1..=LARGEST).contains(value));
    let values: Vec<i64> = numbers.iter().map(fits).collect::<Option<_>>()?;
    let mut rules = Vec::new();
    let mut tokens = row.equation.split_whitespace();
    prefix(&mut tokens, &mut rules, 0)?;
    // Of equal numbers, the equation may name the wrong one: then they stay equal.
    let twice = |value| values.iter().filter(|other| *other == value).count() > 1;
    let slots = values.iter().map(|value| Slot { value: *value, fixed: *value == 1 || twice(value) }).collect();
    let answer = row.answer.trim().strip_suffix(".0").unwrap_or(row.answer.trim()).parse().ok()?;
    let done = tokens.next().is_none() && !rules.is_empty();
    done.then(|| Template::new(pieces(&joined(&row.question)), slots, equation::needed(&rules), answer)).flatten()
}

/// Reads `- number0 * number1 number2`.
fn prefix<'a>(tokens: &mut impl Iterator<Item = &'a str>, rules: &mut Vec<StepRule>, depth: usize) -> Option<Operand> {
    if depth > 16 {
        return None;
    }
    let token = tokens.next()?;
    if let Some(op) = token.chars().next().filter(|_| token.len() == 1).and_then(Op::of) {
        let (left, right) = (prefix(tokens, rules, depth + 1)?, prefix(tokens, rules, depth + 1)?);
        rules.push(StepRule { left, op, right });
        return Some(Operand::Result(rules.len() - 1));
    }
    match token.strip_prefix("number") {
        Some(slot) => slot.parse().ok().and_then(slot_name).map(Operand::Number),
        None => {
            token.strip_suffix(".0").unwrap_or(token).parse().ok().filter(|value| *value > 0).map(Operand::Constant)
        }
    }
}

fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (index, part) in text.split("number").enumerate() {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        match part[..digits].parse() {
            Ok(slot) if index > 0 => {
                pieces.push(Piece::Number { slot, in_words: false });
                pieces.push(Piece::Text(part[digits..].to_owned()));
            }
            // The word itself.
            _ if index > 0 => pieces.push(Piece::Text(format!("number{part}"))),
            _ => pieces.push(Piece::Text(part.to_owned())),
        }
    }
    pieces
}

/// The text without the spaces before signs.
fn joined(text: &str) -> String {
    let signs = [" .", " ,", " ?", " !", " ;", " :", " 's", " n't", " %"];
    let joined = signs.iter().fold(text.trim().to_owned(), |text, sign| text.replace(sign, sign.trim_start()));
    joined.replace("$ ", "$")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(question: &str, numbers: &str, equation: &str, answer: &str) -> Row {
        let [question, numbers, equation, answer] = [question, numbers, equation, answer].map(str::to_owned);
        Row { question, numbers, equation, answer }
    }

    fn check(numbers: &str, equation: &str, answer: &str, usable: bool) {
        let row = row("Ana 's number0 hens laid number1 eggs , a number . And number2 ?", numbers, equation, answer);
        let record = record(&row);
        assert_eq!(record.template.is_some(), usable, "{numbers} {equation}");
        if let Some(template) = record.template {
            let made = template.problem(&mut crate::seeded(4)).unwrap();
            assert!(made.question.starts_with("Ana's ") && made.question.contains(" eggs, a number. And "), "{made:?}");
        }
    }

    #[test]
    fn equations_are_read_operation_first() {
        check("5.0 20.0 3.0", "- number1 * number0 number2", "5.0", true);
        check("5.0 20.0 3.0", "+ number0 number1", "25.0", true);
        check("5.0 20.0 3.0", "* number0 12.0", "60.0", true);
        check("5.0 20.0 3.0", "+ number0 number1", "26.0", false);
        check("0.5 20.0 3.0", "+ number0 number1", "20.5", false);
        check("5.0 20.0 3.0", "* number0 0.5", "2.5", false);
        check("5.0 20.0 3.0", "+ number0", "5.0", false);
        check("5.0 20.0 3.0", "+ number0 number1 number2", "25.0", false);
        check("5.0 20.0 3.0", "number0", "5.0", false);
        check("5.0 20.0 3.0", "+ number0 number9", "25.0", false);
        check("5.0 20.0 3.0", &"+ ".repeat(99), "25.0", false);
    }

    #[test]
    fn the_text_has_the_numbers_in_it() {
        let row = row("Ana 's number0 hens , number1 .", "12.0 1.5", "+ number0 number1", "13.5");
        assert_eq!(record(&row).text, "Ana's 12 hens, 1.5.");
    }

    proptest! {
        #[test]
        fn never_panics(question in "[a-z ]{0,9}(number[0-9]{0,3}[ é.])*", numbers in "[0-9. é]{0,12}", equation in "([-+*/] |number[0-9]{1,2} |[0-9.]{1,4} ){0,8}") {
            let record = record(&row(&question, &numbers, &equation, "5.0"));
            if let Some(problem) = record.template.and_then(|template| template.problem(&mut crate::seeded(1))) {
                prop_assert!(problem.steps.iter().all(|step| step.holds()));
            }
        }
    }
}
