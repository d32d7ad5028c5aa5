//! The guard: no team that is likely to answer worse than one plain call, and none that costs more without a reason.

use super::{Brief, Draft, Orchestrator, Refused};
use crate::form::Form;
use lemon_spec::{Agent, Answer, AnswerRule, Language, Next, PLAIN, Plan, Share, Spec, render};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Fewer words than this are answered before a team for them is written.
const LEAST_WORDS: usize = 30;
/// So many agents have to agree on another answer before the plain one is overruled.
const LEAST_VOTERS: usize = 2;
/// The id of the plain agent that the guard adds to a team.
const PLAIN_ID: &str = "plain";

/// An orchestrator whose teams are held to what one plain call would answer.
///
/// Where measurements on the same models show that a team helps for a form of task, that team runs as it is. Elsewhere:
/// - tasks whose answers cannot be voted on, and short questions, get one plain call;
/// - a team without at least two agents that vote is replaced by one plain call;
/// - a team that votes is joined by a plain agent, which wins every tie: it is overruled only where two others agree;
/// - a team that the token budget cannot hold at full length is replaced by one plain call.
pub struct Guard {
    /// Who writes teams where they may help.
    pub inner: Arc<dyn Orchestrator>,
    /// Forms for which measurements show that a team helps, with that team.
    pub proven: BTreeMap<Form, String>,
    /// Completion tokens of a reply at most, by level: what a team has to be able to pay.
    pub reply_tokens: Vec<u64>,
    /// Whether it costs tokens to have a team written.
    pub writing_costs: bool,
}

impl Orchestrator for Guard {
    fn draft(&self, brief: &Brief<'_>) -> Option<Draft> {
        if brief.round > 1 {
            return self.inner.draft(brief);
        }
        match self.proven.get(&brief.form) {
            Some(team) => Some(Draft::Guarded(team.clone())),
            None if self.may_help(brief) => self.inner.draft(brief),
            None => Some(Draft::Guarded(plain_team(brief.language)?)),
        }
    }

    fn repair(&self, brief: &Brief<'_>, refused: &Refused<'_>) -> Option<Draft> {
        match self.is_guarded(brief) {
            // A second try would cost more than the plain call that follows.
            true => None,
            false => self.inner.repair(brief, refused),
        }
    }

    fn fallback(&self, brief: &Brief<'_>) -> Option<String> {
        if self.is_guarded(brief) { plain_team(brief.language) } else { self.inner.fallback(brief) }
    }

    fn amend(&self, brief: &Brief<'_>, plan: &Plan) -> Option<String> {
        let guarded = self.is_guarded(brief);
        if plan.agents().len() > 1 && !self.affords(brief, plan, guarded) {
            return plain_team(brief.language);
        }
        if !guarded {
            return None;
        }
        let votes = plan.answer_rule() == AnswerRule::Vote && plan.answer_from().len() >= LEAST_VOTERS;
        let joined = votes.then(|| with_plain(plan, brief.language)).flatten();
        joined.or_else(|| plain_team(brief.language)).filter(|team| team != plan.source())
    }
}

impl Guard {
    fn is_guarded(&self, brief: &Brief<'_>) -> bool {
        brief.round == 1 && !self.proven.contains_key(&brief.form)
    }

    /// Whether a team could help and is worth writing: answers that can be voted on, of a question that is not soon answered.
    fn may_help(&self, brief: &Brief<'_>) -> bool {
        let votable = matches!(brief.form, Form::Number | Form::Choice);
        votable && (!self.writing_costs || brief.question.split_whitespace().count() >= LEAST_WORDS)
    }

    /// Whether every agent, and a plain one beside them if one joins, can have a reply of full length within the budget.
    fn affords(&self, brief: &Brief<'_>, plan: &Plan, plain_joins: bool) -> bool {
        let Some(left) = brief.tokens_left else { return true };
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
    }
}

/// The same team with a plain agent as its first voter: of equal votes the first of the strongest capacity wins.
fn with_plain(plan: &Plan, language: &Language) -> Option<String> {
    let mut spec = plan.spec().clone();
    let is_plain = |agent: &Agent| agent.base == PLAIN && agent.role.is_none() && agent.duty.is_none();
    if spec.agents.iter().any(|agent| is_plain(agent) && spec.answer.from.contains(&agent.id)) {
        return Some(plan.source().to_owned());
    }
    if spec.agents.iter().any(|agent| agent.id == PLAIN_ID) || spec.agents.len() >= language.limits.agents {
        return None;
    }
    spec.agents.insert(0, plain_agent(PLAIN_ID, language.capacities.last()?.clone()));
    spec.answer.from.insert(0, PLAIN_ID.to_owned());
    spec.next = Next::Stop;
    Some(render(&spec).text)
}
