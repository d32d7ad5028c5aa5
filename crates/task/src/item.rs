//! A task and the gold answer that belongs to it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{SetName, grade::number::Quantity};

/// What a worker may see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The record's own id, else its position in the file as text.
    pub id: String,
    /// The whole question: options, one to a line, and instructions included.
    pub question: String,
    /// The subject, where the set has subjects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
}

/// A task with its gold answer, which only graders read.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// What a worker may see.
    pub task: Task,
    /// The position of the record in its official file (MMLU: in the sorted files of the split), from 0. Broken
    /// records count, so that a fault does not shift the items behind it.
    pub position: usize,
    pub(crate) set: SetName,
    pub(crate) gold: Gold,
}

/// What the right answer is, for worlds that have to make replies up. Workers that answer by themselves never see it.
#[derive(Clone, Debug, PartialEq)]
pub enum Key<'a> {
    /// A number, as it is written.
    Number(String),
    /// One of these options, by position.
    Choice {
        /// All of them.
        options: &'a [String],
        /// The right one.
        answer: usize,
    },
    Text(&'a str),
    /// A program.
    Code {
        /// The function asked for.
        entry_point: &'a str,
        /// The beginning of the program.
        prompt: &'a str,
        /// What completes it, where the set says.
        solution: Option<&'a str>,
    },
}

impl Item {
    /// A user's own question that asks for a number.
    pub fn of_number(id: String, question: String, answer: i64) -> Self {
        let gold = Gold::Number(Quantity::from(answer));
        Item { task: Task { id, question, subject: None }, position: 0, set: SetName::Custom, gold }
    }

    /// All of it, gold answer included, for a grader on another machine. An item itself does not serialise, so that no answer
    /// gets into a record by accident.
    pub fn sealed(&self) -> SealedItem {
        let Item { task, position, set, gold } = self.clone();
        SealedItem { task, position, set, gold }
    }

    /// The set it comes from.
    pub fn set(&self) -> SetName {
        self.set
    }

    /// The right answer.
    pub fn key(&self) -> Key<'_> {
        match &self.gold {
            Gold::Number(number) => Key::Number(number.to_string()),
            Gold::Choice { options, answer } => Key::Choice { options, answer: *answer },
            Gold::Text(text) => Key::Text(text),
            Gold::Code(problem) => Key::Code {
                entry_point: &problem.entry_point,
                prompt: &problem.prompt,
                solution: problem.solution.as_deref(),
            },
        }
    }
}

/// An item on its way to a grader on another machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealedItem {
    task: Task,
    position: usize,
    set: SetName,
    gold: Gold,
}

impl From<SealedItem> for Item {
    fn from(SealedItem { task, position, set, gold }: SealedItem) -> Self {
        Item { task, position, set, gold }
    }
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Gold {
    Number(Quantity),
    Choice { options: Vec<String>, answer: usize },
    Text(String),
    Code(Problem),
}

/// A programming problem: a prompt to complete and the test that decides.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Problem {
    pub prompt: String,
    pub entry_point: String,
    /// Defines `check(candidate)`. In the variant of 161 problems it also calls it.
    pub test: String,
    /// The body that follows the prompt, where the set has one.
    pub solution: Option<String>,
}

/// Says which kind of gold it is and not what it is: an item that ends up in a log or a prompt gives nothing away.
impl fmt::Debug for Gold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Gold::Number(_) => "Number(..)",
            Gold::Choice { .. } => "Choice(..)",
            Gold::Text(_) => "Text(..)",
            Gold::Code(_) => "Code(..)",
        })
    }
}

/// The letter of the option at `index`: A for 0.
pub(crate) fn letter(index: usize) -> char {
    u8::try_from(index).ok().filter(|index| *index < 26).map_or('?', |index| char::from(b'A' + index))
}
