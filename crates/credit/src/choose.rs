//! Which counterfactual to run next.
//!
//! A run of an edited team costs worker tokens, and most say little: many edits change nothing, others cost half a
//! team. The chooser proposes one at a time, never more than the cap allows, and learns from what comes back. It runs
//! nothing itself.

mod account;

use crate::estimate::Paired;
use lemon_num::Random;
use lemon_spec::edit::Family;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use account::Account;

/// A counterfactual that could be run: one edit on one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CounterfactualOption {
    /// The index of the edit.
    pub edit: usize,
    /// The edit's family.
    pub family: Family,
    /// The index of the task.
    pub task: usize,
    /// The worker tokens it is expected to cost: 0 where the cache answers it all.
    pub cost: u64,
}

/// How to choose.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "snake_case")]
pub enum ChoiceRule {
    /// By the expected reduction of an estimate's variance for a worker token. What is nearly free comes first.
    Information {
        /// The share of picks that every family gets at least, as long as it has candidates; at most an equal share.
        floor: f64,
    },
    /// As the paper has it: a family is drawn by its mean |Δ| so far, and in it any edit.
    #[serde(alias = "contrast")]
    Effect {
        /// The probability that every family has at least; at most an equal one.
        floor: f64,
    },
}

impl Default for ChoiceRule {
    /// By information, and a twentieth for every family.
    fn default() -> Self {
        ChoiceRule::Information { floor: 0.05 }
    }
}

/// Proposes counterfactuals, the most worthwhile first.
#[derive(Debug, Clone)]
pub struct Chooser {
    policy: ChoiceRule,
    cap: u64,
    spent: u64,
    reserved: u64,
    random: Random,
    pools: Vec<Pool>,
    accounts: BTreeMap<Family, Account>,
    /// Proposals so far, by family.
    picks: BTreeMap<Family, u64>,
}

/// The candidates of one edit.
#[derive(Debug, Clone)]
struct Pool {
    family: Family,
    edit: usize,
    /// Most expensive first, so that the cheapest is the last.
    waiting: Vec<CounterfactualOption>,
    /// What came back.
    paired: Paired,
    /// Proposed, and not yet back.
    in_flight: u64,
}

/// What a proposal costs besides worker tokens, in tokens: it keeps a free one from being worth infinitely much.
const OVERHEAD: f64 = 32.0;

impl Chooser {
    /// Over these candidates, spending at most `cap_tokens`. The same seed gives the same proposals.
    pub fn new(policy: ChoiceRule, cap_tokens: u64, mut candidates: Vec<CounterfactualOption>, seed: u64) -> Chooser {
        let mut random = Random::new(seed);
        // Among equals, which come first is chance: not the edit that stands first in the text.
        random.shuffle(&mut candidates);
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.cost));
        let mut pools: Vec<Pool> = Vec::new();
        let mut places: BTreeMap<usize, usize> = BTreeMap::new();
        for candidate in candidates {
            let place = *places.entry(candidate.edit).or_insert_with(|| {
                pools.push(Pool::new(&candidate));
                pools.len() - 1
            });
            // Every place on record is that of a pool pushed above.
            pools[place].waiting.push(candidate);
        }
        random.shuffle(&mut pools);
        let accounts = pools.iter().map(|pool| (pool.family, Account::default())).collect();
        let picks = pools.iter().map(|pool| (pool.family, 0)).collect();
        Chooser { policy, cap: cap_tokens, spent: 0, reserved: 0, random, pools, accounts, picks }
    }

    /// The same, knowing what earlier counterfactuals of each family came to.
    #[must_use]
    pub fn with_accounts(mut self, accounts: &BTreeMap<Family, Account>) -> Chooser {
        self.accounts.extend(accounts.iter().map(|(family, account)| (*family, *account)));
        self
    }

    /// The next counterfactual to run, or `None` if none is left that the cap allows. Its cost is reserved until
    /// [`Chooser::record`] says what it came to; several can be under way.
    pub fn propose(&mut self) -> Option<CounterfactualOption> {
        let affordable = self.affordable();
        let place = match self.policy {
            ChoiceRule::Information { floor } => self.most_informative(&affordable, floor),
            ChoiceRule::Effect { floor } => self.drawn_by_effect(&affordable, floor),
        }?;
        let pool = self.pools.get_mut(place)?;
        let candidate = pool.waiting.pop()?;
        pool.in_flight += 1;
        self.reserved += candidate.cost;
        *self.picks.entry(candidate.family).or_default() += 1;
        Some(candidate)
    }

    /// What a proposal came to: its difference, `None` if it could not be measured, and the worker tokens it really cost.
    pub fn record(&mut self, candidate: &CounterfactualOption, delta: Option<f64>, tokens: u64) {
        self.reserved = self.reserved.saturating_sub(candidate.cost);
        self.spent = self.spent.saturating_add(tokens);
        self.accounts.entry(candidate.family).or_default().add(delta, tokens);
        if let Some(pool) = self.pools.iter_mut().find(|pool| pool.edit == candidate.edit) {
            pool.in_flight = pool.in_flight.saturating_sub(1);
            delta.iter().for_each(|delta| pool.paired.push(*delta));
        }
    }

    /// What is known of each family: of those with candidates here, and of those told of.
    pub fn accounts(&self) -> &BTreeMap<Family, Account> {
        &self.accounts
    }

    /// Proposals so far, by family.
    pub fn picks(&self) -> &BTreeMap<Family, u64> {
        &self.picks
    }

    /// Worker tokens really spent.
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// Worker tokens that may still be proposed.
    pub fn left(&self) -> u64 {
        self.cap.saturating_sub(self.spent).saturating_sub(self.reserved)
    }

    /// The pools whose cheapest candidate the cap allows.
    fn affordable(&self) -> Vec<usize> {
        let left = self.left();
        let allows = |pool: &Pool| pool.waiting.last().is_some_and(|candidate| candidate.cost <= left);
        self.pools.iter().enumerate().filter(|(_, pool)| allows(pool)).map(|(place, _)| place).collect()
    }

    fn most_informative(&self, affordable: &[usize], floor: f64) -> Option<usize> {
        let owed = self.family_owed(affordable, floor);
        let pools = affordable.iter().filter_map(|place| Some((*place, self.pools.get(*place)?)));
        let eligible = pools.filter(|(_, pool)| owed.is_none_or(|family| pool.family == family));
        let scored = eligible.map(|(place, pool)| (self.information_per_token(pool), place));
        // The first of equals; `max_by` would take the last.
        scored.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, place)| place)
    }

    /// The family that is furthest below its floor, if one is.
    fn family_owed(&self, affordable: &[usize], floor: f64) -> Option<Family> {
        let floor = floor.min(1.0 / self.picks.len() as f64);
        let next = self.picks.values().sum::<u64>() as f64 + 1.0;
        let short = |family: &Family| floor * next - self.picks.get(family).copied().unwrap_or(0) as f64;
        let families = affordable.iter().filter_map(|place| self.pools.get(*place)).map(|pool| pool.family);
        families.filter(|family| short(family) > 0.0).max_by(|a, b| short(a).total_cmp(&short(b)))
    }

    /// How much one more pair of an edit is expected to reduce the variance of its estimate, v/n − v/(n+1), for a token.
    fn information_per_token(&self, pool: &Pool) -> f64 {
        let family = self.accounts.get(&pool.family).copied().unwrap_or_default();
        let variance = family.variance_of(&pool.paired);
        // What is under way counts as if it were back. The prior is worth one pair: the first gain is not infinite.
        let n = (pool.paired.n() + pool.in_flight) as f64 + 1.0;
        let cost = pool.waiting.last().map_or(0, |candidate| candidate.cost);
        variance / (n * (n + 1.0)) / (cost as f64 + OVERHEAD)
    }

    fn drawn_by_effect(&mut self, affordable: &[usize], floor: f64) -> Option<usize> {
        let mut families: BTreeMap<Family, Vec<usize>> = BTreeMap::new();
        for place in affordable {
            families.entry(self.pools.get(*place)?.family).or_default().push(*place);
        }
        let mean = |family| self.accounts.get(family).copied().unwrap_or_default().mean_absolute();
        let weights: Vec<f64> = families.keys().map(mean).collect();
        let drawn = draw_with_floor(&weights, floor, self.random.uniform());
        let pools = families.into_values().nth(drawn)?;
        pools.get(self.random.below(pools.len())).copied()
    }
}

impl Pool {
    fn new(first: &CounterfactualOption) -> Pool {
        let CounterfactualOption { edit, family, .. } = *first;
        Pool { family, edit, waiting: Vec::new(), paired: Paired::default(), in_flight: 0 }
    }
}

/// One of the places, each with the probability `floor` and of the rest a part by its weight. `uniform` is from 0 to 1.
fn draw_with_floor(weights: &[f64], floor: f64, uniform: f64) -> usize {
    let count = weights.len() as f64;
    let floor = floor.clamp(0.0, 1.0 / count.max(1.0));
    let sum: f64 = weights.iter().sum();
    let share = |weight: f64| if sum > 0.0 { weight / sum } else { 1.0 / count };
    let mut beyond = uniform;
    for (place, weight) in weights.iter().enumerate() {
        beyond -= floor + (1.0 - count * floor) * share(*weight);
        if beyond < 0.0 {
            return place;
        }
    }
    // Rounding may leave a rest.
    weights.len().saturating_sub(1)
}

#[cfg(test)]
mod tests;
