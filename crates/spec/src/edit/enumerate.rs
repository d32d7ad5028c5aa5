//! Every edit that applies to a team.

use super::apply::{ended, has_own_duty, has_own_role, neighbour, without};
use super::{Change, Edit};
use crate::{Language, Next, Plan, Share};

/// Every edit that applies and leaves a valid team: agent by agent in the order of the text, then the answer, then
/// `next`. The order is the same each time.
pub fn edits(plan: &Plan, language: &Language) -> Vec<Edit> {
    let mut changes = Vec::new();
    let heights = heights(plan);
    for position in 0..plan.agents().len() {
        existence(plan, position, language, &mut changes);
        delegation(plan, position, language, &mut changes);
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
    let ends = agents.filter(|agent| fits(&agent.id)).map(|agent| Change::EndBefore { agent: agent.id.clone() });
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
