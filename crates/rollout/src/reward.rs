//! What a run earned, term by term. `docs/reward.md` says the same in words.
//!
//! Every term is measured and logged on its own. One that cannot be measured in a run is absent, not zero.
//!
//! To add a term to the program, add a row to the registry in `terms.rs`. To add one from outside, give
//! [`RewardSettings::with_term`] a function:
//!
//! ```
//! use lemon_rollout::reward::{RewardSettings, Weight};
//!
//! let settings = RewardSettings::default().with_term("calls", Weight::fixed(-0.01), |run| {
//!     Some(run.summary().calls as f64)
//! });
//! assert_eq!(settings.terms[0].name, "calls");
//! ```

mod channels;
mod graded_run;
mod measure;
mod terms;
mod weight;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use channels::Channels;
pub use graded_run::GradedRun;
pub use measure::{measure, nominal_tokens, team_tokens};
pub use terms::{Channel, REWARD_TERMS, RewardTerm};
pub use weight::{Weight, Weights};

/// Which answers of a run are right.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Grades {
    /// Whether the team's answer is right.
    pub team: Option<bool>,
    /// Whether an agent's own answer is right, by its id; agents without a graded answer are left out.
    pub agents: BTreeMap<String, bool>,
}

/// What the terms are measured by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RewardSettings {
    /// The capacity-weighted tokens at which the efficiency has fallen to 1/e.
    pub token_scale: f64,
    /// What a token of each capacity counts, weakest first; the last holds for all stronger capacities.
    pub level_weights: Vec<f64>,
    /// What an agent costs in the structure term.
    pub agent_cost: f64,
    /// What a reference costs there.
    pub edge_cost: f64,
    /// The share of the team's outcome in the hybrid term, from 0 to 1.
    pub hybrid_team: f64,
    /// Terms of the user, measured after those of the registry.
    #[serde(skip)]
    pub terms: Vec<CustomTerm>,
}

/// A reward term that a user of the library adds.
#[derive(Clone)]
pub struct CustomTerm {
    /// Its name in traces and reports. A name of the registry would hide that term there.
    pub name: String,
    /// How much it counts.
    pub weight: Weight,
    /// Measures it. `None`: it cannot be measured in this run, and contributes nothing.
    pub measure: Measure,
}

/// Measures a reward term of a graded run.
pub type Measure = Arc<dyn Fn(&GradedRun<'_>) -> Option<f64> + Send + Sync>;

impl RewardSettings {
    /// The same with one more term.
    #[must_use]
    pub fn with_term(
        mut self,
        name: impl Into<String>,
        weight: Weight,
        measure: impl Fn(&GradedRun<'_>) -> Option<f64> + Send + Sync + 'static,
    ) -> Self {
        self.terms.push(CustomTerm { name: name.into(), weight, measure: Arc::new(measure) });
        self
    }

    /// What a token of a capacity counts.
    pub fn token_weight(&self, capacity: usize) -> f64 {
        self.level_weights.get(capacity).or(self.level_weights.last()).copied().unwrap_or(1.0)
    }
}

impl Default for RewardSettings {
    fn default() -> Self {
        // The capacities count by the sizes of the models that mostly serve them: 7, 14 and 32 billion parameters.
        RewardSettings {
            token_scale: 5_000.0,
            level_weights: vec![1.0, 2.0, 4.5],
            agent_cost: 1.0,
            edge_cost: 0.5,
            hybrid_team: 0.5,
            terms: Vec::new(),
        }
    }
}

impl PartialEq for CustomTerm {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.weight == other.weight && Arc::ptr_eq(&self.measure, &other.measure)
    }
}

impl fmt::Debug for CustomTerm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CustomTerm").field("name", &self.name).field("weight", &self.weight).finish()
    }
}

#[cfg(test)]
mod tests;
