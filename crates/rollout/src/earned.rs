//! What teams earn, for callers that compare means and keep no traces.

use crate::case::Case;
use crate::env::{Rollout, RolloutEnv};
use crate::error::RolloutError;
use crate::request::RolloutRequest;
use crate::team::Team;
use lemon_exec::Orchestrator;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What a run earned, or a sum or mean of several.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Earned {
    /// The total reward.
    pub reward: f64,
    /// 1 if the answer is right.
    pub success: f64,
    /// Tokens that the whole run spent.
    pub tokens: f64,
}

impl Earned {
    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Earned) -> Earned {
        Earned {
            reward: self.reward + other.reward,
            success: self.success + other.success,
            tokens: self.tokens + other.tokens,
        }
    }

    /// Divided by a count.
    #[must_use]
    pub fn over(&self, count: f64) -> Earned {
        Earned { reward: self.reward / count, success: self.success / count, tokens: self.tokens / count }
    }
}

impl Rollout {
    /// What it earned; `None` where the outcome is unknown.
    pub fn earned(&self) -> Option<Earned> {
        let score = self.outcome.score()?;
        let tokens = self.summary.tokens.total as f64;
        score.reward.map(|reward| Earned { reward, success: score.success(), tokens })
    }
}

impl RolloutEnv {
    /// Runs a team given as text. `None`: the outcome is unknown.
    ///
    /// # Errors
    /// The store or the sandbox failed.
    pub async fn run(
        &self,
        case: &Case,
        text: &str,
        seed: u64,
        cancel: &CancellationToken,
    ) -> Result<Option<Earned>, RolloutError> {
        let request = RolloutRequest::new(case, Team::Text(text.to_owned()), seed);
        Ok(self.rollout(request.cancelled_by(cancel)).await?.earned())
    }

    /// The same for an orchestrator, which may write several rounds.
    ///
    /// # Errors
    /// The store or the sandbox failed.
    pub async fn run_written(
        &self,
        case: &Case,
        orchestrator: Arc<dyn Orchestrator>,
        seed: u64,
        cancel: &CancellationToken,
    ) -> Result<Option<Earned>, RolloutError> {
        Ok(self.rollout(RolloutRequest::new(case, orchestrator, seed).cancelled_by(cancel)).await?.earned())
    }

    /// The mean over these seeds. `None`: the outcome of one of them is unknown, or there are no seeds.
    ///
    /// # Errors
    /// The store or the sandbox failed.
    pub async fn mean(
        &self,
        case: &Case,
        text: &str,
        seeds: &[u64],
        cancel: &CancellationToken,
    ) -> Result<Option<Earned>, RolloutError> {
        let mut sum = Earned::default();
        for seed in seeds {
            let Some(earned) = self.run(case, text, *seed, cancel).await? else { return Ok(None) };
            sum = sum.plus(&earned);
        }
        Ok((!seeds.is_empty()).then(|| sum.over(seeds.len() as f64)))
    }
}
