//! Questions of our own in the shape of each public set, as many as wanted.
//!
//! `seed → stories, facts and programs with drawn words and numbers → records in the public formats → items`. The records
//! go through the same readers as the published files. Nothing of a published set is in here.

mod draw;
mod everyday;
mod facts;
mod programs;
mod stories;
mod sum;
mod tell;
mod things;

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::{Item, SetName, item::letter, record};
pub use everyday::{Everyday, everyday};
use lemon_num::Random;
use stories::{ALGEBRA, ASIDES, BASIC, LONGER, MONEY, TWO_STEPS};
use tell::Told;

/// Draws before a question that was there before is taken all the same.
const MOST_DRAWS: usize = 40;

/// So many items in the shape of a set. The same seed gives the same items, and more of them begin with the fewer; a
/// question comes twice only where the stock is exhausted. A custom set gets word problems.
///
/// ```
/// use lemon_task::{SetName, Verdict, compose, gold_reply, grade};
///
/// let items = compose(SetName::Gsm8k, 3, 7);
/// let reply = gold_reply(&items[0]).unwrap_or_default();
/// assert_eq!(grade(&items[0], &reply).verdict, Verdict::Right);
/// ```
pub fn compose(set: SetName, count: usize, seed: u64) -> Vec<Item> {
    let mut known = HashSet::new();
    (0..count).filter_map(|position| item(set, position, seed, &mut known)).collect()
}

/// The item at a position. `None` only if the stock has a fault, which the tests exclude.
fn item(set: SetName, position: usize, seed: u64, known: &mut HashSet<String>) -> Option<Item> {
    let mut random = draw::random(seed, &format!("{set} {position}"));
    let mut last = None;
    for _ in 0..MOST_DRAWS {
        let Some(mut item) = draw(set, position, &mut random) else { continue };
        item.task.id = format!("{position}-{seed}");
        if known.insert(item.task.question.clone()) {
            return Some(item);
        }
        last = Some(item);
    }
    last
}

/// One item. `None`: what was drawn is no record of the set, and another is drawn.
fn draw(set: SetName, position: usize, random: &mut Random) -> Option<Item> {
    if set == SetName::Mmlu {
        let question = facts::question(random)?;
        let answer = letter(question.answer).to_string();
        let row = [question.text].into_iter().chain(question.options).chain([answer]).collect();
        return record::from_mmlu_row(question.subject, position, row).ok();
    }
    let record = match set {
        SetName::Svamp => {
            let told = with_asides(short(random)?, &[0, 0, 0, 1], random);
            json!({"Body": told.body, "Question": told.ask, "Answer": told.answer})
        }
        SetName::MultiArith => {
            let told = with_asides(two_steps(random)?, &[0, 0, 0, 1], random);
            json!({"sQuestion": question(&told), "lSolutions": [told.answer]})
        }
        SetName::Aqua => with_options(&with_asides(examination(random)?, &[0, 0, 1, 1, 2], random), random),
        SetName::HumanEval | SetName::HumanEvalPy => programs::record(position, random)?,
        SetName::Gsm8k | SetName::Custom | SetName::Mmlu => {
            let told = with_asides(long(random)?, &[0, 0, 1, 1, 2, 3], random);
            json!({"question": question(&told), "answer": format!("#### {}", told.answer)})
        }
    };
    record::from_json(set, position, record.to_string().as_bytes()).ok()
}

fn question(told: &Told) -> String {
    format!("{} {}", told.body, told.ask).trim().to_owned()
}

/// The story with so many sentences beside it as are drawn from `counts`, before it or behind it.
fn with_asides(mut told: Told, counts: &[usize], random: &mut Random) -> Told {
    let count = random.pick(counts).copied().unwrap_or_default();
    // Where the question stands in the body itself, nothing may come behind it.
    let may_follow = !told.ask.is_empty();
    for aside in random.some(ASIDES, count) {
        let Some(aside) = tell::Teller::new(random).fill(aside) else { continue };
        told.body = match may_follow && random.percent(60) {
            true => format!("{} {aside}", told.body),
            false => format!("{} {}", tell::sentences(&aside), told.body),
        };
    }
    told
}

/// One step, often with a number that is not needed.
fn short(random: &mut Random) -> Option<Told> {
    match random.below(10) {
        0..7 => tell::tell(random.pick(BASIC)?, random),
        7 => tell::tell(random.pick(TWO_STEPS)?, random),
        _ => stories::chain(1, 60, random),
    }
}

fn two_steps(random: &mut Random) -> Option<Told> {
    match random.below(10) {
        0..6 => tell::tell(random.pick(TWO_STEPS)?, random),
        6..8 => tell::tell(random.pick(MONEY)?, random),
        _ => stories::chain(2, 0, random),
    }
}

/// Two steps and more.
fn long(random: &mut Random) -> Option<Told> {
    match random.below(10) {
        0..6 => longer(random),
        _ => {
            let steps = 2 + random.below(4);
            stories::chain(steps, 25, random)
        }
    }
}

/// A story of several steps.
fn longer(random: &mut Random) -> Option<Told> {
    let stock = *random.pick(&LONGER)?;
    tell::tell(random.pick(stock)?, random)
}

/// A problem in the manner of examinations.
fn examination(random: &mut Random) -> Option<Told> {
    match random.below(10) {
        0..6 => tell::tell(random.pick(ALGEBRA)?, random),
        6..9 => longer(random),
        _ => {
            let steps = 1 + random.below(3);
            stories::chain(steps, 0, random)
        }
    }
}

/// In so many of a hundred, the last option is that none is right; in so many of those, that is the truth.
const NONE_OFFERED: usize = 12;
const NONE_RIGHT: usize = 40;

/// A record of AQuA: five options, each with its letter.
fn with_options(told: &Told, random: &mut Random) -> Value {
    let mut values = near_misses(told.answer, &told.given, 4, random);
    let none = random.percent(NONE_OFFERED);
    let mut right = random.below(if none { 4 } else { 5 });
    let mut options: Vec<String> = if none && random.percent(NONE_RIGHT) {
        right = 4;
        values.iter().map(|value| with_unit(*value, told.unit)).collect()
    } else {
        values.insert(right.min(values.len()), told.answer);
        values.truncate(if none { 4 } else { 5 });
        values.iter().map(|value| with_unit(*value, told.unit)).collect()
    };
    if none {
        options.push("None of these".to_owned());
    }
    let lettered: Vec<String> =
        options.iter().enumerate().map(|(at, option)| format!("{}){option}", letter(at))).collect();
    json!({"question": question(told), "options": lettered, "correct": letter(right).to_string()})
}

fn with_unit(value: i64, unit: &str) -> String {
    match unit {
        "$" => format!("${value}"),
        unit => format!("{value}{unit}"),
    }
}

/// Numbers that a slip leads to, all different from the answer and each other.
fn near_misses(answer: i64, given: &[i64], count: usize, random: &mut Random) -> Vec<i64> {
    let first = given.first().copied().unwrap_or(2);
    let last = given.last().copied().unwrap_or(3);
    let slips = [
        answer + first,
        answer - first,
        answer + last,
        answer - last,
        answer * 2,
        answer / 2,
        answer + 1,
        answer - 1,
        answer + 10,
        answer - 10,
        answer + answer / 10,
        answer - answer / 5,
        first * last,
    ];
    let fits = |value: &i64| *value > 0 && *value != answer;
    let mut values: Vec<i64> = Vec::new();
    let more = (2..).map(|step| answer + step);
    for value in random.some(&slips, slips.len()).into_iter().chain(more).filter(fits) {
        if values.len() == count {
            break;
        }
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

#[cfg(test)]
mod tests;
