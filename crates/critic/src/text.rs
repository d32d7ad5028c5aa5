//! What a critic reads of a question and of a reply.

use lemon_exec::{Form, answer};
use lemon_num::fnv1a;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Buckets that words and pairs of words are hashed into.
pub(crate) const BUCKETS: usize = 1 << 13;
/// Plain features of a question.
pub(crate) const PLAIN_FEATURES: usize = 13;
/// A reply of at most so many characters is an answer, whatever it looks like.
const SHORT_REPLY: usize = 80;

/// Kinds of tasks that are estimated apart: they differ in what a vote means and in which levels help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Group {
    Number,
    /// One of five options or more.
    Options,
    /// One of two to four options.
    Few,
    /// A program.
    Code,
}

impl Group {
    pub const ALL: [Group; 4] = [Group::Number, Group::Options, Group::Few, Group::Code];

    /// The group of a task; `None`: no critic is trained for such tasks.
    pub fn of(form: Form, question: &str) -> Option<Group> {
        match form {
            Form::Number => Some(Group::Number),
            Form::Choice if options(question) >= 5 => Some(Group::Options),
            Form::Choice => Some(Group::Few),
            Form::Code => Some(Group::Code),
            Form::Open | Form::Short | Form::Json => None,
        }
    }

    /// Calls of each level at most. Programs cannot be voted on: one call answers such a task.
    pub fn most(self) -> [usize; 3] {
        match self {
            Group::Code => [0, 0, 1],
            Group::Number | Group::Options | Group::Few => crate::team::MOST,
        }
    }
}

fn options(question: &str) -> usize {
    let is_option = |line: &str| {
        let mut chars = line.trim_start_matches('(').chars();
        chars.next().is_some_and(|c| c.is_ascii_uppercase()) && matches!(chars.next(), Some(')' | '.'))
    };
    question.lines().filter(|line| is_option(line.trim())).count()
}

/// The features of a question.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QuestionText {
    /// Buckets and weights; the squares of the weights add up to 1.
    pub words: Vec<(u32, f64)>,
    pub plain: [f64; PLAIN_FEATURES],
    /// The numbers that it states.
    pub numbers: Vec<f64>,
}

pub(crate) fn read_question(question: &str, group: Group) -> QuestionText {
    let lower = question.to_lowercase();
    let words = tokens(&lower);
    let mut counts: BTreeMap<u32, f64> = BTreeMap::new();
    let mut count = |bytes: &mut dyn Iterator<Item = u8>| {
        // Below BUCKETS, hence a u32.
        *counts.entry((fnv1a(bytes) % BUCKETS as u64) as u32).or_default() += 1.0;
    };
    for word in &words {
        count(&mut word.bytes());
    }
    for pair in words.windows(2) {
        let [first, second] = pair else { continue };
        count(&mut first.bytes().chain([b' ']).chain(second.bytes()));
    }
    let norm = counts.values().map(|weight| weight * weight).sum::<f64>().sqrt().max(1e-12);
    let numbers: Vec<&String> = words.iter().filter(|word| word.starts_with('0')).collect();
    let is = |wanted: Group| f64::from(u8::from(group == wanted));
    let ln = |count: usize| (count as f64).ln_1p();
    let plain = [
        is(Group::Number),
        is(Group::Options),
        is(Group::Few),
        is(Group::Code),
        ln(question.chars().count()),
        ln(question.split_whitespace().count()),
        numbers.len() as f64 / 10.0,
        ln(numbers.len()),
        question.matches('.').count() as f64 / 10.0,
        question.matches('%').count() as f64,
        f64::from(u8::from(question.contains('$'))),
        numbers.iter().filter(|number| number.len() > 3).count() as f64 / 5.0,
        ln(question.lines().count()),
    ];
    let words = counts.into_iter().map(|(bucket, weight)| (bucket, weight / norm)).collect();
    QuestionText { words, plain, numbers: numbers_in(question) }
}

/// The numbers that a text states, thousands separators left out.
fn numbers_in(text: &str) -> Vec<f64> {
    let parts = text.split(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ',')));
    parts.filter_map(|part| part.trim_matches(['.', ',']).replace(',', "").parse().ok()).collect()
}

/// Words, numbers with their digits hidden, and single signs.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut last = None;
    for c in text.chars() {
        let kind = match c {
            _ if c.is_alphabetic() => Some('a'),
            _ if c.is_ascii_digit() => Some('0'),
            _ if c.is_whitespace() => None,
            _ => Some(' '),
        };
        let shown = if kind == Some('0') { '0' } else { c };
        match (kind, tokens.last_mut()) {
            (None, _) => {}
            (Some(kind), Some(token)) if kind != ' ' && last == Some(kind) => {
                if token.len() < 24 {
                    token.push(shown);
                }
            }
            _ => tokens.push(shown.to_string()),
        }
        last = kind;
    }
    tokens
}

/// The answer of a reply as votes compare it: a number, a letter. `None`: it states none, or it was cut off before it did.
pub fn stated_answer(reply: &str, form: Form, question: &str) -> Option<String> {
    let stated = answer::extract(reply).or_else(|| {
        let reply = reply.trim();
        let ended = reply.ends_with(['.', '!', ')', ']', '}', '*', '"', '$']);
        let last = reply.lines().rev().find(|line| !line.trim().is_empty())?;
        (ended || reply.chars().count() <= SHORT_REPLY).then(|| last.trim().to_owned())
    })?;
    let key = ballot(&stated, form, question);
    let valid = match form {
        Form::Number => key.parse::<f64>().is_ok_and(f64::is_finite),
        Form::Choice => key.chars().count() == 1 && key.chars().all(|c| c.is_ascii_alphabetic()),
        Form::Open | Form::Short | Form::Code | Form::Json => true,
    };
    valid.then_some(key)
}

fn ballot(stated: &str, form: Form, question: &str) -> String {
    let options = if form == Form::Choice { answer::options_in(question) } else { Vec::new() };
    answer::ballot(stated, form, &options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_are_compared_by_value() {
        let check = |reply: &str, form, expected: Option<&str>| {
            assert_eq!(stated_answer(reply, form, "").as_deref(), expected, "{reply}");
        };
        check("So it is 4 + 5.\nAnswer: 9 apples", Form::Number, Some("9"));
        check("That makes 9 apples in all.", Form::Number, Some("9"));
        check(
            "First, 4 + 5 = 9. Then we have to multiply this by the number of days in the week, which is",
            Form::Number,
            None,
        );
        check("```python\nx\n```\n\nAnswer: none, the program printed nothing", Form::Number, None);
        check("Answer: (B) helium", Form::Choice, Some("b"));
        check("Answer: I cannot say", Form::Choice, None);
    }

    #[test]
    fn numbers_are_read_off_the_question() {
        assert_eq!(numbers_in("Ann paid $1,250.50 for 3 of 7."), [1250.5, 3.0, 7.0]);
        assert_eq!(numbers_in("None, at all. 1.2.3"), [0.0; 0]);
    }

    #[test]
    fn questions_fall_into_groups() {
        assert_eq!(Group::of(Form::Number, "How many?"), Some(Group::Number));
        assert_eq!(Group::of(Form::Choice, "Which?\nA) 1\nB) 2\nC) 3\nD) 4"), Some(Group::Few));
        assert_eq!(Group::of(Form::Choice, "Which?\nA) 1\nB) 2\nC) 3\nD) 4\nE) 5"), Some(Group::Options));
        assert_eq!(Group::of(Form::Open, "Why?"), None);
    }

    proptest! {
        #[test]
        fn any_question_has_features_of_unit_length(question in "(?s).{0,200}") {
            let text = read_question(&question, Group::Number);
            let norm: f64 = text.words.iter().map(|(_, weight)| weight * weight).sum();
            prop_assert!(text.words.is_empty() || (norm - 1.0).abs() < 1e-9);
            prop_assert!(text.words.iter().all(|(bucket, _)| (*bucket as usize) < BUCKETS));
            prop_assert!(text.plain.iter().all(|value| value.is_finite()));
        }

        #[test]
        fn no_reply_breaks_the_reader(reply in "(?s).{0,300}") {
            for form in Form::ALL {
                stated_answer(&reply, form, "");
            }
        }
    }
}
