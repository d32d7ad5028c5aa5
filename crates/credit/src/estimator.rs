//! Estimators of a policy gradient, field by field, as arithmetic on probabilities and rewards.
//!
//! A field has values; the policy gives each a probability, and some have a measured reward. Every function here returns
//! advantages: the numbers that log-probabilities are multiplied by. `lemon ablate estimators` compares the gradients that
//! follow with the exact one of a policy small enough to list all its texts.

use std::collections::BTreeMap;

/// Advantages by a leave-one-out baseline: each reward less the mean of the others. A reward that was not measured has none, and
/// neither has a reward without others to compare it with.
pub fn leave_one_out(rewards: &[Option<f64>]) -> Vec<Option<f64>> {
    let n = rewards.iter().flatten().count() as f64;
    let sum: f64 = rewards.iter().flatten().sum();
    let own = |reward: f64| if n > 1.0 { reward - (sum - reward) / (n - 1.0) } else { 0.0 };
    rewards.iter().map(|reward| reward.map(own)).collect()
}

/// The all-action form: for each value its probability times its reward less the mean reward. The sum of these times the gradients
/// of the log-probabilities is the gradient of the mean reward over these values, without the noise of drawing one of them.
/// Probabilities that do not add up to one are scaled for the mean.
pub fn all_action(probabilities: &[f64], rewards: &[f64]) -> Vec<f64> {
    let mean = mean_reward(probabilities, rewards);
    probabilities.iter().zip(rewards).map(|(probability, reward)| probability * (reward - mean)).collect()
}

/// The single-action form: the reward of the drawn value less the mean reward of all values. Its mean over draws is the all-action
/// form.
pub fn single_action(probabilities: &[f64], rewards: &[f64], drawn: usize) -> Option<f64> {
    Some(rewards.get(drawn)? - mean_reward(probabilities, rewards))
}

fn mean_reward(probabilities: &[f64], rewards: &[f64]) -> f64 {
    let mass: f64 = probabilities.iter().sum();
    let sum: f64 = probabilities.iter().zip(rewards).map(|(probability, reward)| probability * reward).sum();
    if mass > 0.0 { sum / mass } else { 0.0 }
}

/// The reward of another value, estimated from a run whose later fields were written after the drawn value. `ratio` is the
/// probability of these later fields after the other value, over that after the drawn one. Its mean is 1, so that `control`, which
/// may depend on what was written before the field alone, reduces the variance and not the mean.
pub fn weighted_reward(reward: f64, ratio: f64, control: f64) -> f64 {
    control + ratio * (reward - control)
}

/// Generalised advantages of the segments of a text (GAE). `values[k]` is the reward of the prefix team before segment `k`, the
/// potential of what was written so far; `reward` is that of the whole team. With `decay` 1 each segment gets the whole reward less
/// its potential, which has the mean of the policy gradient whatever the potentials are. Below 1 the later segments count less:
/// less variance, and a bias where the potential is not the expected reward. A segment without a potential has no advantage, and
/// the differences of those before it reach over it.
pub fn prefix_advantages(values: &[Option<f64>], reward: f64, decay: f64) -> Vec<Option<f64>> {
    let mut advantages = vec![None; values.len()];
    let (mut after, mut advantage) = (reward, 0.0);
    for (value, slot) in values.iter().zip(&mut advantages).rev() {
        if let Some(value) = value {
            advantage = (after - value) + decay * advantage;
            after = *value;
            *slot = Some(advantage);
        }
    }
    advantages
}

/// Credit within a group without further runs: for every key (an edge, a value of a field) the mean reward of the group's texts
/// that have it, less the mean of those that do not. `None` where all have it or none has.
pub fn presence_credit<K: Ord + Clone>(texts: &[(f64, Vec<K>)]) -> BTreeMap<K, Option<f64>> {
    let total: f64 = texts.iter().map(|(reward, _)| reward).sum();
    let mut sums: BTreeMap<K, (f64, usize)> = BTreeMap::new();
    for (reward, keys) in texts {
        let keys: std::collections::BTreeSet<&K> = keys.iter().collect();
        for key in keys {
            let (sum, count) = sums.entry(key.clone()).or_default();
            *sum += reward;
            *count += 1;
        }
    }
    let credit = |(sum, with): (f64, usize)| {
        let without = texts.len() - with;
        (without > 0).then(|| sum / with as f64 - (total - sum) / without as f64)
    };
    sums.into_iter().map(|(key, sums)| (key, credit(sums))).collect()
}

/// Rewards normalised within each class: less the mean of the class, over its standard deviation. `None` for a class of one, and
/// where all rewards of a class are equal.
pub fn normalised_by_class<K: Ord>(rewards: &[(K, f64)]) -> Vec<Option<f64>> {
    let mut classes: BTreeMap<&K, crate::estimate::Paired> = BTreeMap::new();
    rewards.iter().for_each(|(class, reward)| classes.entry(class).or_default().push(*reward));
    let own = |(class, reward): &(K, f64)| {
        let class = classes.get(class)?;
        let deviation = class.variance()?.sqrt();
        (deviation > 0.0).then(|| (reward - class.mean().unwrap_or(0.0)) / deviation)
    };
    rewards.iter().map(own).collect()
}

#[cfg(test)]
mod tests;
