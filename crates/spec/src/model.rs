//! The values of a specification, without positions: what [`crate::render`] writes and parsing reads back equal.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A team as the orchestrator wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The agents, in the order written; an agent reads only earlier ones.
    pub agents: Vec<Agent>,
    /// Whose results become the answer, and how. Where the text leaves it out: the sinks of the team.
    pub answer: Answer,
    /// What happens after this round.
    #[serde(default)]
    pub next: Next,
}

/// One agent of a team.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Unique in the run: a letter, then letters, digits, `_` or `-`.
    pub id: String,
    /// The entry of the role library it inherits from.
    pub base: String,
    /// Who it is. `None` (written `~` or left out) inherits the base role's title.
    pub role: Option<String>,
    /// What it must do. `None` (written `~` or left out) inherits the base role's duty.
    pub duty: Option<String>,
    /// The capacity that serves it.
    pub capacity: String,
    /// The earlier agents whose output it reads.
    #[serde(default)]
    pub after: Vec<String>,
    /// What its children see of its output.
    #[serde(default)]
    pub share: Share,
    /// The tools it may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
}

/// What an agent's children see of its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    /// All of the reply.
    #[default]
    Reply,
    /// The extracted answer only.
    Answer,
}

/// Whose results become the answer, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The agents whose results count.
    pub from: Vec<String>,
    /// How one answer is made of theirs.
    pub by: AnswerRule,
}

/// How one answer is made of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnswerRule {
    /// The last of them that succeeded.
    #[default]
    Last,
    /// The extracted answer whose agents are surest together where all say how sure they are, otherwise the most frequent; of
    /// several that of the higher capacity, then of the earlier agent.
    Vote,
    /// One more call, in the base role `judge`, reads them and decides.
    Judge,
    /// The program that passes most of the examples in the question, which are run; of equals the first. For tasks that ask for code.
    Test,
}

/// What happens after a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Next {
    /// The answer of this round is the answer of the run.
    #[default]
    Stop,
    /// The orchestrator reads the results and writes another round.
    Review,
}

/// A word that is none of those the field can hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown word `{0}`")]
pub struct UnknownWord(pub String);

/// The names of an enum's values as the language writes them.
macro_rules! words {
    ($type:ident { $($variant:ident = $word:literal),* }) => {
        impl $type {
            /// Every value, in a stable order.
            pub const ALL: &[$type] = &[$($type::$variant),*];

            /// As written in a specification.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($type::$variant => $word),*
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.as_str())
            }
        }

        impl From<$type> for &'static str {
            fn from(word: $type) -> &'static str {
                word.as_str()
            }
        }

        impl FromStr for $type {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                match word {
                    $($word => Ok($type::$variant),)*
                    _ => Err(UnknownWord(word.to_owned())),
                }
            }
        }
    };
}

words!(Share { Reply = "reply", Answer = "answer" });
words!(AnswerRule { Last = "last", Vote = "vote", Judge = "judge", Test = "test" });
words!(Next { Stop = "stop", Review = "review" });

impl AnswerRule {
    /// The rules that run no code, in the order of [`AnswerRule::ALL`].
    pub const WITHOUT_CODE: &[AnswerRule] = &[AnswerRule::Last, AnswerRule::Vote, AnswerRule::Judge];

    /// The rule that holds where the text names none.
    pub(crate) fn default_for(sources: usize) -> AnswerRule {
        if sources > 1 { AnswerRule::Vote } else { AnswerRule::Last }
    }
}

impl Agent {
    /// Whether `id` is a letter, then letters, digits, `_` or `-` (all ASCII).
    pub(crate) fn is_well_formed_id(id: &str) -> bool {
        id.starts_with(|first: char| first.is_ascii_alphabetic())
            && id.chars().all(|next| next.is_ascii_alphanumeric() || next == '_' || next == '-')
    }
}
