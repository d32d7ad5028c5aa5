//! The text of simulated replies: reasoning of a plausible length and a final answer. Every sentence says so little that it
//! fits any task; what matters to a team is the answer, the length and, in plans, the skills named.

use crate::item::{WorldItem, numbers_in};
use crate::skill::{SKILLS, TaskFamily};
use lemon_num::Random;

/// What a reply does with what was read.
pub(crate) enum Manner {
    Solve,
    /// It checks what it read.
    Check,
    /// It decides between what it read.
    Decide,
}

/// A reply of about this many characters that ends in an answer.
pub(crate) fn reply(
    item: &WorldItem,
    question: &str,
    manner: &Manner,
    answer: &str,
    length: f64,
    draws: &mut Random,
) -> String {
    let closing = match item.is_code() {
        true => format!("```python\n{answer}\n```"),
        false => format!("Answer: {answer}"),
    };
    let mut text = String::new();
    let (opening, sentences) = match manner {
        Manner::Solve => (OPENINGS, STEPS),
        Manner::Check => (CHECK_OPENINGS, CHECKS),
        Manner::Decide => (DECIDE_OPENINGS, CHECKS),
    };
    let numbers = numbers_in(question);
    let room = (length - closing.len() as f64).max(0.0) as usize;
    if room > 40 {
        text.push_str(draws.pick(opening).copied().unwrap_or_default());
    }
    let mut step = 1;
    // The last sentence ends half its length beyond on average; then come two line ends.
    while text.len() + HALF_A_SENTENCE + 2 < room {
        let sentence = draws.pick(sentences).copied().unwrap_or_default();
        let number = draws.pick(&numbers).map_or_else(|| "the value given".to_owned(), ToString::to_string);
        text.push_str(&format!("\nStep {step}: {}", sentence.replace("{}", &number)));
        step += 1;
    }
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text + &closing
}

/// A reply of about this many characters that was cut off before it states an answer.
pub(crate) fn unfinished(question: &str, length: f64, draws: &mut Random) -> String {
    let numbers = numbers_in(question);
    let mut text = draws.pick(OPENINGS).copied().unwrap_or_default().to_owned();
    while text.len() + HALF_A_SENTENCE < length as usize {
        let sentence = draws.pick(STEPS).copied().unwrap_or_default();
        let number = draws.pick(&numbers).map_or_else(|| "the value given".to_owned(), ToString::to_string);
        text.push_str(&format!("\nNext: {}", sentence.replace("{}", &number)));
    }
    text + "\nIt remains to"
}

/// A plan, or notes, that names what the task needs, or something else.
pub(crate) fn plan(item: &WorldItem, good: bool, length: f64, draws: &mut Random) -> String {
    let wrong: Vec<&str> = SKILLS
        .iter()
        .filter(|skill| skill.family == item.family && !item.needs.contains(skill))
        .map(|skill| skill.name)
        .collect();
    let skill = match (good, item.needs.first()) {
        (true, Some(need)) => Some(need.name),
        (false, _) => draws.pick(&wrong).copied(),
        (true, None) => None,
    };
    let mut text = String::from("1. Write down what is asked and what is given.");
    match skill {
        Some(skill) => text.push_str(&format!("\n2. This is a matter of {skill}: settle that part first.")),
        None => text.push_str("\n2. Take the parts in the order they are named."),
    }
    let mut number = 3;
    while text.len() + 50 < length as usize {
        text.push_str(&format!("\n{number}. {}", draws.pick(PLAN_STEPS).copied().unwrap_or_default()));
        number += 1;
    }
    text
}

/// Half the length of an average sentence, with its number.
const HALF_A_SENTENCE: usize = 23;

/// Which sentences would fit a family is not told apart: the graders read the answer alone.
const OPENINGS: &[&str] = &[
    "Let me take this in order.",
    "First I write down what is given.",
    "I begin with what is asked.",
    "The task has a few parts; here they are one by one.",
];
const STEPS: &[&str] = &[
    "start from {} and carry it forward.",
    "combine {} with the result so far.",
    "this follows directly from {}.",
    "set {} against what was found before.",
    "the part about {} is settled by that.",
    "bring in {} and simplify.",
    "check that {} is used in the right unit.",
    "what is left is to put {} in its place.",
];
const CHECK_OPENINGS: &[&str] = &[
    "I go through the work before me line by line.",
    "I derive the result a second time and compare.",
    "I look for the first step that does not follow.",
];
const DECIDE_OPENINGS: &[&str] =
    &["I weigh the answers before me.", "The answers differ in one step; I look at that one."];
const CHECKS: &[&str] = &[
    "the use of {} was looked at again.",
    "put {} back in to see whether it fits.",
    "estimate with {} to see whether the size is right.",
    "the step with {} was derived another way.",
    "compare what each says about {}.",
];
const PLAN_STEPS: &[&str] = &[
    "Carry the result on to the next part.",
    "Check the unit before going on.",
    "Note each intermediate result.",
    "Put the result back into the question.",
];

/// What a role hands on where it hands on no answer.
pub(crate) fn hands_on_notes(base: &str, family: TaskFamily) -> bool {
    match base {
        "planner" | "decomposer" => true,
        "tester" => family == TaskFamily::Coding,
        _ => false,
    }
}
