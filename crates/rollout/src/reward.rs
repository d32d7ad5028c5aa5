//! What a run earned, channel by channel. `docs/reward.md` says the same in words.
//!
//! Every channel is measured and logged on its own. One that cannot be measured in a run is absent, not zero.

mod channel;
mod collaboration;
mod measure;
mod weight;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use channel::{Channel, Channels};
pub use measure::{measure, nominal_tokens, team_tokens};
pub use weight::{Weight, Weights};

/// What somebody who knows the right answer says of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Grades {
    /// Whether the team's answer is right.
    pub team: Option<bool>,
    /// Whether an agent's own answer is right, by its id; agents without a graded answer are left out.
    pub agents: BTreeMap<String, bool>,
}

/// What the channels are measured by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RewardSettings {
    /// The capacity-weighted tokens at which the efficiency has fallen to 1/e.
    pub token_scale: f64,
    /// What a token of each capacity level counts, weakest first; the last holds for all stronger levels.
    pub level_weights: Vec<f64>,
    /// What an agent costs in the structure channel.
    pub agent_cost: f64,
    /// What a reference costs there.
    pub edge_cost: f64,
    /// The share of the team's outcome in the hybrid channel, from 0 to 1.
    pub hybrid_team: f64,
}

impl Default for RewardSettings {
    fn default() -> Self {
        // The levels count by the sizes of the models that usually serve them: 7, 14 and 32 billion parameters.
        RewardSettings {
            token_scale: 5_000.0,
            level_weights: vec![1.0, 2.0, 4.5],
            agent_cost: 1.0,
            edge_cost: 0.5,
            hybrid_team: 0.5,
        }
    }
}

#[cfg(test)]
mod tests;
