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
}

impl Default for FieldStart {
    fn default() -> Self {
        FieldStart { slots: 4, kinds: 4, first: FirstTeams::Large, lean: 1.0 }
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
