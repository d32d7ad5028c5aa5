//! From what a step measured to its lines in `metrics.jsonl` and `timing.jsonl`.

use crate::counterfactual::Counterfactuals;
use crate::episode::{Episode, Played};
use crate::evaluate::means;
use crate::information::of_episodes;
use crate::metrics::{StepMetrics, Timing};
use crate::recipe::Recipe;
use crate::signal::Mismatch;
use lemon_model::StepReport;
use std::time::Duration;

/// What a step measured.
pub(crate) struct StepRecord<'a> {
    pub recipe: &'a Recipe,
    /// The step, from 1.
    pub number: u64,
    pub learning_rate: f64,
    pub played: Played,
    pub counterfactuals: Counterfactuals,
    pub policy_tokens: u64,
    pub report: StepReport,
    /// What tokens count on average for being drawn from another distribution.
    pub ratio: Option<f64>,
    pub mismatch: Option<Mismatch>,
    /// The time that credit and update took.
    pub times: [Duration; 2],
}

impl StepRecord<'_> {
    /// The line of `metrics.jsonl`; `worker_tokens` includes those of this step.
    pub fn metrics(&self, episodes: &[Episode], worker_tokens: u64) -> StepMetrics {
        let means = means(episodes);
        let nominal = means.tokens * means.runs as f64;
        let spent = self.played.spent;
        // JSON has no notation for NaN and infinity; `skipped` records that there was one.
        let finite = |value: f64| if value.is_finite() { value } else { 0.0 };
        StepMetrics {
            step: self.number,
            rollouts: means,
            rollout_tokens: spent,
            credit_tokens: self.counterfactuals.spent,
            worker_tokens,
            policy_tokens: self.policy_tokens,
            information: of_episodes(episodes),
            reused: if nominal > 0.0 { (1.0 - spent as f64 / nominal).max(0.0) } else { 0.0 },
            families: self.counterfactuals.ledger.reports(),
            lambda: self.recipe.credit.lambda.at(self.number - 1),
            learning_rate: self.learning_rate,
            loss: finite(self.report.loss),
            gradient_norm: finite(self.report.gradient_norm),
            entropy: finite(self.report.entropy),
            clipped: finite(self.report.clipped),
            ratio: self.ratio.map(finite),
            gap: self.mismatch.map(|it| finite(it.gap)),
            outside: self.mismatch.map(|it| finite(it.outside)),
            kl_old: finite(self.report.kl_old),
            kl_reference: finite(self.report.kl_reference),
            unmeasured: episodes.len() - means.runs,
            skipped: self.report.skipped,
            held_out: None,
        }
    }

    /// The line of `timing.jsonl`, without the time of evaluations and checkpoints.
    pub fn timing(&self) -> Timing {
        let [credit, update] = self.times.map(|time| time.as_secs_f64());
        Timing {
            step: self.number,
            sampling: self.played.sampling.as_secs_f64(),
            running: self.played.running.as_secs_f64(),
            credit,
            update,
            other: 0.0,
        }
    }
}
