//! Where teams are run: a task, the texts of its rounds, a seed, and what has been asked before.

use async_trait::async_trait;
use lemon_credit::reward::nominal_tokens;
use lemon_eval::{Case, EvalError};
use lemon_exec::orchestrator::{Draft, Orchestrator, OrchestratorError, WriteContext};
use lemon_exec::store::RunMeta;
use lemon_exec::worker::{AskError, Reply, Request, Worker};
use lemon_exec::{Job, ReplyCache, fresh_id};
use lemon_sft::trial::Trials;
use lemon_trace::{AgentSummary, EventKind, Failure, FailureKind, StopReason, Summary, Trace};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Runs teams whose rounds are all written.
pub struct Arena {
    /// Who runs and grades.
    pub trials: Trials,
    /// Ends everything early.
    pub cancel: CancellationToken,
}

/// What a run came to.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// `None`: nobody can tell. It was cancelled, or its workers were not there.
    pub outcome: Option<Outcome>,
    /// Why nobody can tell, where a worker is to blame.
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
    /// The same in tokens of the weakest level.
    pub cost: f64,
    /// The share of texts that were valid.
    pub valid: f64,
}

/// Who pays for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pay {
    /// Workers are asked what memory does not know.
    Workers,
    /// Nobody: what memory does not know stays unknown, and so does the outcome.
    Nobody,
}

impl Arena {
    /// An arena for these trials.
    pub fn new(trials: Trials, cancel: CancellationToken) -> Self {
        Arena { trials, cancel }
    }

    /// Runs rounds that are written.
    pub(crate) async fn run(
        &self,
        case: &Case,
        texts: &[String],
        seed: u64,
        memory: &Arc<ReplyCache>,
        pay: Pay,
    ) -> Result<Run, EvalError> {
        let mut runner = self.trials.evaluator.runner(Arc::new(Rounds { texts: texts.to_vec() }));
        runner.reply_cache = Some(memory.clone());
        if pay == Pay::Nobody {
            runner.backend.worker = Arc::new(NobodyThere(runner.backend.worker));
            runner.store = None;
        }
        let job = Job {
            run_id: format!("t-{}", fresh_id()),
            task_id: format!("{}/{}", case.set, case.item.task.id),
            question: case.item.task.question.clone(),
            seed,
            meta: RunMeta { budget: runner.settings.budget, ..RunMeta::default() },
        };
        let trace = runner.run(&job, &self.cancel, None).await.map_err(EvalError::from)?;
        self.outcome(case, &trace)
    }

    fn outcome(&self, case: &Case, trace: &Trace) -> Result<Run, EvalError> {
        let summary = trace.summary();
        let failure = summary.agents.iter().filter_map(|agent| agent.failure.as_ref()).find(|it| is_absence(it.kind));
        let failure = failure.cloned();
        let spent = summary.tokens.total;
        let cancelled = summary.stop_reason.is_none_or(|reason| reason == StopReason::Cancelled);
        let earned = if failure.is_some() || cancelled { None } else { self.trials.earned(case, trace)? };
        let outcome = earned.filter(|earned| earned.reward.is_finite()).map(|earned| {
            let nominal = |agent: &AgentSummary| nominal_tokens(agent).unwrap_or_else(|| agent.tokens());
            let weights = &self.trials.rewards.level_weights;
            let weight = |level: usize| weights.get(level).or(weights.last()).copied().unwrap_or(1.0);
            let count = |is: fn(&EventKind) -> bool| trace.events.iter().filter(|it| is(&it.kind)).count() as f64;
            let written = count(|kind| matches!(kind, EventKind::Decision { .. }));
            let refused = count(|kind| matches!(kind, EventKind::Rejection { .. }));
            Outcome {
                reward: earned.reward,
                success: earned.success,
                tokens: summary.agents.iter().map(nominal).sum(),
                cost: summary.agents.iter().map(|agent| weight(agent.level) * nominal(agent) as f64).sum(),
                valid: if written > 0.0 { 1.0 - refused / written } else { 0.0 },
            }
        });
        Ok(Run { outcome, failure, summary, spent })
    }
}

/// Whether a failure says nothing about the team: nobody was there, or nobody would answer.
fn is_absence(kind: FailureKind) -> bool {
    match kind {
        FailureKind::Unreachable
        | FailureKind::Timeout
        | FailureKind::RateLimited
        | FailureKind::ServerError
        | FailureKind::Loading
        | FailureKind::Unauthorized
        | FailureKind::CutShort
        | FailureKind::NotRecorded
        | FailureKind::Cancelled
        | FailureKind::Orchestrator => true,
        FailureKind::Refused
        | FailureKind::SchemaRefused
        | FailureKind::Malformed
        | FailureKind::Empty
        | FailureKind::Truncated
        | FailureKind::ParentFailed
        | FailureKind::Budget => false,
    }
}

/// Rounds that are written already. A run that asks for one more ends with what there is.
struct Rounds {
    texts: Vec<String>,
}

#[async_trait]
impl Orchestrator for Rounds {
    async fn draft(&self, brief: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        let text = brief.round.checked_sub(1).and_then(|at| self.texts.get(at as usize)).cloned();
        Ok(text.map(|text| Draft::Learned { text, model: "student".to_owned() }))
    }
}

/// In the place of workers: knows nothing but what their calls hang on.
struct NobodyThere(Arc<dyn Worker>);

#[async_trait]
impl Worker for NobodyThere {
    async fn ask(&self, _: &Request) -> Result<Reply, AskError> {
        Err(AskError::free(FailureKind::NotRecorded, "memory does not hold this call"))
    }

    fn cache_key(&self, request: &Request) -> Option<Vec<u8>> {
        self.0.cache_key(request)
    }
}
