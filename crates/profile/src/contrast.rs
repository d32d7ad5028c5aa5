//! One counterfactual: a team, the same team with one thing changed, on the same task and the same draws.
//!
//! The changed team is run whole, with the memory of the original run. Whatever the change cannot reach is the same call as
//! before and is answered from there; only what differs is asked. So a fork is exact by construction: it gives what a full
//! run of the changed team with the same seed would give.

use crate::purse::Cost;
use lemon_credit::cascade::{Cascade, cascade};
use lemon_credit::reward::{Channels, Grades, RewardSettings, Weights, measure};
use lemon_eval::{Case, EvalError, Evaluator, Grader};
use lemon_exec::orchestrator::{Fixed, Orchestrator};
use lemon_exec::store::RunMeta;
use lemon_exec::{Job, Outcome, Price, ReplyCache, RunState, fresh_id};
use lemon_spec::edit::{Change, Edit, Edited};
use lemon_spec::{AnswerRule, Next, Plan, PlannedAgent};
use lemon_trace::{AgentStatus, EventKind, Trace};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Runs originals and counterfactuals.
pub struct Contrasts<'a> {
    /// Who runs and grades.
    pub evaluator: &'a Evaluator,
    /// Who writes the second round where a team asks for one.
    pub reviewer: Option<Arc<dyn Orchestrator>>,
    /// How rewards are measured.
    pub rewards: RewardSettings,
    /// How channels become one reward.
    pub weights: Weights,
}

/// The original run of a team on a task, with everything its counterfactuals share.
pub struct Original {
    /// The trace.
    pub trace: Trace,
    /// What it came to.
    pub score: Score,
    seed: u64,
    memory: Arc<ReplyCache>,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// 1 if the answer is right.
    pub success: f64,
    /// Tokens of all replies, reused or not: what the team costs, not what this run spent.
    pub tokens: f64,
    /// The same in tokens of the weakest level.
    pub cost: f64,
    /// The reward, where it can be measured.
    pub reward: Option<f64>,
    /// Its channels.
    pub channels: Channels,
}

/// A counterfactual and how it differs from the original: original less changed, so that what is worth something is
/// positive.
#[derive(Debug, Clone, PartialEq)]
pub struct Contrast {
    /// Difference in success.
    pub success: f64,
    /// Difference in tokens.
    pub tokens: f64,
    /// Difference in tokens of the weakest level.
    pub cost: f64,
    /// Difference in reward.
    pub reward: Option<f64>,
    /// The part of the difference in success that is there though nobody downstream changed; absent where a judge decides.
    pub direct: Option<f64>,
    /// Tokens spent to learn this.
    pub spent: u64,
    /// US dollars spent to learn this.
    pub spent_usd: f64,
    /// Calls that had to be made.
    pub calls: usize,
    /// Calls that the original answered.
    pub reused: usize,
    /// Tokens those saved.
    pub saved: u64,
    /// Who changed.
    pub cascade: Cascade,
}

impl Contrasts<'_> {
    /// Runs the team as it is.
    ///
    /// # Errors
    /// A program could not be graded.
    pub async fn original(
        &self,
        case: &Case,
        plan: &Plan,
        seed: u64,
        cancel: &CancellationToken,
    ) -> Result<Original, EvalError> {
        let memory = Arc::new(ReplyCache::default());
        let budget = self.most(case, plan);
        let trace = self.run(case, plan.source(), None, seed, (&memory, budget), cancel).await?;
        let score = self.score(case, &trace)?;
        Ok(Original { trace, score, seed, memory })
    }

    /// Runs a counterfactual of it.
    ///
    /// # Errors
    /// A program could not be graded.
    pub async fn contrast(
        &self,
        case: &Case,
        original: &Original,
        edit: &Edit,
        edited: &Edited,
        cancel: &CancellationToken,
    ) -> Result<Contrast, EvalError> {
        let withhold = edited.withhold.clone();
        let shared = (&original.memory, self.most(case, &edited.plan));
        let trace = self.run(case, edited.plan.source(), withhold, original.seed, shared, cancel).await?;
        let score = self.score(case, &trace)?;
        let direct = self.direct(case, original, &trace, edit, edited)?;
        let summary = trace.summary();
        let asked = |reused: bool| {
            move |agent: &&lemon_trace::AgentSummary| agent.status == Some(AgentStatus::Done) && agent.reused == reused
        };
        Ok(Contrast {
            success: original.score.success - score.success,
            tokens: original.score.tokens - score.tokens,
            cost: original.score.cost - score.cost,
            reward: original.score.reward.zip(score.reward).map(|(original, edited)| original - edited),
            direct: direct.map(|direct| original.score.success - direct),
            spent: summary.tokens.total,
            spent_usd: summary.usd,
            calls: summary.agents.iter().filter(asked(false)).count(),
            reused: summary.agents.iter().filter(asked(true)).count(),
            saved: summary.agents.iter().map(|agent| agent.saved).sum(),
            cascade: cascade(&original.trace, &trace, edit),
        })
    }

    /// What a run of this team on this task can spend at most: every prompt as long as it can be, every reply as long as it
    /// may be, and a judge and a second round where they can come.
    pub fn most(&self, case: &Case, plan: &Plan) -> Cost {
        let known = |level: usize| self.evaluator.backend.levels.get(level);
        let reply = |level: usize| known(level).map_or(1024, |level| level.max_tokens);
        let price = |level: usize| known(level).map_or_else(Price::default, |level| level.price);
        // No vocabulary needs more than a token a byte.
        let question = case.item.task.question.len() as u64;
        let longest = plan.agents().iter().map(|agent| reply(agent.level)).max().unwrap_or(0);
        let agent = |agent: &PlannedAgent| {
            let told = (agent.base.prompt.len() + agent.duty.len() + agent.role.len() + 400) as u64;
            // A reply of so many tokens may be read as four times as many bytes, and by another vocabulary.
            let tokens_in = question + told + agent.parents.len() as u64 * (2 * longest + 100);
            let tokens_out = reply(agent.level);
            Cost { tokens: tokens_in + tokens_out, usd: price(agent.level).usd(tokens_in, tokens_out) }
        };
        let judge_in = plan.answer_from().len() as u64 * (2 * longest + 100) + question + 1000;
        // Nobody knows here which level judges, or reviews: the dearest.
        let dearest = self.evaluator.backend.levels.iter().map(|level| level.price.usd(judge_in, longest));
        let judge = Cost { tokens: judge_in + longest, usd: dearest.fold(0.0, f64::max) };
        let once: Cost = plan.agents().iter().map(agent).chain([judge]).sum();
        let most = match plan.next() == Next::Review && self.reviewer.is_some() {
            true => [once, once].into_iter().sum(),
            false => once,
        };
        // So that sums that differ in their last bit do not cut a reply short.
        Cost { usd: most.usd * (1.0 + 1e-9), ..most }
    }

    async fn run(
        &self,
        case: &Case,
        text: &str,
        withhold: Option<(String, String)>,
        seed: u64,
        (memory, most): (&Arc<ReplyCache>, Cost),
        cancel: &CancellationToken,
    ) -> Result<Trace, EvalError> {
        let writer = Arc::new(Fixed { text: text.to_owned(), reviewer: self.reviewer.clone() });
        let mut runner = self.evaluator.runner(writer);
        runner.reply_cache = Some(memory.clone());
        // Counterfactuals are many and made again from the seed; what is kept is what they showed.
        runner.store = None;
        let budget = self.evaluator.settings.budget;
        runner.settings.budget.tokens = Some(budget.tokens.map_or(most.tokens, |tokens| tokens.min(most.tokens)));
        runner.settings.budget.usd = Some(budget.usd.map_or(most.usd, |usd| usd.min(most.usd)));
        let job = Job {
            run_id: format!("c-{}", fresh_id()),
            task_id: case.item.task.id.clone(),
            question: case.item.task.question.clone(),
            seed,
            meta: RunMeta { withhold: withhold.into_iter().collect(), ..RunMeta::default() },
        };
        Ok(runner.run(&job, cancel, None).await?)
    }

    /// What a run came to.
    ///
    /// # Errors
    /// A program could not be graded.
    pub fn score(&self, case: &Case, trace: &Trace) -> Result<Score, EvalError> {
        let right = self.evaluator.is_right(case, trace)?;
        let summary = trace.summary();
        let grade = |agent: &lemon_trace::AgentSummary| {
            Some((agent.id.clone(), Grader::quick(&case.item, agent.answer.as_deref()?)?))
        };
        let agents: BTreeMap<String, bool> = summary.agents.iter().filter_map(grade).collect();
        let channels = measure(trace, &Grades { team: Some(right), agents }, &self.rewards);
        let nominal = |agent: &lemon_trace::AgentSummary| agent.tokens().saturating_add(agent.saved);
        let weights = &self.rewards.level_weights;
        let weight = |level: usize| weights.get(level).or(weights.last()).copied().unwrap_or(1.0);
        let tokens: u64 = summary.agents.iter().map(nominal).sum();
        Ok(Score {
            success: f64::from(u8::from(right)),
            tokens: (tokens + summary.tokens.orchestrator) as f64,
            cost: summary.agents.iter().map(|agent| weight(agent.level) * nominal(agent) as f64).sum(),
            reward: channels.total(&self.weights, 0),
            channels,
        })
    }

    /// Success had only the changed agent's own output differed, and everybody else said what they said.
    fn direct(
        &self,
        case: &Case,
        original: &Original,
        trace: &Trace,
        edit: &Edit,
        edited: &Edited,
    ) -> Result<Option<f64>, EvalError> {
        let single_round = original.trace.summary().rounds == 1 && trace.summary().rounds == 1;
        if edited.plan.answer_rule() == AnswerRule::Judge || !single_round {
            return Ok(None);
        }
        let Some(judge) = self.evaluator.language.roles.get("judge") else { return Ok(None) };
        let mut state = RunState::new(&case.item.task.question, Default::default(), judge.clone());
        state.add_round(edited.plan.clone());
        let (before, after) = (ends(&original.trace), ends(trace));
        let own = changed_agent(edit);
        let answer = state.answer_with(|id| if own == Some(id) { after.get(id) } else { before.get(id) }.cloned());
        let Some(answer) = answer else { return Ok(Some(0.0)) };
        Ok(Some(f64::from(u8::from(self.evaluator.grader.grade(&case.item, &answer)?.right))))
    }
}

/// The agent whose own output a change can change.
fn changed_agent(edit: &Edit) -> Option<&str> {
    match &edit.change {
        Change::DeleteReference { agent, .. }
        | Change::AddReference { agent, .. }
        | Change::ResetRole { agent }
        | Change::ResetDuty { agent }
        | Change::LowerCapacity { agent }
        | Change::RaiseCapacity { agent }
        | Change::WithholdMessage { to: agent, .. } => Some(agent),
        Change::RemoveAgent { .. }
        | Change::EndBefore { .. }
        | Change::ShareAnswer { .. }
        | Change::ShareReply { .. }
        | Change::AnswerBy { .. }
        | Change::Stop
        | Change::Review => None,
    }
}

/// How agents that replied ended.
fn ends(trace: &Trace) -> BTreeMap<&str, Outcome> {
    trace.events.iter().filter_map(done).collect()
}

fn done(event: &lemon_trace::Event) -> Option<(&str, Outcome)> {
    match &event.kind {
        EventKind::Return { status: AgentStatus::Done, reply: Some(reply), confidence, truncated, .. } => {
            let (confidence, truncated) = (*confidence, *truncated);
            Some((&event.agent, Outcome { confidence, truncated, ..Outcome::done(reply.as_str()) }))
        }
        _ => None,
    }
}
