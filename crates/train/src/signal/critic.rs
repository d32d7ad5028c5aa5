//! The critic of the training as a baseline: what the beginning of a text is worth beside other teams of its task.
//!
//! The critic was fitted to earlier steps, and it reads what was written before a decision alone. So a reward less its estimate has the
//! mean of the policy gradient, however wrong the estimate is. What the task is worth comes from the other teams of the group: the
//! mean of what the critic missed in them.

use super::text::Text;
use crate::TrainContext;
use crate::counterfactual::Candidate;
use crate::episode::{Episode, Round};
use crate::recipe::{CriticReads, Recipe};
use crate::signal::Written;
use lemon_credit::estimator::leave_one_out;
use lemon_credit::model::{Features, RewardModel};
use lemon_model::{PolicyError, ValueText};
use lemon_policy::{PromptEncoder, TrainablePolicy};
use lemon_spec::{Field, Plan};
use std::collections::BTreeMap;

/// How the critic of a training reads teams.
#[derive(Clone, Copy, Default)]
pub(crate) struct CriticReader<'a> {
    /// The policy as it was at first, where its hidden states are read.
    start: Option<&'a dyn TrainablePolicy>,
}

impl<'a> CriticReader<'a> {
    /// What a recipe asks for. [`TrainContext::check`] has seen that there is a policy to read.
    pub fn new(context: &TrainContext<'a>, recipe: &Recipe) -> CriticReader<'a> {
        let reads = recipe.credit.asks_critic() && recipe.credit.critic_reads == CriticReads::States;
        CriticReader { start: context.reference.filter(|_| reads) }
    }

    /// The features of a written text: of its beginning before each agent and behind the last one, then of the whole.
    pub fn beginnings(
        &self,
        round: usize,
        plan: &Plan,
        prompt: &[u32],
        tokens: &[u32],
        ends: &[usize],
    ) -> Result<Vec<Features>, PolicyError> {
        let agents = plan.agents().len();
        let mut found: Vec<Features> = (0..=agents).map(|agents| features(round, plan, agents, false)).collect();
        found.push(whole(round, plan));
        let Some(start) = self.start else { return Ok(found) };
        let written = |agents: usize| match agents.checked_sub(1).map(|last| plan.spans().get(Field::Agent(last))) {
            None => 0,
            // A token that goes beyond the entry holds a decision that comes later.
            Some(span) => ends.partition_point(|end| span.is_some_and(|span| *end <= span.end)),
        };
        let at = (0..=agents).map(written).chain([tokens.len()]).collect();
        let text = ValueText { tokens: tokens.to_vec(), at };
        let states = start.states(prompt, &text)?.ok_or_else(|| {
            let fact =
                "`credit.critic_reads` is `states`: expected a language model, found a policy without hidden states";
            PolicyError::Request(fact.to_owned())
        })?;
        for (features, state) in found.iter_mut().zip(states) {
            // Together as much as one feature of a few units.
            let scale = 1.0 / (state.len().max(1) as f64).sqrt();
            features
                .extend(state.iter().enumerate().map(|(at, value)| (format!("state {at}"), f64::from(*value) * scale)));
        }
        Ok(found)
    }

    /// The features of a team that takes the place of one that was written.
    pub fn other(
        &self,
        encoder: &dyn PromptEncoder,
        round: usize,
        plan: &Plan,
        in_place_of: &Round,
    ) -> Result<Features, PolicyError> {
        let request = &in_place_of.request;
        let encoded = match self.start {
            None => None,
            Some(_) => encoder.encode(request, plan.source(), &in_place_of.sample.tokens),
        };
        // Of a text that the policy cannot write there are no states.
        let Some(encoded) = encoded else { return Ok(whole(round, plan)) };
        let found = self.beginnings(round, plan, &request.prompt, &encoded.tokens, &encoded.ends)?;
        Ok(found.into_iter().next_back().unwrap_or_default())
    }

    /// The features of a whole team that was written.
    pub fn written(&self, round: usize, plan: &Plan, written: &Round) -> Result<Features, PolicyError> {
        let sample = &written.sample;
        let found = self.beginnings(round, plan, &written.request.prompt, &sample.tokens, &sample.ends)?;
        Ok(found.into_iter().next_back().unwrap_or_default())
    }
}

/// The features of the first agents of a round, and of its end where that is written.
fn features(round: usize, plan: &Plan, agents: usize, is_whole: bool) -> Features {
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
                let expected = text.read.last().map_or(0.0, |whole| critic.estimate(whole));
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
            let (Some(offset), Some((_, beginnings))) = (offsets.get(&text.place.1), text.read.split_last()) else {
                continue;
            };
            let expected: Vec<f64> = beginnings.iter().map(|features| critic.estimate(features) + offset).collect();
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
        let Some(others) = others.get(&(text.place.0, text.place.1)) else { continue };
        lessons.extend(text.read.iter().map(|features| (features.clone(), text.reward - others)));
    }
    for candidate in counterfactuals {
        let place = (candidate.group, candidate.episode, candidate.round);
        let text = places.get(&place).and_then(|at| texts.get(*at));
        let others = others.get(&(candidate.group, candidate.episode));
        let (Some(text), Some(others), Some(delta)) = (text, others, candidate.delta) else { continue };
        let read = candidate.read.clone().unwrap_or_else(|| whole(candidate.round, &candidate.edited.plan));
        lessons.push((read, text.reward - delta - others));
    }
    lessons
}
