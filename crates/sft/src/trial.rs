//! Runs that teach: a team on a task, and what it earned.

use lemon_credit::reward::{Grades, RewardSettings, Weights, measure};
use lemon_eval::{Case, EvalError, Evaluator, Grader};
use lemon_exec::orchestrator::{Fixed, Orchestrator};
use lemon_task::{Key, Program};
use lemon_trace::{AgentSummary, FailureKind, StopReason, Trace};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Runs teams on tasks and forgets them, but for what they earned.
pub struct Trials {
    /// Who runs and grades.
    pub evaluator: Evaluator,
    /// How rewards are measured.
    pub rewards: RewardSettings,
    /// How channels become one reward.
    pub weights: Weights,
    /// Programs that were run already: simulated workers write the same few again and again.
    graded: Mutex<HashMap<String, bool>>,
}

/// What a run earned.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Earned {
    /// The total reward.
    pub reward: f64,
    /// 1 if the answer is right.
    pub success: f64,
    /// Tokens of the whole run.
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

impl Trials {
    /// Trials with the default rewards.
    pub fn new(evaluator: Evaluator) -> Self {
        let (rewards, weights) = (RewardSettings::default(), Weights::default());
        Trials { evaluator, rewards, weights, graded: Mutex::default() }
    }

    /// Runs a team on a case. `None`: what it earned is not known; see [`Trials::earned`].
    ///
    /// # Errors
    /// The sandbox failed.
    pub async fn run(
        &self,
        case: &Case,
        text: &str,
        seed: u64,
        cancel: &CancellationToken,
    ) -> Result<Option<Earned>, EvalError> {
        self.run_written(case, Arc::new(Fixed { text: text.to_owned(), reviewer: None }), seed, cancel).await
    }

    /// The same with whoever writes the team, and further rounds of it.
    ///
    /// # Errors
    /// The sandbox failed.
    pub async fn run_written(
        &self,
        case: &Case,
        writer: Arc<dyn Orchestrator>,
        seed: u64,
        cancel: &CancellationToken,
    ) -> Result<Option<Earned>, EvalError> {
        let Some(trace) = self.evaluator.run(case, writer, seed, None, cancel).await? else { return Ok(None) };
        self.earned(case, &trace)
    }

    /// The mean of runs with these seeds. `None`: one of them earned nothing that is known, or there are no seeds.
    ///
    /// # Errors
    /// The sandbox failed.
    pub async fn mean(
        &self,
        case: &Case,
        text: &str,
        seeds: &[u64],
        cancel: &CancellationToken,
    ) -> Result<Option<Earned>, EvalError> {
        let mut sum = Earned::default();
        for seed in seeds {
            let Some(earned) = self.run(case, text, *seed, cancel).await? else { return Ok(None) };
            sum = sum.plus(&earned);
        }
        Ok((!seeds.is_empty()).then(|| sum.over(seeds.len() as f64)))
    }

    /// What a finished run earned. `None`: it was cancelled, or nobody here can tell: the world does not know the task, or a
    /// program would have to be run.
    ///
    /// # Errors
    /// The sandbox failed.
    pub fn earned(&self, case: &Case, trace: &Trace) -> Result<Option<Earned>, EvalError> {
        let summary = trace.summary();
        if summary.stop_reason.is_none_or(|reason| reason == StopReason::Cancelled) {
            return Ok(None);
        }
        let unknown = |agent: &AgentSummary| agent.failure.as_ref().is_some_and(|f| f.kind == FailureKind::NotRecorded);
        let is_program = matches!(case.item.key(), Key::Code { .. });
        if summary.agents.iter().any(unknown) || (is_program && !self.evaluator.grader.runs_programs()) {
            return Ok(None);
        }
        let right = match &summary.answer {
            Some(answer) => self.is_right(case, answer)?,
            None => false,
        };
        let grades = Grades { team: Some(right), agents: BTreeMap::new() };
        let total = measure(trace, &grades, &self.rewards).total(&self.weights, 0);
        let success = f64::from(u8::from(right));
        Ok(total.map(|reward| Earned { reward, success, tokens: summary.tokens.total as f64 }))
    }

    fn is_right(&self, case: &Case, answer: &str) -> Result<bool, EvalError> {
        if let Some(right) = Grader::quick(&case.item, answer) {
            return Ok(right);
        }
        // By its code and not by the whole reply, which talks around the same few programs.
        let Some(program) = Program::new(&case.item, answer) else { return Ok(false) };
        let key = format!("{}/{}\n{}", case.set, case.item.position, program.code);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::teach::fixture::Fixture as School;
    use lemon_task::{SetName, compose};

    const TEAM: &str = "agents:\n  - {id: a1, base: solver, capacity: large}\n";

    #[tokio::test]
    async fn a_run_earns_what_the_default_weights_say() {
        let school = School::new(&[SetName::Svamp], 5);
        for case in &school.cases {
            let earned = school.trials.run(case, TEAM, 1, &school.cancel).await.unwrap().unwrap();
            let cheap = 0.2 * (-4.5 * earned.tokens / 5000.0).exp();
            assert!((earned.reward - (earned.success + cheap - 0.005)).abs() < 1e-9, "{earned:?}");
            let mean = school.trials.mean(case, TEAM, &[1, 1], &school.cancel).await.unwrap().unwrap();
            assert!((mean.reward - earned.reward).abs() < 1e-12);
        }
        let refused = school.trials.run(&school.cases[0], "no team", 1, &school.cancel).await.unwrap().unwrap();
        assert_eq!((refused.reward, refused.success), (-1.0, 0.0));
    }

    #[tokio::test]
    async fn where_nobody_can_tell_nothing_was_earned() {
        let school = School::new(&[SetName::HumanEval], 2);
        let earned = |case: Case| async {
            let case = case;
            school.trials.run(&case, TEAM, 1, &school.cancel).await.unwrap()
        };
        assert_eq!(earned(school.cases[0].clone()).await, None);
        let stranger = compose(SetName::Gsm8k, 1, 77).remove(0);
        assert_eq!(earned(Case { set: "gsm8k".into(), item: stranger }).await, None);
        assert_eq!(school.trials.mean(&school.cases[0], TEAM, &[], &school.cancel).await.unwrap(), None);
        school.cancel.cancel();
        assert_eq!(school.trials.run(&school.cases[0], TEAM, 1, &school.cancel).await.unwrap(), None);
    }
}
