//! The team an edit makes.

use super::{Change, Edit, EditError, Edited};
use crate::render::{AGENTS, ENTRY_PREFIX};
use crate::{Agent, Field, Language, Next, Plan, Share, Span, Spans, Spec, render, validate_round};

/// Applies an edit to a team.
///
/// # Errors
/// If the edit names an agent that is not there, changes nothing, or makes a team that breaks a limit.
pub fn apply(plan: &Plan, edit: &Edit, language: &Language) -> Result<Edited, EditError> {
    let mut spec = plan.spec().clone();
    let also_changed = change(&mut spec, edit, language, plan.earlier_ids())?;
    let original = render(plan.spec());
    let text = render(&spec).text;
    let edited =
        validate_round(&text, language, plan.earlier_ids()).map_err(|why| EditError::Invalid(Box::new(why)))?;

    // A change that was made found its field; every field has a span in a canonical text.
    let lost = || EditError::NotApplicable(edit.describe(), "there is no such field");
    let field = edit.field(plan).ok_or_else(lost)?;
    let before_canonical = original.spans.get(field).ok_or_else(lost)?;
    let after = span_after(field, before_canonical, edited.spans()).ok_or_else(lost)?;
    let withhold = match &edit.change {
        Change::WithholdMessage { from, to } => Some((from.clone(), to.clone())),
        _ => None,
    };
    Ok(Edited { field, before: plan.spans().get(field), before_canonical, after, withhold, also_changed, plan: edited })
}

/// Where the edited field stands in the edited text.
fn span_after(field: Field, before: Span, edited: &Spans) -> Option<Span> {
    if let Field::Agent(_) = field {
        // The line that the removed entry began on, or where it says that there is none; the text up to it is unchanged.
        let start = match edited.agents.is_empty() {
            true => AGENTS.len(),
            false => before.start.checked_sub(ENTRY_PREFIX.len())?,
        };
        return Some(Span { start, end: start });
    }
    edited.get(field)
}

/// Changes the specification; returns the fields of the result that changed besides the edited one.
fn change(spec: &mut Spec, edit: &Edit, language: &Language, earlier: &[String]) -> Result<Vec<Field>, EditError> {
    let refuse = |why| Err(EditError::NotApplicable(edit.describe(), why));
    match &edit.change {
        Change::DeleteReference { agent, parent } => {
            let after = &mut find(spec, agent)?.after;
            let Some(at) = after.iter().position(|id| id == parent) else {
                return refuse("it does not read that agent");
            };
            after.remove(at);
        }
        Change::AddReference { agent, parent, at } => {
            let after = &mut find(spec, agent)?.after;
            if after.contains(parent) {
                return refuse("it reads that agent already");
            }
            if *at > after.len() {
                return refuse("its list has no such place");
            }
            after.insert(*at, parent.clone());
        }
        Change::ResetRole { agent } => {
            let agent = find(spec, agent)?;
            if !has_own_role(agent, language) {
                return refuse("it has no role of its own");
            }
            agent.role = None;
        }
        Change::ResetDuty { agent } => {
            let agent = find(spec, agent)?;
            if !has_own_duty(agent, language) {
                return refuse("it has no duty of its own");
            }
            agent.duty = None;
        }
        Change::LowerCapacity { agent } => {
            let agent = find(spec, agent)?;
            let Some(lower) = neighbour(&agent.capacity, language, false) else {
                return refuse("it is the lowest level");
            };
            agent.capacity = lower;
        }
        Change::RaiseCapacity { agent } => {
            let agent = find(spec, agent)?;
            let Some(higher) = neighbour(&agent.capacity, language, true) else {
                return refuse("it is the highest level");
            };
            agent.capacity = higher;
        }
        Change::RemoveAgent { agent } => {
            find(spec, agent)?;
            let Some((without, changed)) = without(spec, agent) else {
                return refuse("the team or its answer needs it");
            };
            *spec = without;
            return Ok(changed);
        }
        Change::EndBefore { agent } => {
            find(spec, agent)?;
            let Some((ended, changed)) = ended(spec, agent, earlier) else {
                return refuse("no agent would be left");
            };
            *spec = ended;
            return Ok(changed);
        }
        Change::ShareAnswer { agent } => return set(&mut find(spec, agent)?.share, Share::Answer, edit),
        Change::ShareReply { agent } => return set(&mut find(spec, agent)?.share, Share::Reply, edit),
        Change::AnswerBy { rule } => return set(&mut spec.answer.by, *rule, edit),
        Change::Stop => return set(&mut spec.next, Next::Stop, edit),
        Change::Review => return set(&mut spec.next, Next::Review, edit),
        Change::WithholdMessage { from, to } => {
            if !find(spec, to)?.after.contains(from) {
                return refuse("there is no such message");
            }
        }
    }
    Ok(Vec::new())
}

fn find<'s>(spec: &'s mut Spec, id: &str) -> Result<&'s mut Agent, EditError> {
    spec.agents.iter_mut().find(|agent| agent.id == id).ok_or_else(|| EditError::NoSuchAgent(id.to_owned()))
}

fn set<T: PartialEq>(place: &mut T, value: T, edit: &Edit) -> Result<Vec<Field>, EditError> {
    if *place == value {
        return Err(EditError::NotApplicable(edit.describe(), "it is so already"));
    }
    *place = value;
    Ok(Vec::new())
}

/// Whether the role is written and says something else than the base role's title.
pub(super) fn has_own_role(agent: &Agent, language: &Language) -> bool {
    let inherited = language.roles.get(&agent.base).map(|role| role.title.as_str());
    agent.role.is_some() && agent.role.as_deref() != inherited
}

/// Whether the duty is written and says something else than the base role.
pub(super) fn has_own_duty(agent: &Agent, language: &Language) -> bool {
    let inherited = language.roles.get(&agent.base).map(|role| role.duty.as_str());
    agent.duty.is_some() && agent.duty.as_deref() != inherited
}

/// The capacity above or below.
pub(super) fn neighbour(capacity: &str, language: &Language, above: bool) -> Option<String> {
    let level = language.capacities.iter().position(|level| level == capacity)?;
    let level = if above { level.checked_add(1) } else { level.checked_sub(1) }?;
    language.capacities.get(level).cloned()
}

/// The team without an agent, and the lists that named it: in each, its parents stand in its place. `None` if it is the
/// only agent, or if no agent would be left to answer.
pub(super) fn without(spec: &Spec, id: &str) -> Option<(Spec, Vec<Field>)> {
    let position = spec.agents.iter().position(|agent| agent.id == id)?;
    if spec.agents.len() < 2 {
        return None;
    }
    let mut spec = spec.clone();
    let removed = spec.agents.remove(position);
    let mut changed = Vec::new();
    for (position, agent) in spec.agents.iter_mut().enumerate() {
        if replace(&mut agent.after, &removed) {
            changed.push(Field::After(position));
        }
    }
    if replace(&mut spec.answer.from, &removed) {
        changed.push(Field::AnswerFrom);
    }
    (!spec.answer.from.is_empty()).then_some((spec, changed))
}

/// The team up to an agent, and the list that changed. Agents of earlier rounds that have a part in the answer keep it. `None` if
/// no agent would be left to answer.
pub(super) fn ended(spec: &Spec, id: &str, earlier: &[String]) -> Option<(Spec, Vec<Field>)> {
    let position = spec.agents.iter().position(|agent| agent.id == id)?;
    let mut spec = spec.clone();
    spec.agents.truncate(position);
    let is_read = |id: &&String| spec.agents.iter().any(|agent| agent.after.contains(id));
    let own = spec.agents.iter().map(|agent| &agent.id).filter(|id| !is_read(id));
    let from: Vec<String> = spec.answer.from.iter().filter(|id| earlier.contains(id)).chain(own).cloned().collect();
    if from.is_empty() {
        return None;
    }
    let changed = if from == spec.answer.from { Vec::new() } else { vec![Field::AnswerFrom] };
    spec.answer.from = from;
    Some((spec, changed))
}

/// Puts the parents of a removed agent in its place, each once.
fn replace(list: &mut Vec<String>, removed: &Agent) -> bool {
    let Some(at) = list.iter().position(|id| *id == removed.id) else { return false };
    list.remove(at);
    let new: Vec<String> = removed.after.iter().filter(|parent| !list.contains(parent)).cloned().collect();
    list.splice(at..at, new);
    true
}
