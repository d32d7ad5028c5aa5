//! The critic of the training as a baseline: what the beginning of a text is worth beside other teams of its task.
//!
//! The critic was fitted to earlier steps, and it reads what was written before a decision alone. So a reward less its estimate has the
//! mean of the policy gradient, however wrong the estimate is. What the task is worth comes from the other teams of the group: the
//! mean of what the critic missed in them.

use super::text::Text;
use crate::counterfactual::Candidate;
use crate::episode::Episode;
use crate::signal::Written;
use lemon_credit::estimator::leave_one_out;
use lemon_credit::model::{Features, RewardModel};
use lemon_spec::Plan;
use std::collections::BTreeMap;

/// The features of the first agents of a round, and of its end where that is written.
pub(crate) fn features(round: usize, plan: &Plan, agents: usize, is_whole: bool) -> Features {
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    let mut add = |name: String, value: f64| *counts.entry(name).or_default() += value;
    let spec = plan.spec();
    let agents = agents.min(spec.agents.len());
    let count = agents as f64;
    add(format!("round {round}"), 1.0);
    add("agents".to_owned(), count);
    add("agents squared".to_owned(), count * count / 4.0);
    for agent in spec.agents.iter().take(agents) {
        add(format!("base={}", agent.base), 1.0);
        add(format!("capacity={}", agent.capacity), 1.0);
        add("references".to_owned(), agent.after.len() as f64);
    }
    if is_whole {
        add("whole".to_owned(), 1.0);
        add("agents of a whole".to_owned(), count);
        add(format!("by={}", spec.answer.by.as_str()), 1.0);
        add(format!("next={}", spec.next.as_str()), 1.0);
    }
    counts.into_iter().collect()
}

fn whole(round: usize, plan: &Plan) -> Features {
    features(round, plan, plan.agents().len(), true)
}

/// Replaces the advantages of texts by their rewards less what the critic expected before each segment. Trees are left alone: what
/// their branches share is no independent comparison.
pub(super) fn advantages(texts: &mut [Text], groups: &[Vec<Episode>], critic: &RewardModel) {
    let is_flat = |group: &usize| groups[*group].iter().all(|episode| episode.branch.is_none());
    for group in (0..groups.len()).filter(is_flat) {
        let first = |text: &&Text| text.place.0 == group && text.place.2 == 0;
        let missed: Vec<(usize, Option<f64>)> = texts
            .iter()
            .filter(first)
            .map(|text| {
                let expected = text.plan.as_ref().map_or(0.0, |plan| critic.estimate(&whole(0, plan)));
                (text.place.1, Some(text.reward - expected))
            })
            .collect();
        let own = leave_one_out(&missed.iter().map(|(_, missed)| *missed).collect::<Vec<_>>());
        // What others missed in the mean: one's own miss, less how much more it is than theirs.
        let offset =
            |((episode, missed), more): (&(usize, Option<f64>), Option<f64>)| Some((*episode, (*missed)? - more?));
        let offsets: BTreeMap<usize, f64> = missed.iter().zip(own).filter_map(offset).collect();
        if offsets.len() < 2 {
            continue;
        }
        for text in texts.iter_mut().filter(|text| text.place.0 == group) {
            let (Some(offset), Some(plan)) = (offsets.get(&text.place.1), text.plan.clone()) else { continue };
            let expected = |agents: usize| critic.estimate(&features(text.place.2, &plan, agents, false)) + offset;
            let expected: Vec<f64> = (0..=plan.agents().len()).map(expected).collect();
            text.control = expected.first().copied().unwrap_or(text.control);
            for (at, segment) in text.segments().into_iter().enumerate() {
                // Segments end with the last agent's.
                text.advantages[at] = text.reward - expected.get(segment).copied().unwrap_or(*offset);
            }
        }
    }
}

/// What the critic learns from a step: beginnings, whole teams and counterfactuals, each with its reward less that of other teams.
pub(super) fn lessons(
    texts: &[Text],
    places: &BTreeMap<Written, usize>,
    groups: usize,
    counterfactuals: &[Candidate],
) -> Vec<(Features, f64)> {
    let mut lessons = Vec::new();
    let mut others: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for group in 0..groups {
        let first: Vec<&Text> = texts.iter().filter(|text| text.place.0 == group && text.place.2 == 0).collect();
        let advantages = leave_one_out(&first.iter().map(|text| Some(text.reward)).collect::<Vec<_>>());
        for (text, advantage) in first.iter().zip(advantages).filter(|_| first.len() > 1) {
            others.insert((group, text.place.1), text.reward - advantage.unwrap_or(0.0));
        }
    }
    for text in texts {
        let (Some(others), Some(plan)) = (others.get(&(text.place.0, text.place.1)), &text.plan) else { continue };
        let beginnings = (0..=plan.agents().len()).map(|agents| features(text.place.2, plan, agents, false));
        lessons.extend(beginnings.chain([whole(text.place.2, plan)]).map(|features| (features, text.reward - others)));
    }
    for candidate in counterfactuals {
        let place = (candidate.group, candidate.episode, candidate.round);
        let text = places.get(&place).and_then(|at| texts.get(*at));
        let others = others.get(&(candidate.group, candidate.episode));
        let (Some(text), Some(others), Some(delta)) = (text, others, candidate.delta) else { continue };
        lessons.push((whole(candidate.round, &candidate.edited.plan), text.reward - delta - others));
    }
    lessons
}
