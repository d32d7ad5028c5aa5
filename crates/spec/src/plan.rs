//! The proven team: what remains of a text once every reference, role, capacity and limit has been checked.

use crate::check::{Resolved, check};
use crate::diagnostic::{Code, Faults};
use crate::parse::{Draft, DraftAgent, References, parse};
use crate::{
    Agent, AgentSpans, Answer, AnswerRule, AnswerSpans, BaseRole, Diagnostic, Language, Limits, Next, Severity, Share,
    Span, Spans, Spec, yaml,
};
use std::{fmt, sync::Arc};

/// A team that can be run: a directed acyclic graph whose every reference resolves. Only [`validate`] makes one.
#[derive(Debug, Clone)]
pub struct Plan {
    source: Arc<str>,
    spec: Spec,
    spans: Spans,
    agents: Vec<PlannedAgent>,
    answer_from: Vec<usize>,
    earlier: Arc<[String]>,
    warnings: Vec<Diagnostic>,
    /// Those it was checked against.
    limits: Limits,
}

/// One agent with everything inherited filled in and every reference resolved.
#[derive(Debug, Clone)]
pub struct PlannedAgent {
    pub id: String,
    /// The base role it inherits from.
    pub base: Arc<BaseRole>,
    /// Its own role, or the base role's title.
    pub role: String,
    /// What it must do: its own duty, or the base role's.
    pub duty: String,
    /// The capacity that serves it: a position in [`Language::capacities`].
    pub level: usize,
    /// The name of that capacity.
    pub capacity: String,
    /// The agents it reads, numbered through all rounds of the run: earlier rounds' agents come first.
    pub parents: Vec<usize>,
    /// Agents on the longest path that ends here, this one included, counting this round only.
    pub depth: usize,
    /// What its children see of it.
    pub share: Share,
    /// The tools it may call.
    pub tools: Vec<String>,
}

/// A text that is no team, and every reason why.
#[derive(Debug, Clone)]
pub struct Rejection {
    /// The text.
    pub source: String,
    /// All faults, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

/// Checks a text and makes a plan of it.
///
/// # Errors
/// All faults of the text at once.
pub fn validate(text: &str, language: &Language) -> Result<Plan, Rejection> {
    validate_round(text, language, &[])
}

/// Checks the text of a later round, whose agents may refer to the ids in `earlier` (all agents of all rounds before, in
/// order). Such a round may have no agents of its own if its answer comes from earlier ones.
///
/// # Errors
/// All faults of the text at once.
pub fn validate_round(text: &str, language: &Language, earlier: &[String]) -> Result<Plan, Rejection> {
    let mut faults = Faults::default();
    let plan = read(text, language, earlier, &mut faults);
    let diagnostics = faults.finish(text);
    match plan {
        Some(plan) => Ok(Plan { warnings: diagnostics, ..plan }),
        None => Err(Rejection { source: text.to_owned(), diagnostics }),
    }
}

/// The plan, without its warnings, or `None` if there is an error among the faults.
fn read(text: &str, language: &Language, earlier: &[String], faults: &mut Faults) -> Option<Plan> {
    let limits = &language.limits;
    if text.len() > limits.bytes {
        let fact = format!("the text has {} bytes, {} are allowed", text.len(), limits.bytes);
        faults.error(Code::TextTooLong, Span::default(), fact, Some("shorten it".to_owned()));
        return None;
    }
    let document = yaml::read(text, max_values(limits), faults);
    let draft = parse(&document, language, faults);
    let resolved = check(&draft, text, language, earlier, faults);
    if faults.any_error() {
        return None;
    }
    Plan::build(text, draft, resolved, language, earlier)
}

/// Values (keys included) in the largest specification the limits allow, doubled so that one beyond them is still read
/// and told precisely what is too much.
fn max_values(limits: &Limits) -> usize {
    let agent = 18_usize.saturating_add(limits.parents).saturating_add(limits.tools);
    limits.agents.saturating_mul(agent).saturating_add(agent).saturating_mul(2)
}

impl Plan {
    /// `None` only if something is missing that [`check`] would have reported.
    fn build(text: &str, draft: Draft, resolved: Resolved, language: &Language, earlier: &[String]) -> Option<Plan> {
        let mut spec =
            Spec { agents: Vec::new(), answer: Answer { from: Vec::new(), by: AnswerRule::Last }, next: Next::Stop };
        let mut spans = Spans::default();
        let mut agents = Vec::with_capacity(draft.agents.len());
        let places = resolved.parents.into_iter().zip(resolved.depths);
        for (draft, (parents, depth)) in draft.agents.into_iter().zip(places) {
            let (agent, agent_spans) = split(draft)?;
            agents.push(PlannedAgent::inherit(&agent, parents, depth, language)?);
            spec.agents.push(agent);
            spans.agents.push(agent_spans);
        }
        let all_ids = earlier.iter().chain(spec.agents.iter().map(|agent| &agent.id));
        let all_ids: Vec<&String> = all_ids.collect();
        let from: Option<Vec<String>> =
            resolved.answer_from.iter().map(|number| all_ids.get(*number).map(|id| (*id).clone())).collect();
        spec.answer.from = from?;
        spec.answer.by = AnswerRule::default_for(spec.answer.from.len());
        if let Some(answer) = draft.answer {
            spec.answer.by = answer.by.as_ref().map_or(spec.answer.by, |by| by.value);
            let (from, by) = (answer.from.map(|from| from.span), answer.by.map(|by| by.span));
            spans.answer = Some(AnswerSpans { entry: answer.entry, from, by });
        }
        if let Some(next) = draft.next {
            spec.next = next.value;
            spans.next = Some(next.span);
        }
        let (source, earlier) = (text.into(), earlier.into());
        let (answer_from, limits) = (resolved.answer_from, language.limits.clone());
        Some(Plan { source, spec, spans, agents, answer_from, earlier, warnings: Vec::new(), limits })
    }
}

/// An agent's values apart from their places.
fn split(draft: DraftAgent) -> Option<(Agent, AgentSpans)> {
    let (id, base, capacity) = (draft.id?, draft.base?, draft.capacity?);
    let spans = AgentSpans {
        entry: draft.entry,
        id: id.span,
        base: base.span,
        role: draft.role.as_ref().map(|role| role.span),
        duty: draft.duty.as_ref().map(|duty| duty.span),
        capacity: capacity.span,
        after: draft.after.as_ref().map(|after| after.span),
        parents: draft.after.iter().flat_map(|after| after.items.iter().flatten()).map(|item| item.span).collect(),
        share: draft.share.as_ref().map(|share| share.span),
        tools: draft.tools.as_ref().map(|tools| tools.span),
    };
    let agent = Agent {
        id: id.value,
        base: base.value,
        role: draft.role.and_then(|role| role.value),
        duty: draft.duty.and_then(|duty| duty.value),
        capacity: capacity.value,
        after: names(draft.after),
        share: draft.share.map_or_else(Share::default, |share| share.value),
        tools: names(draft.tools),
    };
    Some((agent, spans))
}

fn names(list: Option<References>) -> Vec<String> {
    list.into_iter().flat_map(|list| list.items.into_iter().flatten()).map(|item| item.value).collect()
}

impl PlannedAgent {
    fn inherit(agent: &Agent, parents: Vec<usize>, depth: usize, language: &Language) -> Option<PlannedAgent> {
        let base = Arc::clone(language.roles.get(&agent.base)?);
        Some(PlannedAgent {
            id: agent.id.clone(),
            role: agent.role.clone().unwrap_or_else(|| base.title.clone()),
            duty: agent.duty.clone().unwrap_or_else(|| base.duty.clone()),
            level: language.capacities.iter().position(|capacity| *capacity == agent.capacity)?,
            capacity: agent.capacity.clone(),
            parents,
            depth,
            share: agent.share,
            tools: agent.tools.clone(),
            base,
        })
    }
}

impl Rejection {
    /// The diagnostics that make the text invalid, warnings left out.
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.errors().count();
        let Some(first) = self.errors().next() else { return formatter.write_str("the text is no specification") };
        write!(formatter, "{}:{}: {}", first.line, first.column, first.message)?;
        if count > 1 { write!(formatter, " (and {} more)", count - 1) } else { Ok(()) }
    }
}

impl std::error::Error for Rejection {}

impl Plan {
    /// The text it was made from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The values as written, defaults for the answer and `next` filled in.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Where each field stands in [`Plan::source`].
    pub fn spans(&self) -> &Spans {
        &self.spans
    }

    /// The agents of this round, in the order written, which is a topological order.
    pub fn agents(&self) -> &[PlannedAgent] {
        &self.agents
    }

    /// How many agents earlier rounds had: the first agent of this plan has this number in the run.
    pub fn earlier(&self) -> usize {
        self.earlier.len()
    }

    /// The ids of the agents of earlier rounds, in order.
    pub fn earlier_ids(&self) -> &[String] {
        &self.earlier
    }

    /// Whether [`validate_round`] with this language and these earlier agents made it, or would have made the same of its
    /// source: then it need not be checked again.
    pub fn is_for(&self, language: &Language, earlier: &[String]) -> bool {
        let known = |agent: &PlannedAgent| {
            language.capacities.get(agent.level) == Some(&agent.capacity)
                && language.roles.get(&agent.base.name).is_some_and(|role| *role == agent.base)
                && agent.tools.iter().all(|tool| language.tools.contains(tool))
        };
        self.limits == language.limits && *self.earlier == *earlier && self.agents.iter().all(known)
    }

    /// The id of an agent by its number in the run, whichever round it is of.
    pub fn id(&self, number: usize) -> Option<&str> {
        match number.checked_sub(self.earlier.len()) {
            None => self.earlier.get(number).map(String::as_str),
            Some(position) => self.agents.get(position).map(|agent| agent.id.as_str()),
        }
    }

    /// The agents whose results become the answer, numbered through all rounds.
    pub fn answer_from(&self) -> &[usize] {
        &self.answer_from
    }

    /// How one answer is made of theirs.
    pub fn answer_rule(&self) -> AnswerRule {
        self.spec.answer.by
    }

    /// What happens after this round.
    pub fn next(&self) -> Next {
        self.spec.next
    }

    /// Remarks that do not make the text invalid, such as an agent that no other agent reads.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }
}
