//! What a recipe says about a new table.

use serde::{Deserialize, Serialize};

/// A table of choices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FieldStart {
    /// Agents that a round can have.
    pub slots: usize,
    /// Kinds of task that the table distinguishes, by estimated difficulty.
    pub kinds: usize,
    /// The teams that it favours at first.
    pub first: FirstTeams,
    /// How strongly, in logits.
    pub lean: f64,
    /// Base roles that an agent can have: the first so many of solver, expert, critic, verifier, planner.
    #[serde(skip_serializing_if = "is_all_bases")]
    pub bases: usize,
    /// Duties that an agent can have: the first so many of none, what the task needs, what it does not need.
    #[serde(skip_serializing_if = "is_all_duties")]
    pub duties: usize,
    /// Whether a choice depends on the choices before it in the same text (an autoregressive table). The logit of a value is then
    /// its own plus one weight for every earlier choice.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub conditioned: bool,
    /// Whether agents and judges can read other agents. Without, every call is about the task alone, so that recorded calls
    /// answer all of them; the answer of a later round is then that of all rounds.
    #[serde(skip_serializing_if = "is_true")]
    pub readers: bool,
}

const BASES: usize = super::layout::BASES.len();
const DUTIES: usize = super::layout::DUTIES.len();

fn is_all_bases(bases: &usize) -> bool {
    *bases == BASES
}

fn is_all_duties(duties: &usize) -> bool {
    *duties == DUTIES
}

fn is_true(value: &bool) -> bool {
    *value
}

impl Default for FieldStart {
    fn default() -> Self {
        let (first, lean) = (FirstTeams::Large, 1.0);
        FieldStart { slots: 4, kinds: 4, first, lean, bases: BASES, duties: DUTIES, conditioned: false, readers: true }
    }
}

/// What a table writes at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FirstTeams {
    /// Large teams of strong agents, as a careful teacher would write them.
    #[default]
    Large,
    /// One cheap agent.
    Lean,
    /// Anything.
    Uniform,
}
