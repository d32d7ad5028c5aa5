//! A task and the gold answer that belongs to it.

use std::fmt;

use serde::Serialize;

use crate::{SetName, grade::number::Quantity};

/// What a worker may see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Task {
    /// The record's own id, else its position in the file as text.
    pub id: String,
    /// The whole question: options, one to a line, and instructions included.
    pub question: String,
    /// The subject, where the set has subjects.
    #[serde(skip_serializing_if = "Option::is_none")]
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

#[derive(Clone, PartialEq)]
pub(crate) enum Gold {
    Number(Quantity),
    Choice { options: Vec<String>, answer: usize },
    Text(String),
    Code(Problem),
}

/// A programming problem: a prompt to complete and the test that decides.
#[derive(Clone, PartialEq)]
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
