//! A critic of decisions: what a beginning of a team is worth beside other teams of the same task, and how sure that is.
//!
//! A ridge regression on named features, fitted to the rewards and counterfactuals of all steps so far; older ones count less. A step is
//! judged with what earlier steps taught. So a judgement is independent of the noise in the rewards it is compared with.

use crate::estimate::Paired;
use lemon_num::inverse;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Features by name. A name that was never seen adds nothing to the estimate, and doubt to its error.
pub type Features = Vec<(String, f64)>;

/// How many rows of one unit the ridge is worth.
const RIDGE: f64 = 4.0;
/// What a step leaves of the weight of the steps before it.
const MEMORY: f64 = 0.98;

/// A linear estimate of a reward.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RewardModel {
    names: BTreeMap<String, usize>,
    /// Sums of products of features, and of features with rewards.
    products: Vec<Vec<f64>>,
    rewards: Vec<f64>,
    weights: Vec<f64>,
    /// The inverse of the sums of products, ridge included.
    inverse: Vec<Vec<f64>>,
    /// Differences between rewards and what was estimated before they were known.
    misses: Paired,
}

impl RewardModel {
    /// What a team with these features is worth more than others; 0 as long as nothing is known.
    pub fn estimate(&self, features: &[(String, f64)]) -> f64 {
        let known = features.iter().filter_map(|(name, value)| Some((self.names.get(name)?, value)));
        known.map(|(at, value)| self.weights.get(*at).copied().unwrap_or(0.0) * value).sum()
    }

    /// The standard error of the difference between two estimates. `None` as long as nothing is known.
    pub fn error_of_difference(&self, one: &[(String, f64)], other: &[(String, f64)]) -> Option<f64> {
        let spread = self.misses.variance()?;
        let mut known = vec![0.0; self.inverse.len()];
        let mut unknown: BTreeMap<&str, f64> = BTreeMap::new();
        let signed = one.iter().map(|it| (it, 1.0)).chain(other.iter().map(|it| (it, -1.0)));
        for ((name, value), sign) in signed {
            match self.names.get(name).and_then(|at| known.get_mut(*at)) {
                Some(sum) => *sum += sign * value,
                None => *unknown.entry(name).or_default() += sign * value,
            }
        }
        let row = |row: &Vec<f64>| row.iter().zip(&known).map(|(a, b)| a * b).sum::<f64>();
        let fitted: f64 = self.inverse.iter().map(row).zip(&known).map(|(a, b)| a * b).sum();
        let open: f64 = unknown.values().map(|value| value * value / RIDGE).sum();
        Some((spread * (fitted + open)).max(0.0).sqrt())
    }

    /// Adds the rows of a step: features, and a reward less that of other teams of the task.
    pub fn add(&mut self, rows: &[(Features, f64)]) {
        let rows: Vec<_> = rows.iter().filter(|(_, reward)| reward.is_finite()).collect();
        if rows.is_empty() {
            return;
        }
        self.products.iter_mut().flatten().chain(&mut self.rewards).for_each(|sum| *sum *= MEMORY);
        for (features, reward) in rows {
            self.misses.push(reward - self.estimate(features));
            let known: Vec<(usize, f64)> = features.iter().map(|(name, value)| (self.place(name), *value)).collect();
            for (at, value) in &known {
                // `place` made room.
                self.rewards[*at] += value * reward;
                known.iter().for_each(|(other, beside)| self.products[*at][*other] += value * beside);
            }
        }
        self.fit();
    }

    fn place(&mut self, name: &str) -> usize {
        if let Some(at) = self.names.get(name) {
            return *at;
        }
        let at = self.rewards.len();
        self.names.insert(name.to_owned(), at);
        self.rewards.push(0.0);
        self.products.iter_mut().for_each(|row| row.push(0.0));
        self.products.push(vec![0.0; at + 1]);
        at
    }

    fn fit(&mut self) {
        let mut matrix = self.products.clone();
        matrix.iter_mut().enumerate().for_each(|(at, row)| row[at] += RIDGE); // A square.
        self.inverse = inverse(&matrix);
        let weight = |row: &Vec<f64>| row.iter().zip(&self.rewards).map(|(a, b)| a * b).sum();
        self.weights = self.inverse.iter().map(weight).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_num::Random;
    use proptest::prelude::*;

    fn features(values: &[(&str, f64)]) -> Features {
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    /// Rewards that are linear in two features, with noise of deviation 0.3.
    fn taught(steps: usize) -> RewardModel {
        let (mut model, mut random) = (RewardModel::default(), Random::new(3));
        for _ in 0..steps {
            let row = |random: &mut Random| {
                let (a, b) = (random.normal(), random.normal());
                (features(&[("a", a), ("b", b)]), 0.5 * a - 0.2 * b + 0.3 * random.normal())
            };
            let rows: Vec<_> = (0..8).map(|_| row(&mut random)).collect();
            model.add(&rows);
        }
        model
    }

    #[test]
    fn it_learns_what_features_are_worth_and_how_sure_it_is() {
        let (few, many) = (taught(2), taught(40));
        let worth = many.estimate(&features(&[("a", 1.0), ("b", 1.0)]));
        assert!((worth - 0.3).abs() < 0.1, "{worth}");
        let error = |model: &RewardModel| model.error_of_difference(&features(&[("a", 1.0)]), &[]).unwrap();
        assert!(error(&many) < 0.5 * error(&few), "{} of {}", error(&many), error(&few));
        // It is off by about as much as it says: 0.5 was the truth.
        let off = (many.estimate(&features(&[("a", 1.0)])) - 0.5).abs();
        assert!(off < 3.0 * error(&many), "{off} of {}", error(&many));
        // Of what was never seen it knows nothing, and says so.
        let new = features(&[("c", 1.0)]);
        assert_eq!(many.estimate(&new), 0.0);
        assert!(many.error_of_difference(&new, &[]).unwrap() > 2.0 * error(&many));
        assert_eq!(RewardModel::default().error_of_difference(&new, &[]), None);
        assert_eq!(many.error_of_difference(&new, &new), Some(0.0));
    }

    proptest! {
        /// Whatever it is given, its estimates are finite, and rewards that are not are left out.
        #[test]
        fn estimates_are_finite(values in proptest::collection::vec((0usize..4, -1e3f64..1e3, -1e3f64..1e3), 0..40)) {
            let mut model = RewardModel::default();
            for (name, value, reward) in values {
                model.add(&[(vec![(name.to_string(), value)], reward), (vec![("x".to_owned(), 1.0)], f64::NAN)]);
                let estimate = model.estimate(&[(name.to_string(), value)]);
                prop_assert!(estimate.is_finite(), "{estimate}");
                prop_assert!(model.error_of_difference(&[(name.to_string(), 1.0)], &[]).is_none_or(f64::is_finite));
            }
            prop_assert_eq!(model.estimate(&[("x".to_owned(), 1.0)]), 0.0);
        }
    }
}
