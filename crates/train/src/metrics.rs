//! The metrics of training: one line of `metrics.jsonl` for each step. They follow from the recipe and the seed. Durations are in
//! `timing.jsonl` ([`Timing`]).

use lemon_credit::economy::FamilyReport;
use lemon_credit::guard::Information;
use lemon_spec::edit::Family;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one step did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepMetrics {
    /// The step, from 1.
    pub step: u64,
    /// The teams that it sampled.
    pub rollouts: Means,
    /// Worker tokens really spent on them.
    pub rollout_tokens: u64,
    /// Worker tokens really spent on counterfactuals.
    pub credit_tokens: u64,
    /// Worker tokens really spent since the first step, on both.
    pub worker_tokens: u64,
    /// Tokens that the policy wrote, scored and learned from in the step.
    #[serde(default)]
    pub policy_tokens: u64,
    /// What decisions tell about the questions, by decision: near 0 the policy decides the same for every question.
    #[serde(default)]
    pub information: BTreeMap<String, Information>,
    /// The share of the tokens of all replies that came from the cache.
    pub reused: f64,
    /// The counterfactuals that were purchased, and why, by family.
    pub families: BTreeMap<Family, FamilyReport>,
    /// The weight of the local term.
    pub lambda: f64,
    pub learning_rate: f64,
    pub loss: f64,
    pub gradient_norm: f64,
    /// Mean entropy of a choice, in nats.
    pub entropy: f64,
    /// The share of tokens whose ratio was clipped.
    pub clipped: f64,
    /// The mean of what tokens count because they were drawn under a grammar that the policy does not know: how much of its
    /// probability the grammar left. Only where another program samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Where texts are scored again before they are learned from: how far the log-probabilities of sampler and trainer are apart, on
    /// average …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<f64>,
    /// … and the share of tokens whose two probabilities have a quotient outside of 0.9 to 1.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<f64>,
    /// Mean divergence from the policy that wrote.
    pub kl_old: f64,
    /// Mean divergence from the reference policy, where that is measured.
    pub kl_reference: f64,
    /// Runs without a known reward: they have no part in the step.
    pub unmeasured: usize,
    /// Whether the update was skipped because a number was not finite.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// The held-out evaluation after the step, where there was one.
    #[serde(default, rename = "look", alias = "held_out", skip_serializing_if = "Option::is_none")]
    pub held_out: Option<Means>,
}

/// Means over runs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Means {
    /// Runs behind them.
    pub runs: usize,
    pub reward: f64,
    /// The share of right answers.
    pub success: f64,
    /// Tokens of all replies of a run, reused or not: what the team costs.
    pub tokens: f64,
    /// The same in tokens of the weakest capacity.
    pub cost: f64,
    /// The share of specifications that were valid.
    pub valid: f64,
    /// Agents of a run.
    pub agents: f64,
    /// Rounds of a run.
    pub rounds: f64,
    /// The share of runs that asked for a second round.
    pub review: f64,
}

/// Where the time of a step went, in seconds. One line of `timing.jsonl`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Timing {
    /// The step, from 1.
    pub step: u64,
    /// Writing teams.
    pub sampling: f64,
    /// Running them.
    pub running: f64,
    /// Running counterfactuals.
    pub credit: f64,
    /// Scoring and moving weights.
    pub update: f64,
    /// Evaluating on held-out tasks, and writing checkpoints.
    pub other: f64,
}

/// A team for a task as it was written at the beginning and at the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BeforeAfter {
    /// The set the task comes from.
    pub set: String,
    pub question: String,
    /// The specifications of the first policy, by round.
    pub before: Vec<String>,
    /// Those of the last.
    pub after: Vec<String>,
}
