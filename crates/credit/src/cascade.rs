//! How far an edit spread: which descendants said something else, and what that did to the reward.

use crate::answer;
use crate::estimate::Paired;
use lemon_spec::edit::{Edit, Family};
use lemon_trace::{AgentSummary, Summary, Trace};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What one edit changed in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cascade {
    /// Agents that the edited one can reach, in the original team or the edited one.
    pub descendants: usize,
    /// Of these, how many replied something else, or exist in one of the teams only.
    pub changed: usize,
    /// Whether the edited agent's own reply is another. `None` where no agent is edited, or it is in one team only.
    pub own_changed: Option<bool>,
    /// Whether the team's answer is another.
    pub answer_changed: bool,
}

/// How an effect splits into what the edited agent's own output does, and what others make of it. `Δ` as everywhere:
/// a positive part says that this part of the edit did harm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EffectSplit {
    /// `R(original) − R(edited)`: the sum of the other two.
    pub total: f64,
    /// `R(original) − R(direct)`: only the edited agent's own output is replaced, whatever its readers would do.
    pub direct: f64,
    /// `R(direct) − R(edited)`: what its readers, and theirs, do about it.
    pub downstream: f64,
}

/// The cascades of all edits of a family.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FamilyCascade {
    /// Edits counted.
    pub n: u64,
    /// Their descendants, all together.
    pub descendants: u64,
    /// Of these, those that changed.
    pub changed: u64,
    /// Edits of which it is known whether the edited agent replied something else.
    pub own_known: u64,
    /// Of these, those where it did.
    pub own_changed: u64,
    /// Edits that changed the answer.
    pub answer_changed: u64,
    /// The direct parts of the effects, where they were measured.
    pub direct: Paired,
    /// The downstream parts.
    pub downstream: Paired,
    /// The whole effects of the same edits.
    pub total: Paired,
}

/// Cascades, family by family.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CascadeSummary {
    families: BTreeMap<Family, FamilyCascade>,
}

/// What `edit` changed between a run of the original team and one of the edited team, on the same draws.
pub fn cascade(original: &Trace, edited: &Trace, edit: &Edit) -> Cascade {
    let (original, edited) = (original.summary(), edited.summary());
    let source = edit.change.edited_agent();
    let descendants = source.map(|source| descendants(source, &original, &edited)).unwrap_or_default();
    let changed = descendants.iter().filter(|id| replies_differ(original.agent(id), edited.agent(id)));
    let own = source.and_then(|id| Some((original.agent(id)?, edited.agent(id)?)));
    Cascade {
        descendants: descendants.len(),
        changed: changed.count(),
        own_changed: own.map(|(before, after)| replies_differ(Some(before), Some(after))),
        answer_changed: match (&original.answer, &edited.answer) {
            (Some(before), Some(after)) => !answer::same(before, after),
            (before, after) => before != after,
        },
    }
}

/// All who read the agent, directly or through others, in either run. Agents of a later round all do: the
/// orchestrator wrote them after it had read the results.
fn descendants<'a>(source: &'a str, original: &'a Summary, edited: &'a Summary) -> BTreeSet<&'a str> {
    let agents = || original.agents.iter().chain(&edited.agents);
    let round = agents().filter(|agent| agent.id == source).map(|agent| agent.round).min();
    let later = agents().filter(|agent| round.is_some_and(|round| agent.round > round));
    let mut found: BTreeSet<&str> = later.map(|agent| agent.id.as_str()).collect();
    let mut ahead = vec![source];
    while let Some(parent) = ahead.pop() {
        for agent in agents().filter(|agent| agent.after.iter().any(|id| id == parent)) {
            if agent.id != source && found.insert(&agent.id) {
                ahead.push(&agent.id);
            }
        }
    }
    found
}

fn replies_differ(before: Option<&AgentSummary>, after: Option<&AgentSummary>) -> bool {
    let reply = |agent: &AgentSummary| (agent.status, agent.reply.clone());
    before.map(reply) != after.map(reply)
}

impl EffectSplit {
    /// Of the rewards of the original run, of one in which only the edited agent's own output is replaced, and of the
    /// edited run.
    pub fn new(original: f64, direct: f64, edited: f64) -> EffectSplit {
        EffectSplit { total: original - edited, direct: original - direct, downstream: direct - edited }
    }
}

impl FamilyCascade {
    /// Descendants an edit has, on average.
    pub fn mean_descendants(&self) -> Option<f64> {
        ratio(self.descendants, self.n)
    }

    /// The share of descendants that changed.
    pub fn changed_share(&self) -> Option<f64> {
        ratio(self.changed, self.descendants)
    }

    /// The share of edits after which the edited agent replied something else.
    pub fn own_changed_share(&self) -> Option<f64> {
        ratio(self.own_changed, self.own_known)
    }

    /// The share of edits that changed the answer.
    pub fn answer_changed_share(&self) -> Option<f64> {
        ratio(self.answer_changed, self.n)
    }
}

impl CascadeSummary {
    /// Adds one edit; `split` where it was measured.
    pub fn push(&mut self, family: Family, cascade: &Cascade, split: Option<&EffectSplit>) {
        let sum = self.families.entry(family).or_default();
        sum.n += 1;
        sum.descendants += cascade.descendants as u64;
        sum.changed += cascade.changed as u64;
        sum.own_known += u64::from(cascade.own_changed.is_some());
        sum.own_changed += u64::from(cascade.own_changed == Some(true));
        sum.answer_changed += u64::from(cascade.answer_changed);
        if let Some(split) = split {
            sum.direct.push(split.direct);
            sum.downstream.push(split.downstream);
            sum.total.push(split.total);
        }
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &CascadeSummary) {
        for (family, more) in &other.families {
            let sum = self.families.entry(*family).or_default();
            sum.n += more.n;
            sum.descendants += more.descendants;
            sum.changed += more.changed;
            sum.own_known += more.own_known;
            sum.own_changed += more.own_changed;
            sum.answer_changed += more.answer_changed;
            sum.direct.merge(&more.direct);
            sum.downstream.merge(&more.downstream);
            sum.total.merge(&more.total);
        }
    }

    /// What is known of a family.
    pub fn get(&self, family: Family) -> Option<&FamilyCascade> {
        self.families.get(&family)
    }

    /// The families that were edited, in a stable order.
    pub fn iter(&self) -> impl Iterator<Item = (Family, &FamilyCascade)> {
        self.families.iter().map(|(family, cascade)| (*family, cascade))
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests;
