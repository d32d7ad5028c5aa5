//! The names of the task sets.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::TaskError;

/// A task set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SetName {
    /// Multiple choice in 57 subjects.
    Mmlu,
    /// Grade-school word problems.
    Gsm8k,
    /// Algebra with five options.
    Aqua,
    /// Word problems of several steps.
    #[serde(rename = "multiarith")]
    MultiArith,
    /// Short word problems with misleading numbers.
    Svamp,
    /// The 164 original programming problems.
    #[serde(rename = "humaneval")]
    HumanEval,
    /// The 161-problem variant that the multi-agent papers run: another order, doctests rewritten.
    #[serde(rename = "humaneval-py")]
    HumanEvalPy,
    /// A JSONL file of the user's own.
    Custom,
}

impl SetName {
    /// The sets with a public format, which excludes [`SetName::Custom`].
    pub const PUBLIC: [SetName; 7] = [
        SetName::Mmlu,
        SetName::Gsm8k,
        SetName::Aqua,
        SetName::MultiArith,
        SetName::Svamp,
        SetName::HumanEval,
        SetName::HumanEvalPy,
    ];

    /// The name on the command line and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            SetName::Mmlu => "mmlu",
            SetName::Gsm8k => "gsm8k",
            SetName::Aqua => "aqua",
            SetName::MultiArith => "multiarith",
            SetName::Svamp => "svamp",
            SetName::HumanEval => "humaneval",
            SetName::HumanEvalPy => "humaneval-py",
            SetName::Custom => "custom",
        }
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SetName {
    type Err = TaskError;

    /// Reads the name of a public set; a custom set is named by its file instead.
    fn from_str(name: &str) -> Result<Self, TaskError> {
        Self::PUBLIC.into_iter().find(|set| set.as_str() == name).ok_or_else(|| TaskError::UnknownSet {
            name: name.to_owned(),
            known: Self::PUBLIC.map(SetName::as_str).join(", "),
        })
    }
}
