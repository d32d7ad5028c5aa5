//! Prefix teams as baselines: the entry of an agent is compared with the team that ends before it.
//!
//! A prefix team depends only on what was written before. So the reward of the whole team, less that of the prefix team, is an
//! unbiased advantage for everything written after: whether there is one more agent, its entry, and the end of the text. The
//! decision that the team is complete has the same baseline as the decision to go on.

use super::text::Text;
use super::{Candidate, Written};
use crate::recipe::CreditSettings;
use lemon_credit::estimator::prefix_advantages;
use std::collections::BTreeMap;

/// Replaces the advantages of texts that have prefix teams.
pub(super) fn advantages(
    texts: &mut [Text],
    places: &BTreeMap<Written, usize>,
    counterfactuals: &[Candidate],
    credit: &CreditSettings,
) {
    let mut potentials: BTreeMap<usize, Vec<(usize, f64)>> = BTreeMap::new();
    for candidate in counterfactuals {
        let (Some(agents), Some(delta)) = (candidate.prefix, candidate.delta) else { continue };
        let place = (candidate.group, candidate.episode, candidate.round);
        let Some(at) = places.get(&place).copied() else { continue };
        potentials.entry(at).or_default().push((agents, delta));
    }
    for (at, known) in potentials {
        texts[at].measure_from_prefix(&known, credit.prefix_decay); // A place of `texts`.
    }
}

impl Text {
    /// `known`: the agents of each prefix team, and the reward of the whole team less its reward.
    fn measure_from_prefix(&mut self, known: &[(usize, f64)], decay: f64) {
        let Some(plan) = self.plan.clone() else { return };
        let agents = plan.agents().len();
        let mut values: Vec<Option<f64>> = vec![None; agents + 1];
        for (agents, delta) in known {
            if let Some(value) = values.get_mut(*agents) {
                *value = Some(self.reward - delta);
            }
        }
        // There is no team before the first agent of a first round: it is compared with the other teams. With potentials of later
        // segments alone, `decay` below 1 would have nothing to decay to.
        let is_first = values.first().is_some_and(Option::is_none);
        if is_first && let Some(first) = values.first_mut() {
            *first = Some(self.control);
        }
        let found = prefix_advantages(&values, self.reward, decay);
        // Segments, scales and advantages are those of the same tokens.
        for (at, segment) in self.segments().into_iter().enumerate() {
            let unmeasured = values.get(segment).is_some_and(Option::is_none);
            match found.get(segment).copied().flatten() {
                Some(advantage) if self.scale[at] > 0.0 => self.advantages[at] = advantage,
                // Whose prefix team is not known gets no credit: that of the group would be measured from elsewhere.
                None if unmeasured => self.advantages[at] = 0.0,
                _ => {}
            }
        }
    }
}
