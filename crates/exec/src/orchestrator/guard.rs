//! The guard: no team that is likely to answer worse than one plain call, and none that costs more without a reason.

use super::{Draft, Orchestrator, OrchestratorError, Refused, WriteContext};
use crate::form::Form;
use async_trait::async_trait;
use lemon_spec::{Agent, Answer, AnswerRule, Language, Next, PLAIN, Plan, Share, Spec, render};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Fewer words than this are answered before a team for them is written.
const LEAST_WORDS: usize = 30;
/// So many agents have to agree on another answer before the plain one is overruled.
const LEAST_VOTERS: usize = 2;
/// Calls that an unproven team may cost where the configuration does not say.
pub const MAX_COST: f64 = 2.0;
/// The id of the plain agent that the guard adds to a team.
const PLAIN_ID: &str = "plain";

/// An orchestrator whose teams are held to what one plain call would answer.
///
/// Where measurements on the same models show that a team helps for a form of task, that team runs as it is. Elsewhere:
/// - tasks whose answers cannot be voted on, and short questions, get one plain call;
/// - a team without at least two agents that vote is replaced by one plain call;
/// - a team that votes is joined by a plain agent, which wins every tie: it is overruled only where two others agree;
/// - a team of more calls than `max_cost` is replaced by one plain call, and not written where none can be cheaper;
/// - a team that the token budget cannot hold at full length is replaced by one plain call.
pub struct Guard {
    /// Writes teams where they may help.
    pub inner: Arc<dyn Orchestrator>,
    /// Forms for which measurements show that a team helps, with that team.
    pub proven: BTreeMap<Form, String>,
    /// Completion tokens of a reply at most, by capacity: what a team has to be able to pay.
    pub reply_tokens: Vec<u64>,
    /// Whether it costs tokens to have a team written. Writing then counts as one call.
    pub writing_costs: bool,
    /// Calls that a team may cost which no measurement supports. One plain call costs 1.
    pub max_cost: f64,
}

#[async_trait]
impl Orchestrator for Guard {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        if context.round > 1 {
            return self.inner.draft(context).await;
        }
        match self.proven.get(&context.form) {
            Some(team) => Ok(Some(Draft::Guarded(team.clone()))),
            None if self.may_help(context) => self.inner.draft(context).await,
            None => Ok(plain_team(context.language).map(Draft::Guarded)),
        }
    }

    async fn repair(
        &self,
        context: &WriteContext<'_>,
        refused: &Refused<'_>,
    ) -> Result<Option<Draft>, OrchestratorError> {
        match self.is_guarded(context) {
            // A second try would cost more than the plain call that follows.
            true => Ok(None),
            false => self.inner.repair(context, refused).await,
        }
    }

    fn fallback(&self, context: &WriteContext<'_>) -> Option<String> {
        if self.is_guarded(context) { plain_team(context.language) } else { self.inner.fallback(context) }
    }

    fn amend(&self, context: &WriteContext<'_>, plan: &Plan) -> Option<String> {
        let guarded = self.is_guarded(context);
        if plan.agents().len() > 1 && !self.affords(context, plan, guarded) {
            return plain_team(context.language);
        }
        if !guarded {
            return None;
        }
        let votes = plan.answer_rule() == AnswerRule::Vote && plan.answer_from().len() >= LEAST_VOTERS;
        let joined = votes.then(|| with_plain(plan, context.language)).flatten();
        let cheap = joined.filter(|spec| self.allows(spec.agents.len())).map(|spec| render(&spec).text);
        cheap.or_else(|| plain_team(context.language)).filter(|team| team != plan.source())
    }

    fn amends(&self) -> bool {
        true
    }
}

impl Guard {
    fn is_guarded(&self, context: &WriteContext<'_>) -> bool {
        context.round == 1 && !self.proven.contains_key(&context.form)
    }

    /// Whether a team could help and is worth writing: answers that can be voted on, of a question that is not soon answered.
    fn may_help(&self, context: &WriteContext<'_>) -> bool {
        let votable = matches!(context.form, Form::Number | Form::Choice) && self.allows(LEAST_VOTERS + 1);
        votable && (!self.writing_costs || context.question.split_whitespace().count() >= LEAST_WORDS)
    }

    /// Whether a team of so many agents, the plain one among them, may run without evidence that it helps.
    fn allows(&self, agents: usize) -> bool {
        (agents + usize::from(self.writing_costs)) as f64 <= self.max_cost
    }

    /// Whether every agent, and a plain one beside them if one joins, can have a reply of full length within the budget.
    fn affords(&self, context: &WriteContext<'_>, plan: &Plan, plain_joins: bool) -> bool {
        let Some(left) = context.tokens_left else { return true };
        let reply = |level: usize| self.reply_tokens.get(level).copied().unwrap_or_default();
        let plain = if plain_joins { self.reply_tokens.last().copied().unwrap_or_default() } else { 0 };
        plan.agents().iter().map(|agent| reply(agent.level)).fold(plain, u64::saturating_add) <= left
    }
}

/// One plain call to the strongest model. `None`: there is no capacity at all.
pub fn plain_team(language: &Language) -> Option<String> {
    let capacity = language.capacities.last()?.clone();
    let spec = Spec {
        agents: vec![plain_agent("a1", capacity)],
        answer: Answer { from: vec!["a1".to_owned()], by: AnswerRule::Last },
        next: Next::Stop,
    };
    Some(render(&spec).text)
}

fn plain_agent(id: &str, capacity: String) -> Agent {
    Agent {
        id: id.to_owned(),
        base: PLAIN.to_owned(),
        role: None,
        duty: None,
        capacity,
        after: Vec::new(),
        share: Share::Reply,
        tools: Vec::new(),
    }
}

/// The same team with a plain agent as its first voter: of equal votes the first of the strongest capacity wins.
fn with_plain(plan: &Plan, language: &Language) -> Option<Spec> {
    let mut spec = plan.spec().clone();
    let is_plain = |agent: &Agent| agent.base == PLAIN && agent.role.is_none() && agent.duty.is_none();
    if spec.agents.iter().any(|agent| is_plain(agent) && spec.answer.from.contains(&agent.id)) {
        return Some(spec);
    }
    if spec.agents.iter().any(|agent| agent.id == PLAIN_ID) || spec.agents.len() >= language.limits.agents {
        return None;
    }
    spec.agents.insert(0, plain_agent(PLAIN_ID, language.capacities.last()?.clone()));
    spec.answer.from.insert(0, PLAIN_ID.to_owned());
    spec.next = Next::Stop;
    Some(spec)
}
