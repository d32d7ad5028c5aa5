//! Runs that are tried and forgotten: what learning and searching need to know of a run.

use crate::evaluate::{Case, EvalError, Evaluator};
use crate::grader::Grader;
use lemon_exec::orchestrator::{Fixed, Orchestrator};
use lemon_spec::{Agent, Share};
use lemon_trace::StopReason;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// What a token of a level costs against one of the smallest: the parameters of the recorded models, in billions. Levels
/// beyond cost as much as the last.
pub(crate) const WEIGHTS: [u64; 3] = [1, 3, 8];

/// Runs teams without keeping anything.
pub(crate) struct Trials<'a> {
    evaluator: &'a Evaluator,
    cancel: &'a CancellationToken,
    /// Programs that were run already: simulated workers write the same few again and again.
    graded: Mutex<HashMap<String, bool>>,
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Outcome {
    pub right: bool,
    pub tokens: u64,
    /// Tokens by [`WEIGHTS`].
    pub weighted: u64,
}

impl<'a> Trials<'a> {
    pub fn new(evaluator: &'a Evaluator, cancel: &'a CancellationToken) -> Self {
        Trials { evaluator, cancel, graded: Mutex::default() }
    }

    /// Runs a team on a case. `None`: cancelled.
    pub async fn run(
        &self,
        case: &Case,
        team: &Arc<dyn Orchestrator>,
        seed: u64,
    ) -> Result<Option<Outcome>, EvalError> {
        let Some(trace) = self.evaluator.run(case, team.clone(), seed, None, self.cancel).await? else {
            return Ok(None);
        };
        let summary = trace.summary();
        if summary.stop_reason == Some(StopReason::Cancelled) {
            return Ok(None);
        }
        let right = match &summary.answer {
            Some(answer) => self.grade(case, answer)?,
            None => false,
        };
        let weight = |level: usize| WEIGHTS.get(level).or(WEIGHTS.last()).copied().unwrap_or(1);
        let weighted = summary.agents.iter().map(|agent| weight(agent.level).saturating_mul(agent.tokens())).sum();
        Ok(Some(Outcome { right, tokens: summary.tokens.total, weighted }))
    }

    fn grade(&self, case: &Case, answer: &str) -> Result<bool, EvalError> {
        if let Some(right) = Grader::quick(&case.item, answer) {
            return Ok(right);
        }
        let key = format!("{}/{}\n{answer}", case.set, case.item.position);
        let known = || self.graded.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known().get(&key).copied();
        if let Some(right) = before {
            return Ok(right);
        }
        let right = self.evaluator.grader.grade(&case.item, answer)?.right;
        known().insert(key, right);
        Ok(right)
    }
}

/// Whoever writes this one team.
pub(crate) fn fixed(text: String) -> Arc<dyn Orchestrator> {
    Arc::new(Fixed { text, reviewer: None })
}

/// An agent that reads nobody and does what its base role says.
pub(crate) fn agent(id: String, base: &str, capacity: &str) -> Agent {
    let (base, capacity) = (base.to_owned(), capacity.to_owned());
    Agent { id, base, role: None, duty: None, capacity, after: Vec::new(), share: Share::Reply }
}
