//! Which edits apply to a team, and the team that each makes.

use super::{Change, Edit, EditError, Edited, tool_sender};
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

    // A change that was made found its field; every field has a place in a canonical text.
    let lost = || EditError::NotApplicable(edit.describe(), "there is no such field");
    let field = edit.field(plan).ok_or_else(lost)?;
    let before_canonical = original.spans.place(field).ok_or_else(lost)?;
    let after = span_after(field, before_canonical, edited.spans()).ok_or_else(lost)?;
    let withhold = match &edit.change {
        Change::WithholdMessage { from, to } => Some((from.clone(), to.clone())),
        Change::WithholdResult { agent, tool } => Some((tool_sender(tool), agent.clone())),
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
    edited.place(field)
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
        Change::PrefixTruncation { agent } => {
            find(spec, agent)?;
            let Some((ended, changed)) = ended(spec, agent, earlier) else {
                return refuse("no agent would be left");
            };
            *spec = ended;
            return Ok(changed);
        }
        Change::ShareAnswer { agent } => return set(&mut find(spec, agent)?.share, Share::Answer, edit),
        Change::ShareReply { agent } => return set(&mut find(spec, agent)?.share, Share::Reply, edit),
        Change::RemoveTool { agent, tool } => {
            let tools = &mut find(spec, agent)?.tools;
            let Some(at) = tools.iter().position(|known| known == tool) else {
                return refuse("it does not have that tool");
            };
            tools.remove(at);
        }
        Change::AddTool { agent, tool, at } => {
            let tools = &mut find(spec, agent)?.tools;
            if tools.contains(tool) {
                return refuse("it has that tool already");
            }
            if *at > tools.len() {
                return refuse("its list has no such place");
            }
            tools.insert(*at, tool.clone());
        }
        Change::AnswerBy { rule } => return set(&mut spec.answer.by, *rule, edit),
        Change::Stop => return set(&mut spec.next, Next::Stop, edit),
        Change::Review => return set(&mut spec.next, Next::Review, edit),
        Change::WithholdMessage { from, to } => {
            if !find(spec, to)?.after.contains(from) {
                return refuse("there is no such message");
            }
        }
        Change::WithholdResult { agent, tool } => {
            if !find(spec, agent)?.tools.contains(tool) {
                return refuse("it does not have that tool");
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
fn has_own_role(agent: &Agent, language: &Language) -> bool {
    let inherited = language.roles.get(&agent.base).map(|role| role.title.as_str());
    agent.role.is_some() && agent.role.as_deref() != inherited
}

/// Whether the duty is written and says something else than the base role.
fn has_own_duty(agent: &Agent, language: &Language) -> bool {
    let inherited = language.roles.get(&agent.base).map(|role| role.duty.as_str());
    agent.duty.is_some() && agent.duty.as_deref() != inherited
}

/// The capacity above or below.
fn neighbour(capacity: &str, language: &Language, above: bool) -> Option<String> {
    let level = language.capacities.iter().position(|level| level == capacity)?;
    let level = if above { level.checked_add(1) } else { level.checked_sub(1) }?;
    language.capacities.get(level).cloned()
}

/// The team without an agent, and the lists that named it: in each, its parents stand in its place. `None` if it is the
/// only agent, or if no agent would be left to answer.
fn without(spec: &Spec, id: &str) -> Option<(Spec, Vec<Field>)> {
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
fn ended(spec: &Spec, id: &str, earlier: &[String]) -> Option<(Spec, Vec<Field>)> {
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

/// Every edit that applies and leaves a valid team: agent by agent in the order of the text, then the answer, then
/// `next`. The order is the same each time.
pub fn edits(plan: &Plan, language: &Language) -> Vec<Edit> {
    let mut changes = Vec::new();
    let heights = heights(plan);
    for position in 0..plan.agents().len() {
        existence(plan, position, language, &mut changes);
        delegation(plan, position, language, &mut changes);
        tools(plan, position, language, &mut changes);
        references(plan, position, language, &heights, &mut changes);
    }
    let other_rules = language.answer_rules().iter().filter(|rule| **rule != plan.answer_rule());
    changes.extend(other_rules.map(|rule| Change::AnswerBy { rule: *rule }));
    changes.push(match plan.next() {
        Next::Stop => Change::Review,
        Next::Review => Change::Stop,
    });
    changes.into_iter().map(|change| Edit::new(change, plan)).collect()
}

/// Every prefix truncation that leaves a valid team. A team is written agent by agent, and before each but the first it could
/// have been complete, in a later round before the first too: these are the other branches of those decisions. No agent of a
/// prefix team is asked anything that it was not asked in the whole team.
pub fn prefix_truncations(plan: &Plan, language: &Language) -> Vec<Edit> {
    let agents = plan.spec().agents.iter();
    let fits = |id: &str| {
        ended(plan.spec(), id, plan.earlier_ids())
            .is_some_and(|(spec, _)| spec.answer.from.len() <= language.limits.parents)
    };
    let ends = agents.filter(|agent| fits(&agent.id)).map(|agent| Change::PrefixTruncation { agent: agent.id.clone() });
    ends.map(|change| Edit::new(change, plan)).collect()
}

/// Removing the agent, if the lists that take over its parents stay within the limit.
fn existence(plan: &Plan, position: usize, language: &Language, changes: &mut Vec<Change>) {
    let Some(agent) = plan.spec().agents.get(position) else { return };
    let Some((spec, _)) = without(plan.spec(), &agent.id) else { return };
    let lists = spec.agents.iter().map(|agent| &agent.after).chain([&spec.answer.from]);
    if lists.into_iter().all(|list| list.len() <= language.limits.parents) {
        changes.push(Change::RemoveAgent { agent: agent.id.clone() });
    }
}

/// Its role, duty, capacity and share.
fn delegation(plan: &Plan, position: usize, language: &Language, changes: &mut Vec<Change>) {
    let Some(agent) = plan.spec().agents.get(position) else { return };
    let id = || agent.id.clone();
    if has_own_role(agent, language) {
        changes.push(Change::ResetRole { agent: id() });
    }
    if has_own_duty(agent, language) {
        changes.push(Change::ResetDuty { agent: id() });
    }
    if neighbour(&agent.capacity, language, false).is_some() {
        changes.push(Change::LowerCapacity { agent: id() });
    }
    if neighbour(&agent.capacity, language, true).is_some() {
        changes.push(Change::RaiseCapacity { agent: id() });
    }
    changes.push(match agent.share {
        Share::Reply => Change::ShareAnswer { agent: id() },
        Share::Answer => Change::ShareReply { agent: id() },
    });
}

/// Each of its tools, a result of each, and the tools that other agents have.
fn tools(plan: &Plan, position: usize, language: &Language, changes: &mut Vec<Change>) {
    let Some(agent) = plan.spec().agents.get(position) else { return };
    let id = || agent.id.clone();
    for tool in &agent.tools {
        changes.push(Change::RemoveTool { agent: id(), tool: tool.clone() });
        changes.push(Change::WithholdResult { agent: id(), tool: tool.clone() });
    }
    if agent.tools.len() >= language.limits.tools {
        return;
    }
    let rank = |tool: &String| language.tools.iter().position(|known| known == tool);
    let is_used = |tool: &&String| plan.spec().agents.iter().any(|other| other.tools.contains(tool));
    for tool in language.tools.iter().filter(|tool| !agent.tools.contains(tool)).filter(is_used) {
        // A list in the order of the language stays so.
        let at = agent.tools.iter().position(|known| rank(known) > rank(tool)).unwrap_or(agent.tools.len());
        changes.push(Change::AddTool { agent: id(), tool: tool.clone(), at });
    }
}

/// The agents it reads, and each message it gets.
fn references(plan: &Plan, position: usize, language: &Language, heights: &[usize], changes: &mut Vec<Change>) {
    let (Some(agent), Some(planned)) = (plan.spec().agents.get(position), plan.agents().get(position)) else { return };
    let id = || agent.id.clone();
    for parent in &agent.after {
        changes.push(Change::DeleteReference { agent: id(), parent: parent.clone() });
        changes.push(Change::WithholdMessage { from: parent.clone(), to: id() });
    }
    if agent.after.len() >= language.limits.parents {
        return;
    }
    let height = heights.get(position).copied().unwrap_or(1);
    for number in (0..plan.earlier() + position).filter(|number| !planned.parents.contains(number)) {
        let depth = number.checked_sub(plan.earlier()).and_then(|own| plan.agents().get(own)).map_or(0, |it| it.depth);
        let Some(parent) = plan.id(number) else { continue };
        if depth + height <= language.limits.depth {
            // A list in the order of the run stays so.
            let at = planned.parents.iter().position(|known| *known > number).unwrap_or(planned.parents.len());
            changes.push(Change::AddReference { agent: id(), parent: parent.to_owned(), at });
        }
    }
}

/// Agents on the longest path that begins at each agent, itself included.
fn heights(plan: &Plan) -> Vec<usize> {
    let mut heights = vec![1; plan.agents().len()];
    for (position, agent) in plan.agents().iter().enumerate().rev() {
        let height = heights.get(position).map_or(1, |height: &usize| height + 1);
        for parent in agent.parents.iter().filter_map(|number| number.checked_sub(plan.earlier())) {
            if let Some(known) = heights.get_mut(parent) {
                *known = height.max(*known);
            }
        }
    }
    heights
}
