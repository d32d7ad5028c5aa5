//! Credit as an economy: which counterfactuals are worth their worker tokens?
//!
//! A rollout costs tokens and says a little about every field of its specification. A counterfactual costs tokens and says
//! something about one field. Which of the two tells more per token can be estimated from what both have shown so far. With a reward of
//! variance V within a task and a difference of variance D, the effect of one field is as well known from one difference as from
//! 4V/D rollouts, since a rollout shows one side of the comparison at a time; a rollout in turn serves all `fields` at once, each
//! as much as there is at stake in it. So for a counterfactual of cost c against rollouts of cost C,
//!
//! `worth = (4V / D) · (C / c) · stake / fields`,
//!
//! where the stake of a family is its squared mean difference relative to that of the average family, and at most 1: a precise
//! figure for a decision without effect is worth nothing. Under-sampled families get a few exploratory draws. Above 1 a
//! counterfactual tells more than rollouts for the same tokens. What the reply cache answers costs nothing and is always run.

use crate::choose::Account;
use crate::estimate::Paired;
use lemon_num::Random;
use lemon_spec::edit::Family;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How counterfactuals are purchased.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EconomySettings {
    /// Which paid ones are purchased.
    pub paid: Paid,
    /// What all paid ones may cost, as a share of what the rollouts cost, over the whole of the training.
    pub cap: f64,
    /// The worth from which one is purchased.
    pub least_worth: f64,
    /// The share of the cap that is spent on families below that worth, so that an estimate can be corrected.
    pub floor: f64,
    /// The least probability of every family where families are drawn; at most an equal one.
    #[serde(skip_serializing_if = "is_default_floor")]
    pub family_floor: f64,
}

const FAMILY_FLOOR: f64 = 0.05;

fn is_default_floor(floor: &f64) -> bool {
    *floor == FAMILY_FLOOR
}

/// Which counterfactuals that cost something are purchased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Paid {
    /// None: only what the reply cache answers.
    #[default]
    Never,
    /// Those that should tell more than rollouts would for the same tokens.
    Worth,
    /// By chance, up to the cap, whatever they are worth.
    Uniform,
    /// Those that the critic of the training is least sure of for their tokens, up to the cap.
    Unsure,
    /// As the paper has it: a family is drawn by its mean |Δ| so far, with a floor for every family, and then one of its edits, up
    /// to the cap.
    #[serde(alias = "contrast")]
    Effect,
}

impl Default for EconomySettings {
    fn default() -> Self {
        EconomySettings { paid: Paid::Never, cap: 0.15, least_worth: 1.0, floor: 0.1, family_floor: FAMILY_FLOOR }
    }
}

/// What is known of rollouts and of families of edits.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Economy {
    /// By family: differences and costs of those that were paid for. Free ones say nothing about what tokens pay for.
    paid: BTreeMap<Family, Account>,
    /// By family: differences of those that were free.
    free: BTreeMap<Family, Account>,
    /// Rewards less the mean of their group.
    rewards: Paired,
    /// What rollouts cost, in worker tokens as a team's replies count.
    costs: Paired,
    /// Fields of a specification that could be edited.
    fields: Paired,
    /// What those that were paid for were expected to cost in all, and what they did cost.
    expected_tokens: u64,
    real_tokens: u64,
}

/// How many times more or less than a reward a difference may weigh.
const MOST_WEIGHT: f64 = 16.0;

/// What is at stake where nothing seems to be.
const LEAST_STAKE: f64 = 1e-3;
/// Differences after which it can be said that they were nothing on average.
const ENOUGH: u64 = 20;

/// A counterfactual that could be run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    pub family: Family,
    /// What it is expected to cost in worker tokens.
    pub cost: u64,
    /// How unsure a critic is of its difference: a standard error. 0: there is no critic.
    #[serde(default)]
    pub unsure: f64,
}

/// What became of an offer, and why.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferVerdict {
    /// It costs nothing.
    Free,
    /// It tells more for its tokens than rollouts do.
    Worth(f64),
    /// It may not, but its family needs an exploratory draw now and then; or families are not told apart.
    Drawn(f64),
    /// It tells less.
    Declined(f64),
    /// It would be purchased, but the cap does not allow it.
    Capped(f64),
}

/// What happened to a family in one step.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FamilyReport {
    /// Counterfactuals that cost nothing.
    pub free: u64,
    /// Those that were purchased.
    #[serde(alias = "bought")]
    pub purchased: u64,
    /// Those that were offered and told too little.
    pub declined: u64,
    /// Those that the cap did not allow.
    pub capped: u64,
    /// Worker tokens spent.
    pub tokens: u64,
    /// The mean worth of those offered for tokens; 1 is that of a rollout.
    pub worth: Option<f64>,
    /// The mean difference.
    pub mean: Option<f64>,
    /// The mean absolute difference.
    #[serde(alias = "contrast")]
    pub absolute: Option<f64>,
    /// The variance of the differences.
    pub variance: Option<f64>,
    /// The share of differences that are exactly zero.
    pub zeros: Option<f64>,
}

impl Economy {
    /// Adds a group of rollouts of one task: their rewards, what each cost, and how many fields each had.
    pub fn add_group(&mut self, rewards: &[f64], costs: &[u64], fields: &[usize]) {
        let mean = rewards.iter().sum::<f64>() / rewards.len().max(1) as f64;
        if rewards.len() > 1 {
            // Rewards less a mean of their own vary less than they do.
            let spread = (rewards.len() as f64 / (rewards.len() - 1) as f64).sqrt();
            rewards.iter().for_each(|reward| self.rewards.push((reward - mean) * spread));
        }
        costs.iter().for_each(|cost| self.costs.push(*cost as f64));
        fields.iter().for_each(|fields| self.fields.push(*fields as f64));
    }

    /// Adds a counterfactual that was paid for, and was expected to cost so much.
    pub fn add_paid(&mut self, family: Family, delta: Option<f64>, tokens: u64, expected: u64) {
        self.paid.entry(family).or_default().add(delta, tokens);
        self.expected_tokens = self.expected_tokens.saturating_add(expected);
        self.real_tokens = self.real_tokens.saturating_add(tokens);
    }

    /// The cost ratio: what they cost over what they were expected to cost, and at least 1.
    pub fn cost_ratio(&self) -> f64 {
        const DOUBT: f64 = 1_000.0;
        ((self.real_tokens as f64 + DOUBT) / (self.expected_tokens as f64 + DOUBT)).max(1.0)
    }

    /// Adds a counterfactual that was free.
    pub fn add_free(&mut self, family: Family, delta: Option<f64>) {
        self.free.entry(family).or_default().add(delta, 0);
    }

    /// The inverse-variance weight of a difference beside a reward: by how much more a reward varies within a task, V/D. Two
    /// estimates of the same thing are best added up by the inverse of their variances.
    pub fn inverse_variance_weight(&self, family: Family, is_free: bool) -> f64 {
        let accounts = if is_free { &self.free } else { &self.paid };
        let account = accounts.get(&family).copied().unwrap_or_default();
        let Some(reward) = self.rewards.variance() else { return 1.0 };
        (reward / account.variance_of(&Paired::default()).max(1e-9)).clamp(1.0 / MOST_WEIGHT, MOST_WEIGHT)
    }

    /// What a counterfactual tells for its tokens, against rollouts; `None` as long as no rollout is known.
    pub fn worth(&self, offer: &Offer) -> Option<f64> {
        let (reward, cost, fields) = (self.rewards.variance()?, self.costs.mean()?, self.fields.mean()?);
        let account = self.paid.get(&offer.family).copied().unwrap_or_default();
        let difference = account.variance_of(&Paired::default());
        let per_rollout = 4.0 * reward / difference.max(1e-9);
        Some(per_rollout * (cost / offer.cost.max(1) as f64) * self.stake(offer.family) / fields.max(1.0))
    }

    /// What is at stake in a family, relative to the average one and at most as much: that more is at stake in it is known to the
    /// rollouts too. Next to nothing, where many differences were nothing on average, and as long as there are few: of every family
    /// some are drawn to find out.
    fn stake(&self, family: Family) -> f64 {
        let square = |account: &Account| {
            let n = account.deltas.n() as f64;
            // Drawn towards nothing by a few made-up pairs.
            (account.deltas.mean().unwrap_or(0.0) * n / (n + 4.0)).powi(2)
        };
        let Some(account) = self.paid.get(&family).filter(|account| account.deltas.n() >= ENOUGH) else {
            return LEAST_STAKE;
        };
        let (mean, error) = (account.deltas.mean().unwrap_or(0.0), account.deltas.standard_error().unwrap_or(0.0));
        if mean.abs() <= 2.0 * error {
            return LEAST_STAKE;
        }
        let average = self.paid.values().map(square).sum::<f64>() / self.paid.len().max(1) as f64;
        // Where nothing is known of any, as much as in the others.
        if average > 0.0 { (square(account) / average).clamp(LEAST_STAKE, 1.0) } else { 1.0 }
    }

    /// Decides which of these offers to take for at most so many tokens, by what they are expected to cost. The same seed
    /// decides the same.
    pub fn decide(&self, offers: &[Offer], allowance: u64, settings: &EconomySettings, seed: u64) -> Vec<OfferVerdict> {
        let mut verdicts = vec![OfferVerdict::Free; offers.len()];
        let mut random = Random::new(seed);
        let drawn = (settings.floor.clamp(0.0, 1.0) * allowance as f64) as u64;
        let mut budget = StepBudget { left: allowance, drawn };
        for place in self.order(offers, settings, &mut random) {
            let Some(offer) = offers.get(place) else { continue };
            // Nothing is known before the first rollouts; then anything may be worth it.
            let worth = self.worth(offer).unwrap_or(1.0);
            let verdict = match settings.paid {
                Paid::Never => OfferVerdict::Declined(worth),
                Paid::Worth if worth >= settings.least_worth => budget.buy(offer.cost, OfferVerdict::Worth(worth)),
                Paid::Worth => budget.draw(offer.cost, worth),
                Paid::Uniform | Paid::Unsure | Paid::Effect => budget.buy(offer.cost, OfferVerdict::Drawn(worth)),
            };
            // Places are those of `offers`.
            verdicts[place] = verdict;
        }
        verdicts
    }

    /// The order in which offers that cost something are considered.
    fn order(&self, offers: &[Offer], settings: &EconomySettings, random: &mut Random) -> Vec<usize> {
        let mut places: Vec<usize> =
            (0..offers.len()).filter(|at| offers.get(*at).is_some_and(|it| it.cost > 0)).collect();
        random.shuffle(&mut places);
        let worth = |at: &usize| offers.get(*at).and_then(|offer| self.worth(offer)).unwrap_or(0.0);
        match settings.paid {
            Paid::Worth => {
                places.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
                // Those below the least worth are exploratory draws: families take turns, whatever their worth.
                let below = places.partition_point(|at| worth(at) >= settings.least_worth);
                let mut draws = places.split_off(below);
                random.shuffle(&mut draws);
                places.extend(in_turns(&draws, offers, random));
            }
            Paid::Effect => {
                // Without replacement: the largest of u^(1/w) (P. S. Efraimidis and P. G. Spirakis, 2006).
                let chances = self.family_chances(offers, &places, settings.family_floor);
                let weight = |at: &usize| offers.get(*at).and_then(|it| chances.get(&it.family)).map_or(1e-9, |it| *it);
                let mut keyed: Vec<(f64, usize)> =
                    places.iter().map(|at| (random.uniform().max(1e-300).ln() / weight(at), *at)).collect();
                keyed.sort_by(|a, b| b.0.total_cmp(&a.0));
                places = keyed.into_iter().map(|(_, at)| at).collect();
            }
            Paid::Unsure => {
                // A counterfactual lowers a variance, and costs tokens.
                let gain = |at: &usize| offers.get(*at).map_or(0.0, |it| it.unsure.powi(2) / it.cost as f64);
                places.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
            }
            Paid::Never | Paid::Uniform => {}
        }
        places
    }
}

impl Economy {
    /// The probability of one offer of each family: that of the family, by its mean |Δ| and a floor, over the number of its offers.
    fn family_chances(&self, offers: &[Offer], places: &[usize], floor: f64) -> BTreeMap<Family, f64> {
        let mut counts: BTreeMap<Family, f64> = BTreeMap::new();
        places
            .iter()
            .filter_map(|at| offers.get(*at))
            .for_each(|offer| *counts.entry(offer.family).or_default() += 1.0);
        let mean = |family: &Family| self.paid.get(family).copied().unwrap_or_default().mean_absolute();
        let sum: f64 = counts.keys().map(mean).sum();
        let families = counts.len() as f64;
        let floor = floor.clamp(0.0, 1.0 / families.max(1.0));
        let share = |family: &Family| if sum > 0.0 { mean(family) / sum } else { 1.0 / families };
        let chance = |family: &Family| floor + (1.0 - families * floor) * share(family);
        counts.iter().map(|(family, count)| (*family, (chance(family) / count).max(1e-9))).collect()
    }
}

/// Offers so that families take turns, in an order that is drawn; within a family in their order.
fn in_turns(places: &[usize], offers: &[Offer], random: &mut Random) -> Vec<usize> {
    let mut order = Family::ALL.to_vec();
    random.shuffle(&mut order);
    let mut turns: BTreeMap<Family, usize> = BTreeMap::new();
    let mut keyed: Vec<((usize, Option<usize>), usize)> = Vec::new();
    for at in places {
        let Some(offer) = offers.get(*at) else { continue };
        let turn = turns.entry(offer.family).or_default();
        keyed.push(((*turn, order.iter().position(|family| *family == offer.family)), *at));
        *turn += 1;
    }
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, at)| at).collect()
}

/// What may still be spent in a step.
struct StepBudget {
    left: u64,
    /// Of that on what is not worth it.
    drawn: u64,
}

impl StepBudget {
    fn buy(&mut self, cost: u64, verdict: OfferVerdict) -> OfferVerdict {
        match self.left.checked_sub(cost) {
            Some(left) => {
                self.left = left;
                verdict
            }
            None => match verdict {
                OfferVerdict::Worth(worth) | OfferVerdict::Drawn(worth) => OfferVerdict::Capped(worth),
                other => other,
            },
        }
    }

    fn draw(&mut self, cost: u64, worth: f64) -> OfferVerdict {
        match (self.left.checked_sub(cost), self.drawn.checked_sub(cost)) {
            (Some(left), Some(drawn)) => {
                (self.left, self.drawn) = (left, drawn);
                OfferVerdict::Drawn(worth)
            }
            _ => OfferVerdict::Declined(worth),
        }
    }
}

impl OfferVerdict {
    /// Whether it is to be run.
    pub fn is_taken(self) -> bool {
        matches!(self, OfferVerdict::Free | OfferVerdict::Worth(_) | OfferVerdict::Drawn(_))
    }
}

/// What happened to every family in one step, added up offer by offer.
#[derive(Debug, Clone, Default)]
pub struct FamilyLedger {
    families: BTreeMap<Family, Entry>,
}

#[derive(Debug, Clone, Default)]
struct Entry {
    report: FamilyReport,
    deltas: Paired,
    absolute: f64,
    worth: Paired,
}

impl FamilyLedger {
    /// Adds an offer: what became of it, the difference where it was measured, and what it really cost.
    pub fn add(&mut self, family: Family, verdict: OfferVerdict, delta: Option<f64>, tokens: u64) {
        let entry = self.families.entry(family).or_default();
        let report = &mut entry.report;
        report.tokens += tokens;
        match verdict {
            OfferVerdict::Free => report.free += 1,
            OfferVerdict::Worth(_) | OfferVerdict::Drawn(_) => report.purchased += 1,
            OfferVerdict::Declined(_) => report.declined += 1,
            OfferVerdict::Capped(_) => report.capped += 1,
        }
        if let OfferVerdict::Worth(worth)
        | OfferVerdict::Drawn(worth)
        | OfferVerdict::Declined(worth)
        | OfferVerdict::Capped(worth) = verdict
        {
            entry.worth.push(worth);
        }
        if let Some(delta) = delta {
            entry.deltas.push(delta);
            entry.absolute += delta.abs();
        }
    }

    /// The sums as reports.
    pub fn reports(&self) -> BTreeMap<Family, FamilyReport> {
        let report = |entry: &Entry| FamilyReport {
            worth: entry.worth.mean(),
            mean: entry.deltas.mean(),
            absolute: (entry.deltas.n() > 0).then(|| entry.absolute / entry.deltas.n() as f64),
            variance: entry.deltas.variance(),
            zeros: entry.deltas.zeros(),
            ..entry.report
        };
        self.families.iter().map(|(family, entry)| (*family, report(entry))).collect()
    }
}

#[cfg(test)]
mod tests;
