//! What training keeps of a rollout.

use lemon_exec::ReplyCache;
use lemon_rollout::{
    Case, Outcome as RolloutOutcome, Record, Replies, Rollout, RolloutEnv, RolloutError, RolloutRequest, RunOptions,
    Team, UnknownReason,
};
use lemon_trace::{EventKind, Failure, Spend, Summary, Trace};
use std::sync::Arc;

/// What a run came to.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// `None`: unknown. It was cancelled, or its workers failed.
    pub outcome: Option<Outcome>,
    /// Why it is unknown, where a worker is to blame.
    pub failure: Option<Failure>,
    /// What became of its agents.
    pub summary: Summary,
    /// Worker tokens that had to be paid.
    pub spent: u64,
}

/// What a run earned and what its team costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Outcome {
    pub reward: f64,
    pub success: f64,
    /// Tokens of all replies, reused or not.
    pub tokens: u64,
    /// The same in tokens of the weakest capacity.
    pub cost: f64,
    /// The same as users pay for them: a quarter of the prompt tokens, and the tokens of replies.
    pub weighted: f64,
    /// The share of texts that were valid.
    pub valid: f64,
}

/// Runs rounds that are written.
pub(crate) async fn run(
    env: &RolloutEnv,
    case: &Case,
    texts: Vec<String>,
    seed: u64,
    cache: Arc<ReplyCache>,
    replies: Replies,
) -> Result<Run, RolloutError> {
    let options = RunOptions { cache: Some(cache), replies, record: Record::Store("t"), ..RunOptions::default() };
    let rollout = env.rollout(RolloutRequest { case, team: Team::Rounds(texts), seed, options }).await?;
    Ok(Run::from(rollout))
}

/// Weighted tokens of all replies of a run, reused or not.
fn weighted(trace: &Trace) -> f64 {
    let of = |spend: &Spend| 0.25 * spend.tokens_in as f64 + spend.tokens_out as f64;
    let saved = |kind: &EventKind| match kind {
        EventKind::Return { saved: Some(saved), .. } => of(saved),
        _ => 0.0,
    };
    trace.events.iter().map(|event| of(&event.spend) + saved(&event.kind)).sum()
}

impl From<Rollout> for Run {
    fn from(rollout: Rollout) -> Run {
        let Rollout { trace, summary, outcome, .. } = rollout;
        let spent = summary.tokens.total;
        match outcome {
            RolloutOutcome::Unknown(UnknownReason::WorkerFailed(failure)) => {
                Run { outcome: None, failure: Some(failure), summary, spent }
            }
            RolloutOutcome::Unknown(_) => Run { outcome: None, failure: None, summary, spent },
            RolloutOutcome::Scored(score) => {
                let count = |is: fn(&EventKind) -> bool| trace.events.iter().filter(|it| is(&it.kind)).count() as f64;
                let written = count(|kind| matches!(kind, EventKind::Decision { .. }));
                let refused = count(|kind| matches!(kind, EventKind::Rejection { .. }));
                let outcome = score.reward.map(|reward| Outcome {
                    reward,
                    success: score.success(),
                    tokens: score.tokens,
                    cost: score.cost,
                    weighted: weighted(&trace),
                    valid: if written > 0.0 { 1.0 - refused / written } else { 0.0 },
                });
                Run { outcome, failure: None, summary, spent }
            }
        }
    }
}
