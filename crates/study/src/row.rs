//! What a study keeps of each training run: one JSON line.

use lemon_credit::economy::FamilyReport;
use lemon_spec::edit::Family;
use lemon_train::metrics::Means;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One training run of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyRow {
    /// The study: `table`, `map`, `language`, `stop`.
    pub study: String,
    /// The regime, as `name=value` pairs in a fixed order; empty where there is only one.
    pub regime: String,
    /// What was trained: `full`, `plain`, `no-agent`, …
    pub arm: String,
    /// The seed. Runs of different arms with the same regime and seed are pairs: the same tasks in the same order.
    pub seed: u64,
    /// Steps taken.
    pub steps: u64,
    /// Worker tokens spent on rollouts.
    pub rollout_tokens: u64,
    /// Worker tokens spent on counterfactuals.
    pub credit_tokens: u64,
    /// What held-out tasks gave before training.
    pub before: Means,
    /// What they gave after it.
    pub after: Means,
    /// Looks on the way.
    pub curve: Vec<EvalPoint>,
    /// What credit bought over the whole run, by family: counts and tokens are sums, the rest means over steps.
    pub families: BTreeMap<Family, FamilyReport>,
}

/// A look at held-out tasks on the way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EvalPoint {
    /// After so many steps.
    pub step: u64,
    /// … and so many worker tokens.
    pub worker_tokens: u64,
    /// What it showed.
    pub means: Means,
}
