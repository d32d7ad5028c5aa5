//! What decisions tell about questions: the diagnosis of a collapse.

use crate::episode::Episode;
use lemon_credit::guard::{Information, information};
use lemon_spec::Plan;
use std::collections::BTreeMap;

/// A decision: its name, and its value in a plan.
type NamedDecision = (&'static str, fn(&Plan) -> String);

/// The decisions of first rounds that are told apart.
const DECISIONS: [NamedDecision; 5] = [
    ("agents", |plan| plan.agents().len().to_string()),
    ("capacity", |plan| plan.spec().agents.first().map_or_else(String::new, |agent| agent.capacity.clone())),
    ("base", |plan| plan.spec().agents.first().map_or_else(String::new, |agent| agent.base.clone())),
    ("by", |plan| plan.answer_rule().as_str().to_owned()),
    ("next", |plan| plan.next().as_str().to_owned()),
];

/// Of every decision its entropy and its mutual information with the question. Capacity and base are those of the first agent.
pub(crate) fn of_episodes(episodes: &[Episode]) -> BTreeMap<String, Information> {
    let plans: Vec<(usize, &Plan)> =
        episodes.iter().filter_map(|episode| Some((episode.case, episode.rounds.first()?.plan.as_ref()?))).collect();
    let of = |(name, value): &NamedDecision| {
        let values: Vec<(usize, String)> = plans.iter().map(|(case, plan)| (*case, value(plan))).collect();
        ((*name).to_owned(), information(values.iter().map(|(case, value)| (*case, value.as_str()))))
    };
    DECISIONS.iter().map(of).collect()
}
