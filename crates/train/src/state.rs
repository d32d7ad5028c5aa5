//! Where training stands: what a checkpoint holds beside the policy.

use crate::TrainContext;
use crate::metrics::{BeforeAfter, Means};
use crate::recipe::Recipe;
use crate::record::StepRecord;
use crate::result::{End, Trained};
use crate::signal::Signal;
use lemon_credit::economy::Economy;
use lemon_credit::guard::ValueBaselines;
use lemon_credit::model::RewardModel;
use lemon_rollout::Case;
use serde::{Deserialize, Serialize};

/// Held-out tasks whose teams are shown.
const SHOWN: usize = 12;

/// Where training stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct State {
    pub step: u64,
    pub rollout_tokens: u64,
    pub credit_tokens: u64,
    skipped: u64,
    pub economy: Economy,
    /// The running mean advantage of each value.
    #[serde(default)]
    pub values: ValueBaselines,
    /// What teams are worth beside others of their task.
    #[serde(default, skip_serializing_if = "is_untaught")]
    pub critic: RewardModel,
    /// The mean entropy of a choice in the last step.
    #[serde(default)]
    pub entropy: Option<f64>,
    /// Tokens that the policy wrote, scored and learned from.
    #[serde(default)]
    pub policy_tokens: u64,
    pub before: Option<Means>,
    /// Texts of the first policy for the shown held-out tasks.
    pub first_teams: Vec<Vec<String>>,
    pub after: Option<Means>,
    pub last_teams: Vec<Vec<String>>,
}

fn is_untaught(critic: &RewardModel) -> bool {
    *critic == RewardModel::default()
}

impl State {
    /// Worker tokens spent so far, on rollouts and counterfactuals.
    pub fn worker_tokens(&self) -> u64 {
        self.rollout_tokens + self.credit_tokens
    }

    /// Why training is over; `None`: it is not.
    pub fn end(&self, recipe: &Recipe) -> Option<End> {
        match recipe.worker_tokens {
            _ if self.step >= recipe.steps => Some(End::Steps),
            Some(most) if self.worker_tokens() >= most => Some(End::WorkerTokens),
            _ => None,
        }
    }

    /// Counts a step that was taken.
    pub fn advance(&mut self, step: &StepRecord<'_>, signal: &Signal) {
        self.values.add(&signal.values, step.recipe.credit.guard.memory);
        self.critic.add(&signal.lessons);
        self.entropy = Some(step.report.entropy).filter(|entropy| entropy.is_finite());
        self.policy_tokens += step.policy_tokens;
        self.step = step.number;
        self.rollout_tokens += step.played.spent;
        self.credit_tokens += step.counterfactuals.spent;
        self.skipped += u64::from(step.report.skipped);
    }

    /// What training came to. A run that was stopped before an evaluation has means of no runs.
    pub fn trained(&self, context: &TrainContext<'_>, end: End) -> Trained {
        let shown = shown(&context.held_out).zip(self.first_teams.iter().zip(&self.last_teams));
        let team = |(case, (before, after)): (&Case, (&Vec<String>, &Vec<String>))| BeforeAfter {
            set: case.set.to_string(),
            question: case.item.task.question.clone(),
            before: before.clone(),
            after: after.clone(),
        };
        Trained {
            steps: self.step,
            end,
            before: self.before.unwrap_or_default(),
            after: self.after.unwrap_or_default(),
            rollout_tokens: self.rollout_tokens,
            credit_tokens: self.credit_tokens,
            policy_tokens: self.policy_tokens,
            skipped: self.skipped,
            teams: shown.map(team).collect(),
        }
    }
}

/// Up to [`SHOWN`] of these, spread over all of them: tasks are sorted by set.
pub(crate) fn shown<T>(of: &[T]) -> impl Iterator<Item = &T> {
    of.iter().step_by(of.len().div_ceil(SHOWN).max(1))
}
