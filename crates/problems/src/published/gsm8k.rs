//! GSM8K: one record a line, calculations in `<<48/2=24>>`.

use super::template::{MOST_STEPS, Piece, Slot, Template, slot_name};
use super::{DataError, Record, equation, json, text};
use crate::problem::LARGEST;
use crate::situation::{Operand, StepRule, calculate};
use crate::wording;
use serde::Deserialize;
use std::path::Path;

#[derive(Deserialize)]
struct Line {
    question: String,
    answer: String,
}

pub(super) fn read(path: &Path) -> Result<Vec<Record>, DataError> {
    let text = text(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let record = |line: Line| Record { template: template(&line.question, &line.answer), text: line.question };
    lines.map(|(index, line)| json(path, line, index + 1).map(record)).collect()
}

fn template(question: &str, answer: &str) -> Option<Template> {
    let (worked, answer) = answer.rsplit_once("####")?;
    let answer: i64 = answer.trim().replace(',', "").parse().ok()?;
    let (pieces, mut slots) = split(question)?;
    let values: Vec<i64> = slots.iter().map(|slot| slot.value).collect();
    let number = |name: char| values.get((name as usize).checked_sub('a' as usize)?).copied();
    let mut rules: Vec<StepRule> = Vec::new();
    let mut ambiguous = false;
    for mark in worked.split("<<").skip(1) {
        let (calculation, result) = mark.split_once(">>")?.0.rsplit_once('=')?;
        let result: i64 = result.trim().parse().ok()?;
        let mut operand = |value: i64, rules: &[StepRule]| {
            let results = calculate(rules, &number)?;
            let earlier: Vec<usize> = (0..results.len()).filter(|index| results[*index].result == value).collect();
            let slot = slots.iter().position(|slot| slot.value == value);
            // With other numbers, what is equal here would differ: which one was meant?
            let otherwise = slot.is_some() || is_implied(value, question);
            ambiguous |= earlier.len() + usize::from(otherwise) > 1;
            match (earlier.last(), slot) {
                (Some(index), _) => Some(Operand::Result(*index)),
                (None, Some(slot)) => slot_name(slot).map(Operand::Number),
                (None, None) => is_implied(value, question).then_some(Operand::Constant(value)),
            }
        };
        equation::append(calculation, &mut rules, &mut operand)?;
        if calculate(&rules, &number)?.last()?.result != result || rules.len() > 2 * MOST_STEPS {
            return None;
        }
    }
    if ambiguous {
        slots.iter_mut().for_each(|slot| slot.fixed = true);
    }
    // A result that nothing uses: some step is not marked, and what looks like a result elsewhere may be another number.
    let needed = equation::needed(&rules);
    (needed.len() == rules.len()).then(|| Template::new(pieces, slots, rules, answer)).flatten()
}

/// The text with holes for its numbers: equal numbers are one slot. `None` where something is no whole number.
fn split(question: &str) -> Option<(Vec<Piece>, Vec<Slot>)> {
    let mut pieces = Vec::new();
    let mut slots: Vec<Slot> = Vec::new();
    let mut plain = String::new();
    let mut rest = question;
    while let Some(first) = rest.chars().next() {
        let length = token_length(rest);
        let (token, after) = rest.split_at(length.max(first.len_utf8()));
        match wording::number(token).filter(|value| (1..=LARGEST).contains(value)) {
            Some(value) => {
                let digits = token.starts_with(|c: char| c.is_ascii_digit());
                if digits && !stands_alone(&plain, after) {
                    return None;
                }
                let slot = slots.iter().position(|slot| slot.value == value).unwrap_or_else(|| {
                    slots.push(Slot { value, fixed: is_implied(value, question) });
                    slots.len() - 1
                });
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
                pieces.push(Piece::Number { slot, in_words: !digits });
            }
            None if token.starts_with(|c: char| c.is_ascii_digit()) => return None,
            None => plain.push_str(token),
        }
        rest = after;
    }
    pieces.push(Piece::Text(plain));
    Some((pieces, slots))
}

/// The bytes of the word or number that a text begins with; zero for a sign.
fn token_length(text: &str) -> usize {
    let digits = text.starts_with(|c: char| c.is_ascii_digit());
    let mut end = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((index, c)) = chars.next() {
        let next_is_digit = chars.peek().is_some_and(|(_, next)| next.is_ascii_digit());
        let belongs = if digits { c.is_ascii_digit() || c == ',' && next_is_digit } else { c.is_alphabetic() };
        if !belongs {
            break;
        }
        end = index + c.len_utf8();
    }
    end
}

/// Whether digits are a whole number: no fraction, percentage, time of day or ordinal.
fn stands_alone(before: &str, after: &str) -> bool {
    let mut next = after.chars();
    let (first, second) = (next.next(), next.next());
    let parted = before.ends_with(['.', '/', ':', ',']) || before.ends_with(|c: char| c.is_alphanumeric());
    let goes_on = match first {
        Some('.' | ',') => second.is_some_and(|c| c.is_ascii_digit()),
        Some('%' | '/' | ':') => true,
        Some(c) => c.is_alphanumeric(),
        None => false,
    };
    let percent = after.trim_start().starts_with("percent");
    !(parted || goes_on || percent)
}

/// Words that stand for a number: with one of them in the text, an equal number may be either.
#[rustfmt::skip]
const IMPLIED: &[(i64, &[&str])] = &[
    (2, &["twice", "half", "double", "pair", "couple", "both", "halv", "two"]),
    (3, &["triple", "third", "thrice"]),
    (4, &["quarter", "fourth", "quadruple", "month", "square", "dog", "leg", "wheel"]),
    (5, &["fifth", "nickel", "weekday", "work"]),
    (7, &["week", "daily", "every day"]),
    (10, &["dime", "tenth", "decade"]),
    (12, &["dozen", "year", "month", "inch", "feet", "foot"]),
    (20, &["score"]), (24, &["day", "hour"]), (25, &["quarter"]), (30, &["month", "half"]), (36, &["yard"]), (52, &["week", "year"]),
    (60, &["hour", "minute"]), (100, &["cent", "dollar", "$", "meter"]), (365, &["year", "day"]), (1000, &["kilo", "liter"]),
];

fn is_implied(value: i64, question: &str) -> bool {
    let question = question.to_lowercase();
    let implied =
        IMPLIED.iter().any(|(number, words)| *number == value && words.iter().any(|word| question.contains(word)));
    implied || value == 1 || (1900..=2100).contains(&value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(question: &str, answer: &str, expected: Option<&str>) {
        let made = template(question, answer).and_then(|template| template.problem(&mut crate::seeded(1)));
        assert_eq!(made.as_ref().map(|problem| problem.question.as_str()), expected, "{question}");
    }

    #[test]
    fn only_what_is_understood_is_renumbered() {
        let answer = "He has <<31-6=25>>25. Then <<25*3=75>>75.\n#### 75";
        let text = "Kofi bakes 31 rolls, eats six and packs the rest three times. How many is that?";
        let made = template(text, answer).unwrap().problem(&mut crate::seeded(1)).unwrap();
        assert_ne!(made.question, text);
        assert!(made.steps.iter().all(ProblemStep::holds), "{made:?}");
        check("He pays 5% of 40.", "<<40/20=2>>2\n#### 2", None);
        check("He pays 1/2 of 40.", "<<40/2=20>>20\n#### 20", None);
        check("He pays 2.5 of 40.", "<<40-2.5=37.5>>\n#### 37", None);
        check("At 12:30 he pays 40 and 8.", "<<40+8=48>>48\n#### 48", None);
        check("He pays 40 and 8.", "<<40+8=49>>49\n#### 49", None);
        check("He pays 40 and 8.", "<<40+8=48>>48\n#### 50", None);
        check("He pays 40 and 8.", "no marks\n#### 48", None);
        // The 4 might be either number's: it stays.
        check(
            "He has 4 and 4 more, then pays 4 of 8.",
            "<<4+4=8>>8 <<8-4=4>>4\n#### 4",
            Some("He has 4 and 4 more, then pays 4 of 8."),
        );
    }

    use crate::problem::ProblemStep;

    proptest! {
        #[test]
        fn renumbered_equations_hold(seed: u64, a in 20i64..90, b in 2i64..9, c in 2i64..9) {
            let text = format!("Mia has {a} pens. She gives {b} to each of {c} boys. What remains?");
            let product = b * c;
            let rest = a - product;
            let answer = format!("<<{b}*{c}={product}>> <<{a}-{product}={rest}>>\n#### {rest}");
            if let Some(problem) = template(&text, &answer).and_then(|template| template.problem(&mut crate::seeded(seed))) {
                prop_assert!(problem.steps.iter().all(|step| step.holds() && step.result > 0));
                prop_assert_eq!(problem.steps.last().unwrap().result, problem.answer);
                prop_assert!(problem.numbers.contains(&problem.steps[0].left));
                prop_assert!(problem.numbers.contains(&problem.steps[1].left));
            }
        }

        #[test]
        fn never_panics(question in any::<String>(), answer in any::<String>(), marks in "(<<[0-9+*()=-]{0,9}>>){0,4}#### [0-9]{1,3}") {
            let _ = template(&question, &answer);
            let _ = template(&question, &marks);
        }
    }
}
