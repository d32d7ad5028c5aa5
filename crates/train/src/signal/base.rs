//! The advantage that every token begins with: that of its team among others.

use super::text::Text;
use crate::episode::{Branch, Episode};
use crate::recipe::{CreditSettings, RewardBaseline};
use lemon_credit::advantage::group_relative;
use lemon_credit::estimator::{leave_one_out, normalised_by_class, presence_credit};
use lemon_spec::{Field, Plan, Span};

/// Sets the advantages of all tokens.
pub(super) fn advantages(texts: &mut [Text], groups: &[Vec<Episode>], credit: &CreditSettings) {
    for (at, group) in groups.iter().enumerate() {
        let of_group = texts.iter_mut().filter(|text| text.place.0 == at);
        match group.iter().any(|episode| episode.branch.is_some()) {
            true => tree(of_group.collect(), group),
            false => flat(of_group.collect(), group, credit),
        }
    }
    match credit.baseline {
        RewardBaseline::Others | RewardBaseline::Group | RewardBaseline::Critic => {}
        RewardBaseline::Agent => by_agent(texts),
        RewardBaseline::Edge => by_edge(texts, groups.len()),
    }
}

fn rewards(group: &[Episode]) -> Vec<Option<f64>> {
    group.iter().map(|episode| Some(episode.run.as_ref()?.outcome?.reward)).collect()
}

fn flat(texts: Vec<&mut Text>, group: &[Episode], credit: &CreditSettings) {
    let rewards = rewards(group);
    let advantages = match credit.baseline {
        RewardBaseline::Group => group_relative(&rewards, credit.divide_by_deviation),
        _ if credit.divide_by_deviation => group_relative(&rewards, true),
        _ => leave_one_out(&rewards),
    };
    for text in texts {
        let Some(advantage) = advantages.get(text.place.1).copied().flatten() else { continue };
        text.control = text.reward - advantage;
        text.advantages.fill(advantage);
    }
}

/// A tree group. What trunk and branches share is compared with the other trees by the mean reward of the tree, and is learned from
/// the trunk alone. What a branch has for itself is compared with the other branches, and counts one part of a text.
fn tree(texts: Vec<&mut Text>, group: &[Episode]) {
    let rewards = rewards(group);
    let tree_of = |at: usize| group.get(at).map(|episode| episode.branch.map_or(at, |branch| branch.tree));
    let mut trees: Vec<(usize, Vec<usize>)> = Vec::new();
    for at in 0..group.len() {
        let Some(tree) = tree_of(at) else { continue };
        // A tree is known by its number; a trunk without branches by its own place, behind all numbers of trees.
        let key = if group.get(at).is_some_and(|it| it.branch.is_some()) { tree } else { usize::MAX - at };
        match trees.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(at),
            None => trees.push((key, vec![at])),
        }
    }
    let mean =
        |members: &[usize]| lemon_num::mean_of(members.iter().filter_map(|at| rewards.get(*at).copied().flatten()));
    let of_trees = leave_one_out(&trees.iter().map(|(_, members)| mean(members)).collect::<Vec<_>>());
    let mut own: Vec<Option<(f64, f64)>> = vec![None; group.len()];
    for ((_, members), of_tree) in trees.iter().zip(of_trees) {
        let among: Vec<Option<f64>> = members.iter().map(|at| rewards.get(*at).copied().flatten()).collect();
        for (at, among) in members.iter().zip(leave_one_out(&among)) {
            // Members are places of the group.
            own[*at] = of_tree.zip(among);
        }
    }
    for text in texts {
        let Some((of_tree, among)) = own.get(text.place.1).copied().flatten() else { continue };
        let branch = group.get(text.place.1).and_then(|episode| episode.branch);
        match branch {
            None => {
                text.control = text.reward - of_tree;
                text.advantages.fill(of_tree);
            }
            Some(Branch { fork, branches, is_trunk, .. }) => {
                // Later rounds are behind the fork.
                let fork = if text.place.2 == 0 { fork } else { 0 };
                let part = 1.0 / branches.max(1) as f32;
                for at in 0..text.advantages.len() {
                    // Advantages and scales are those of the same tokens.
                    (text.advantages[at], text.scale[at]) = match (at < fork, is_trunk) {
                        (true, true) => (of_tree, 1.0),
                        (true, false) => (0.0, 0.0),
                        (false, _) => (among, part),
                    };
                }
                text.control = text.reward - among;
            }
        }
    }
}

/// Entries of agents are compared with those at the same place in all teams of the step, over their deviation.
fn by_agent(texts: &mut [Text]) {
    let mut entries: Vec<(usize, Option<Span>)> = Vec::new();
    let mut rewards: Vec<((usize, Option<usize>), f64)> = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        rewards.push(((text.place.2, None), text.reward));
        entries.push((at, None));
        let agents = text.plan.as_ref().map_or(0, |plan| plan.agents().len());
        for agent in 0..agents {
            let Some(span) = text.plan.as_ref().and_then(|plan| entry(plan, agent)) else { continue };
            rewards.push(((text.place.2, Some(agent)), text.reward));
            entries.push((at, Some(span)));
        }
    }
    for ((at, span), advantage) in entries.into_iter().zip(normalised_by_class(&rewards)) {
        let text = &mut texts[at]; // A position of `texts`.
        // A class without spread tells nothing.
        let advantage = advantage.unwrap_or(0.0);
        match span {
            None => text.advantages.fill(advantage),
            Some(span) => text.tokens_in(span).into_iter().for_each(|token| text.advantages[token] = advantage),
        }
    }
}

fn entry(plan: &Plan, agent: usize) -> Option<Span> {
    let start = match agent.checked_sub(1) {
        Some(before) => plan.spans().get(Field::Agent(before))?.end,
        None => 0,
    };
    Some(Span { start, end: plan.spans().get(Field::Agent(agent))?.end })
}

/// Lists of references are compared with the texts of the group that do not have their edges.
fn by_edge(texts: &mut [Text], groups: usize) {
    for group in 0..groups {
        let own: Vec<usize> = (0..texts.len()).filter(|at| texts[*at].place.0 == group).collect();
        let rounds: std::collections::BTreeSet<usize> = own.iter().map(|at| texts[*at].place.2).collect();
        for round in rounds {
            let of_round: Vec<usize> = own.iter().copied().filter(|at| texts[*at].place.2 == round).collect();
            let edges: Vec<(f64, Vec<(usize, String)>)> =
                of_round.iter().map(|at| (texts[*at].reward, edges(texts[*at].plan.as_ref()))).collect();
            let credit = presence_credit(&edges);
            for at in of_round {
                let text = &mut texts[at]; // Positions of `texts`, here and above.
                let Some(plan) = text.plan.clone() else { continue };
                for (agent, reader) in plan.spec().agents.iter().enumerate() {
                    let of_edge = |parent: &String| credit.get(&(agent, parent.clone())).copied().flatten();
                    let mean = lemon_num::mean_of(reader.after.iter().filter_map(of_edge));
                    let (Some(mean), Some(span)) = (mean, plan.spans().get(Field::After(agent))) else { continue };
                    text.tokens_in(span).into_iter().for_each(|token| text.advantages[token] = mean);
                }
            }
        }
    }
}

/// The edges of a team: the place of the reader and the id of the agent it reads.
fn edges(plan: Option<&Plan>) -> Vec<(usize, String)> {
    let agents = plan.iter().flat_map(|plan| plan.spec().agents.iter().enumerate());
    agents.flat_map(|(at, agent)| agent.after.iter().map(move |parent| (at, parent.clone()))).collect()
}
