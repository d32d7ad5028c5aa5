//! Rollouts that searching and learning need only a few figures of.

use lemon_exec::orchestrator::{Fixed, Orchestrator};
use lemon_rollout::{Case, RolloutEnv, RolloutError, RolloutRequest};
use lemon_spec::{Agent, Share};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What a token of a capacity costs against one of the smallest: the parameters of the recorded models, in billions.
/// Capacities beyond cost as much as the last.
pub(crate) const WEIGHTS: [u64; 3] = [1, 3, 8];

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Trial {
    /// `None`: unknown, which is missing data.
    pub right: Option<bool>,
    pub tokens: u64,
    /// Tokens by [`WEIGHTS`].
    pub weighted: u64,
}

/// Runs a team on a case and keeps nothing else. `None`: cancelled.
pub(crate) async fn run(
    env: &RolloutEnv,
    case: &Case,
    team: &Arc<dyn Orchestrator>,
    seed: u64,
    cancel: &CancellationToken,
) -> Result<Option<Trial>, RolloutError> {
    let rollout = env.rollout(RolloutRequest::new(case, team.clone(), seed).cancelled_by(cancel)).await?;
    if rollout.is_cancelled() {
        return Ok(None);
    }
    let weight = |capacity: usize| WEIGHTS.get(capacity).or(WEIGHTS.last()).copied().unwrap_or(1);
    let agents = rollout.summary.agents.iter();
    Ok(Some(Trial {
        right: rollout.outcome.score().map(|score| score.right),
        tokens: rollout.summary.tokens.total,
        weighted: agents.map(|agent| weight(agent.level).saturating_mul(agent.tokens())).sum(),
    }))
}

/// An orchestrator that writes this one team.
pub(crate) fn fixed(text: String) -> Arc<dyn Orchestrator> {
    Arc::new(Fixed { text, reviewer: None })
}

/// An agent that reads no other and does what its base role says.
pub(crate) fn agent(id: String, base: &str, capacity: &str) -> Agent {
    let (base, capacity) = (base.to_owned(), capacity.to_owned());
    let (after, tools) = (Vec::new(), Vec::new());
    Agent { id, base, role: None, duty: None, capacity, after, share: Share::Reply, tools }
}
