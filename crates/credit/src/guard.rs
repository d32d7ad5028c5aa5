//! Guards against collapse: a policy that makes the same decision for every question has learned the average worth of its values
//! and nothing of the question.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How collapse is held off.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardSettings {
    /// How much of each value's running mean advantage is subtracted from the advantages of that value, from 0 to 1. With 1 only
    /// what a value is worth for one question more than for others is learned. This is no gradient of the mean reward.
    pub value_baseline: f64,
    /// How much of a running mean the latest step is.
    pub memory: f64,
    /// The mean entropy of a choice, in nats, below which entropy is rewarded …
    pub entropy_floor: f64,
    /// … by so much for each nat, growing in a line from nothing at the floor to this at an entropy of 0.
    pub entropy_weight: f64,
}

impl Default for GuardSettings {
    fn default() -> Self {
        GuardSettings { value_baseline: 0.0, memory: 0.1, entropy_floor: 0.0, entropy_weight: 0.1 }
    }
}

impl GuardSettings {
    /// What a nat of entropy is worth, given the mean entropy of the choices of the last step.
    pub fn entropy_price(&self, entropy: Option<f64>) -> f64 {
        let Some(entropy) = entropy.filter(|_| self.entropy_floor > 0.0) else { return 0.0 };
        self.entropy_weight * (1.0 - entropy / self.entropy_floor).clamp(0.0, 1.0)
    }
}

/// The running mean advantage of each value of each decision.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ValueBaselines {
    means: BTreeMap<String, f64>,
}

impl ValueBaselines {
    /// The mean so far; 0 for a value that is new.
    pub fn get(&self, value: &str) -> f64 {
        self.means.get(value).copied().unwrap_or(0.0)
    }

    /// Adds the advantages of a step, by value.
    pub fn add(&mut self, step: &[(String, f64)], memory: f64) {
        let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for (value, advantage) in step.iter().filter(|(_, advantage)| advantage.is_finite()) {
            let (sum, count) = sums.entry(value).or_default();
            (*sum, *count) = (*sum + advantage, *count + 1.0);
        }
        for (value, (sum, count)) in sums {
            let mean = self.means.entry(value.to_owned()).or_default();
            *mean += memory.clamp(0.0, 1.0) * (sum / count - *mean);
        }
    }
}

/// What decisions tell about questions, in nats.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Information {
    /// The entropy of the decision over all questions.
    pub entropy: f64,
    /// The mutual information between question and decision. 0: every question gets the same mix of decisions.
    pub information: f64,
}

/// The entropy of a decision and its mutual information with the question, from draws of (question, value). Both entropies have
/// Miller's correction for few draws; what is below 0 by chance is 0.
pub fn information<'v>(draws: impl IntoIterator<Item = (usize, &'v str)>) -> Information {
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    let mut questions: BTreeMap<usize, BTreeMap<&str, usize>> = BTreeMap::new();
    for (question, value) in draws {
        *all.entry(value).or_default() += 1;
        *questions.entry(question).or_default().entry(value).or_default() += 1;
    }
    let count: usize = all.values().sum();
    if count == 0 {
        return Information::default();
    }
    let given = |counts: &BTreeMap<&str, usize>| {
        let own: usize = counts.values().sum();
        own as f64 / count as f64 * entropy(counts)
    };
    let (entropy, noise) = (entropy(&all), questions.values().map(given).sum::<f64>());
    // A single draw of each question says nothing about how a question's decisions vary.
    let is_repeated = questions.len() < count;
    Information { entropy, information: if is_repeated { (entropy - noise).max(0.0) } else { 0.0 } }
}

fn entropy(counts: &BTreeMap<&str, usize>) -> f64 {
    let total = counts.values().sum::<usize>() as f64;
    let plain: f64 = counts.values().map(|count| *count as f64 / total).map(|share| -share * share.ln()).sum();
    let corrected = plain + (counts.len() as f64 - 1.0) / (2.0 * total);
    // No decision is more uncertain than one among equals.
    corrected.min((counts.len() as f64).ln())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_num::Random;

    #[test]
    fn information_is_what_the_question_decides() {
        let mut random = Random::new(1);
        // Always the same; by chance; by the question; by the question with noise.
        let draws = |value: &mut dyn FnMut(usize) -> bool| {
            let all: Vec<(usize, &str)> = (0..400).map(|at| (at / 8, if value(at / 8) { "a" } else { "b" })).collect();
            information(all)
        };
        let same = draws(&mut |_| true);
        assert_eq!((same.entropy, same.information), (0.0, 0.0));
        let chance = draws(&mut |_| random.chance(0.5));
        assert!(chance.entropy > 0.68 && chance.information < 0.03, "{chance:?}");
        let decided = draws(&mut |question| question % 2 == 0);
        assert!((decided.information - 2_f64.ln()).abs() < 0.01, "{decided:?}");
        let noisy = draws(&mut |question| random.chance(if question % 2 == 0 { 0.9 } else { 0.1 }));
        assert!(noisy.information > 0.25 && noisy.information < 0.5, "{noisy:?}");
        assert_eq!(information([(1, "a"), (2, "b")]).information, 0.0);
        assert_eq!(information([]), Information::default());
    }

    #[test]
    fn values_have_running_means_of_their_own() {
        let mut baselines = ValueBaselines::default();
        let step = [("x".to_owned(), 1.0), ("x".to_owned(), 0.0), ("y".to_owned(), -1.0), ("y".to_owned(), f64::NAN)];
        baselines.add(&step, 0.5);
        assert_eq!([baselines.get("x"), baselines.get("y"), baselines.get("z")], [0.25, -0.5, 0.0]);
        baselines.add(&step[..2], 0.5);
        assert_eq!([baselines.get("x"), baselines.get("y")], [0.375, -0.5]);
    }

    #[test]
    fn entropy_has_a_price_below_its_floor_alone() {
        let guard = GuardSettings { entropy_floor: 0.4, entropy_weight: 0.2, ..GuardSettings::default() };
        let prices = [None, Some(0.5), Some(0.4), Some(0.2), Some(0.0)].map(|entropy| guard.entropy_price(entropy));
        assert_eq!(prices, [0.0, 0.0, 0.0, 0.1, 0.2]);
        assert_eq!(GuardSettings::default().entropy_price(Some(0.0)), 0.0);
    }
}
