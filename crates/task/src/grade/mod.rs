//! Was the answer right? One grader that reads what people mean, and the public repositories' rules beside it.

pub(crate) mod choice;
mod legacy;
pub(crate) mod number;
mod place;
mod plain;

use serde::Serialize;

use crate::{
    Item, code,
    item::{Gold, letter},
};

/// What a reply is worth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grade {
    /// The verdict to report.
    pub verdict: Verdict,
    /// The verdict of the rule that the public multi-agent repositories use, quirks included; for comparison only.
    pub legacy: Verdict,
    /// The answer found in the reply: a number, a letter, a text or code.
    pub extracted: Option<String>,
    /// The answer that the legacy rule found.
    pub legacy_extracted: Option<String>,
}

/// Whether a reply is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The answer agrees with the gold.
    Right,
    /// It does not, or there is none.
    Wrong,
    /// The reply is code: only running its [`Program`](crate::Program) can tell.
    MustRun,
}

impl Verdict {
    /// Whether the answer is known to be right.
    pub fn is_right(self) -> bool {
        self == Verdict::Right
    }
}

impl From<bool> for Verdict {
    fn from(right: bool) -> Self {
        if right { Verdict::Right } else { Verdict::Wrong }
    }
}

/// Grades a reply.
pub fn grade(item: &Item, reply: &str) -> Grade {
    let (verdict, extracted) = judge(item, reply);
    let (legacy, legacy_extracted) = legacy::judge(item, reply);
    Grade { verdict, legacy, extracted, legacy_extracted }
}

fn judge(item: &Item, reply: &str) -> (Verdict, Option<String>) {
    match &item.gold {
        Gold::Number(gold) => {
            let found = number::answer(reply);
            (found.is_some_and(|found| found.agrees_with(gold)).into(), found.map(|found| found.to_string()))
        }
        Gold::Choice { options, answer } => {
            let found = choice::answer(reply, options);
            ((found == Some(*answer)).into(), found.map(|index| letter(index).to_string()))
        }
        Gold::Text(gold) => text_answer(reply, gold),
        Gold::Code(problem) => match code::extract(reply, &problem.entry_point) {
            Some(code) => (Verdict::MustRun, Some(code)),
            None => (Verdict::Wrong, None),
        },
    }
}

/// A text is right if the final answer, or the whole reply, is the gold but for case, spaces and punctuation.
fn text_answer(reply: &str, gold: &str) -> (Verdict, Option<String>) {
    let bare = |text: &str| plain::bare(text).to_lowercase();
    let gold = bare(gold);
    let text = plain::plain(reply);
    let last_line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let places = place::places(&text, place::ANSWER);
    let stated: Vec<&str> = match places.first() {
        Some(place) => place.readings().collect(),
        None => vec![text.as_str(), last_line],
    };
    let stated: Vec<String> = stated.into_iter().map(bare).filter(|stated| !stated.is_empty()).collect();
    let right = stated.contains(&gold);
    (right.into(), if right { Some(gold) } else { stated.into_iter().next_back() })
}

/// A reply that states the gold answer, for checking graders; `None` for code without a published solution.
pub fn gold_reply(item: &Item) -> Option<String> {
    match &item.gold {
        Gold::Number(gold) => Some(format!("The answer is {gold}.")),
        Gold::Choice { answer, .. } => Some(format!("The answer is {}.", letter(*answer))),
        Gold::Text(gold) => Some(format!("Answer: {gold}")),
        Gold::Code(problem) => {
            let solution = problem.solution.as_ref()?;
            Some(format!("```python\n{}{solution}\n```", problem.prompt))
        }
    }
}
