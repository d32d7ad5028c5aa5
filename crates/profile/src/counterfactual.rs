//! One counterfactual: a team, the same team with one decision edited, on the same task and the same noise.

use crate::budget::Cost;
use lemon_credit::cascade::{Cascade, cascade};
use lemon_exec::orchestrator::Orchestrator;
use lemon_exec::{AgentOutcome, Budget, Price, RunState};
use lemon_rollout::{Case, Rollout, RolloutEnv, RolloutError, RolloutRequest, Score, Team, UnknownReason};
use lemon_spec::edit::{Edit, Edited};
use lemon_spec::{AnswerRule, Next, Plan, PlannedAgent};
use lemon_trace::{AgentStatus, AgentSummary, EventKind, Trace};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Runs teams and their counterfactuals.
pub struct Counterfactuals<'a> {
    /// What runs and scores teams.
    pub env: &'a RolloutEnv,
    /// Who writes the second round where a team asks for one.
    pub reviewer: Option<Arc<dyn Orchestrator>>,
}

/// What a counterfactual showed and what it cost.
#[derive(Debug, Clone, PartialEq)]
pub enum Measurement {
    /// The outcomes of both runs are known.
    Known(Counterfactual),
    /// One of them is not: missing data.
    Unknown {
        /// Why.
        reason: UnknownReason,
        /// What was spent.
        cost: Cost,
    },
}

/// A counterfactual and how it differs from its base: base less edited, so that what is worth something is positive.
#[derive(Debug, Clone, PartialEq)]
pub struct Counterfactual {
    /// Difference in success.
    pub success: f64,
    /// Difference in tokens.
    pub tokens: f64,
    /// Difference in tokens of the weakest capacity.
    pub cost: f64,
    /// Difference in reward.
    pub reward: Option<f64>,
    /// The part of the difference in success that is there though no agent downstream changed; absent where a judge decides.
    pub direct: Option<f64>,
    /// Tokens spent to learn this.
    pub spent: u64,
    /// US dollars spent to learn this.
    pub spent_usd: f64,
    /// Calls that had to be made.
    pub calls: usize,
    /// Calls that the base answered.
    pub reused: usize,
    /// Tokens those saved.
    pub saved: u64,
    /// Who changed.
    pub cascade: Cascade,
}

impl Measurement {
    /// What was spent.
    pub fn cost(&self) -> Cost {
        match self {
            Measurement::Known(known) => Cost { tokens: known.spent, usd: known.spent_usd },
            Measurement::Unknown { cost, .. } => *cost,
        }
    }

    /// The difference, where it is known.
    pub fn known(self) -> Option<Counterfactual> {
        match self {
            Measurement::Known(known) => Some(known),
            Measurement::Unknown { .. } => None,
        }
    }
}

/// Tokens of all replies, reused or not, those of the orchestrator included.
pub(crate) fn nominal_tokens(run: &Rollout, score: &Score) -> f64 {
    (score.tokens + run.summary.tokens.orchestrator) as f64
}

/// What a run spent.
pub(crate) fn cost_of(run: &Rollout) -> Cost {
    Cost { tokens: run.summary.tokens.total, usd: run.summary.usd }
}

impl Counterfactuals<'_> {
    /// Runs the team as it is.
    ///
    /// # Errors
    /// A program could not be graded.
    pub async fn base(
        &self,
        case: &Case,
        plan: &Plan,
        seed: u64,
        cancel: &CancellationToken,
    ) -> Result<Rollout, RolloutError> {
        let mut request = RolloutRequest::of_plan(case, plan, seed);
        request.team = Team::Plan { plan: Arc::new(plan.clone()), reviewer: self.reviewer.clone() };
        self.run(request, self.most(case, plan), cancel).await
    }

    /// Runs a counterfactual of it.
    ///
    /// # Errors
    /// A program could not be graded.
    pub async fn counterfactual(
        &self,
        base: &Rollout,
        edit: &Edit,
        edited: &Edited,
        cancel: &CancellationToken,
    ) -> Result<Measurement, RolloutError> {
        let before = match (base.outcome.score(), base.outcome.unknown()) {
            (Some(score), _) => score,
            (None, reason) => {
                let reason = reason.cloned().unwrap_or(UnknownReason::NotMeasured);
                return Ok(Measurement::Unknown { reason, cost: Cost::default() });
            }
        };
        let run = self.run(base.counterfactual(edited)?, self.most(&base.case, &edited.plan), cancel).await?;
        let after = match &run.outcome {
            lemon_rollout::Outcome::Scored(score) => score,
            lemon_rollout::Outcome::Unknown(reason) => {
                return Ok(Measurement::Unknown { reason: reason.clone(), cost: cost_of(&run) });
            }
        };
        let direct = self.direct(base, &run, edit, edited)?;
        let asked = |reused: bool| {
            move |agent: &&AgentSummary| agent.status == Some(AgentStatus::Done) && agent.reused == reused
        };
        let agents = &run.summary.agents;
        Ok(Measurement::Known(Counterfactual {
            success: before.success() - after.success(),
            tokens: nominal_tokens(base, before) - nominal_tokens(&run, after),
            cost: before.cost - after.cost,
            reward: before.reward.zip(after.reward).map(|(before, after)| before - after),
            direct: direct.map(|direct| before.success() - direct),
            spent: run.summary.tokens.total,
            spent_usd: run.summary.usd,
            calls: agents.iter().filter(asked(false)).count(),
            reused: agents.iter().filter(asked(true)).count(),
            saved: agents.iter().map(|agent| agent.saved).sum(),
            cascade: cascade(&base.trace, &run.trace, edit),
        }))
    }

    async fn run(
        &self,
        mut request: RolloutRequest<'_>,
        most: Cost,
        cancel: &CancellationToken,
    ) -> Result<Rollout, RolloutError> {
        let budget = self.env.settings.budget;
        request.options.budget = Some(Budget {
            tokens: Some(budget.tokens.map_or(most.tokens, |tokens| tokens.min(most.tokens))),
            usd: Some(budget.usd.map_or(most.usd, |usd| usd.min(most.usd))),
            ..budget
        });
        self.env.rollout(request.cancelled_by(cancel)).await
    }

    /// What a run of this team on this task can spend at most: every prompt as long as it can be, every reply as long as it
    /// may be, and a judge and a second round where they can come.
    pub fn most(&self, case: &Case, plan: &Plan) -> Cost {
        let known = |capacity: usize| self.env.backend.levels.get(capacity);
        let reply = |capacity: usize| known(capacity).map_or(1024, |level| level.max_tokens);
        let price = |capacity: usize| known(capacity).map_or_else(Price::default, |level| level.price);
        // No vocabulary needs more than a token a byte.
        let question = case.item.task.question.len() as u64;
        let longest = plan.agents().iter().map(|agent| reply(agent.level)).max().unwrap_or(0);
        let agent = |agent: &PlannedAgent| {
            let told = (agent.base.prompt.len() + agent.duty.len() + agent.role.len() + 400) as u64;
            // A reply of so many tokens may be read as four times as many bytes, and by another vocabulary.
            let tokens_in = question + told + agent.parents.len() as u64 * (2 * longest + 100);
            let tokens_out = reply(agent.level);
            if !agent.tools.is_empty() {
                return with_tools(tokens_in, tokens_out, u64::from(self.env.settings.tool_calls), price(agent.level));
            }
            Cost { tokens: tokens_in + tokens_out, usd: price(agent.level).usd(tokens_in, tokens_out) }
        };
        let judge_in = plan.answer_from().len() as u64 * (2 * longest + 100) + question + 1000;
        // Which capacity judges or reviews is not known here: the most expensive.
        let expensive = self.env.backend.levels.iter().map(|level| level.price.usd(judge_in, longest));
        let judge = Cost { tokens: judge_in + longest, usd: expensive.fold(0.0, f64::max) };
        let once: Cost = plan.agents().iter().map(agent).chain([judge]).sum();
        let most = match plan.next() == Next::Review && self.reviewer.is_some() {
            true => [once, once].into_iter().sum(),
            false => once,
        };
        // So that sums that differ in their last bit do not cut a reply short.
        Cost { usd: most.usd * (1.0 + 1e-9), ..most }
    }

    /// Success if only the edited agent's own output differed, and every other agent said what it said in the base.
    fn direct(
        &self,
        base: &Rollout,
        edited_run: &Rollout,
        edit: &Edit,
        edited: &Edited,
    ) -> Result<Option<f64>, RolloutError> {
        let single_round = base.summary.rounds == 1 && edited_run.summary.rounds == 1;
        if edited.plan.answer_rule() == AnswerRule::Judge || !single_round {
            return Ok(None);
        }
        let Some(judge) = self.env.language.roles.get("judge") else { return Ok(None) };
        let mut state = RunState::new(&base.case.item.task.question, Default::default(), judge.clone());
        state.add_round(edited.plan.clone());
        let (before, after) = (ends(&base.trace), ends(&edited_run.trace));
        let own = edit.change.rewritten_agent();
        let answer = state.answer_with(|id| if own == Some(id) { after.get(id) } else { before.get(id) }.cloned());
        let Some(answer) = answer else { return Ok(Some(0.0)) };
        Ok(Some(f64::from(u8::from(self.env.is_right(&base.case, &answer)?))))
    }
}

/// Tokens of a tool's result that a profile plans with. A run with longer ones may end at its budget, and is missing data then.
const RESULT_TOKENS: u64 = 2_000;

/// What an agent can spend that replies, makes a call, and reads all of that again before its next reply.
fn with_tools(tokens_in: u64, tokens_out: u64, calls: u64, price: Price) -> Cost {
    let turns = calls + 1;
    // Each turn reads the replies and results of those before it.
    let read = turns * tokens_in + turns * calls / 2 * (2 * tokens_out + RESULT_TOKENS);
    let written = turns * tokens_out;
    Cost { tokens: read + written, usd: price.usd(read, written) }
}

/// How agents that replied ended.
fn ends(trace: &Trace) -> BTreeMap<&str, AgentOutcome> {
    trace.events.iter().filter_map(done).collect()
}

fn done(event: &lemon_trace::Event) -> Option<(&str, AgentOutcome)> {
    match &event.kind {
        EventKind::Return { status: AgentStatus::Done, reply: Some(reply), confidence, truncated, .. } => {
            let (confidence, truncated) = (*confidence, *truncated);
            Some((&event.agent, AgentOutcome { confidence, truncated, ..AgentOutcome::done(reply.as_str()) }))
        }
        _ => None,
    }
}
