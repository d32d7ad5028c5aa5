//! What paired differences say about an effect, with its error.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use lemon_num::distribution::t_quantile;

/// Paired differences, added up one by one without keeping them (B. P. Welford, Technometrics 4 (1962), 419–420).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Paired {
    n: u64,
    mean: f64,
    /// The sum of the squared distances from the mean.
    squares: f64,
    zeros: u64,
}

impl Paired {
    /// Adds one difference. One that is not finite is no measurement and is left out.
    pub fn push(&mut self, delta: f64) {
        if !delta.is_finite() {
            return;
        }
        self.n += 1;
        self.zeros += u64::from(delta == 0.0);
        let before = delta - self.mean;
        self.mean += before / self.n as f64;
        self.squares += before * (delta - self.mean);
    }

    /// Adds all differences of another (T. F. Chan, G. H. Golub and R. J. LeVeque, 1979).
    pub fn merge(&mut self, other: &Paired) {
        let n = self.n + other.n;
        if n == 0 {
            return;
        }
        let between = other.mean - self.mean;
        let share = other.n as f64 / n as f64;
        self.squares += other.squares + between * between * self.n as f64 * share;
        self.mean += between * share;
        self.n = n;
        self.zeros += other.zeros;
    }

    /// How many differences.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Their mean. `None`: not measured.
    pub fn mean(&self) -> Option<f64> {
        (self.n > 0).then_some(self.mean)
    }

    /// Their variance, by n − 1. `None` for fewer than two.
    pub fn variance(&self) -> Option<f64> {
        (self.n > 1).then(|| self.squares / (self.n - 1) as f64)
    }

    /// The standard error of the mean. `None` for fewer than two: not measured, which is not zero.
    pub fn standard_error(&self) -> Option<f64> {
        self.variance().map(|variance| (variance / self.n as f64).sqrt())
    }

    /// The share of differences that are exactly zero.
    pub fn zeros(&self) -> Option<f64> {
        (self.n > 0).then(|| self.zeros as f64 / self.n as f64)
    }

    /// How many are not exactly zero.
    pub fn nonzero(&self) -> u64 {
        self.n.saturating_sub(self.zeros)
    }

    /// The sum of their squares.
    pub fn sum_of_squares(&self) -> f64 {
        self.squares + self.n as f64 * self.mean * self.mean
    }

    /// The 95 % interval of the mean, by Student's t.
    ///
    /// Where all differences are the same it has no width, which says more than so few pairs can: see
    /// [`Paired::interval_within`].
    pub fn interval(&self) -> Option<[f64; 2]> {
        let half = t_quantile(self.n.saturating_sub(1)) * self.standard_error()?;
        Some([self.mean - half, self.mean + half])
    }

    /// The 95 % interval of the mean of differences that cannot be further than `range` from zero.
    ///
    /// Where all were the same, another kind may still be among the next: with 95 % certainty at most a share of 3/n of
    /// them (the rule of three; J. A. Hanley and A. Lippman-Hand, JAMA 249 (1983), 1743–1745), each off by what `range`
    /// allows.
    pub fn interval_within(&self, range: f64) -> Option<[f64; 2]> {
        let [low, high] = self.interval()?;
        if low < high {
            return Some([low.max(-range), high.min(range)]);
        }
        let unseen = (3.0 / self.n as f64).min(1.0);
        let towards = |end: f64| self.mean + unseen * (end - self.mean);
        Some([towards(-range), towards(range)])
    }
}

/// Paired differences of several seeds a task. The seeds of a task share its difficulty: each task is one measurement, its
/// mean, and the error is that between tasks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusteredPaired {
    tasks: BTreeMap<usize, Paired>,
}

impl ClusteredPaired {
    /// Adds one difference of the task with this index.
    pub fn push(&mut self, task: usize, delta: f64) {
        if delta.is_finite() {
            self.tasks.entry(task).or_default().push(delta);
        }
    }

    /// Adds all differences of another; the same index is the same task.
    pub fn merge(&mut self, other: &ClusteredPaired) {
        for (task, paired) in &other.tasks {
            self.tasks.entry(*task).or_default().merge(paired);
        }
    }

    /// How many tasks.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// How many differences, in all tasks.
    pub fn pairs(&self) -> u64 {
        self.tasks.values().map(Paired::n).sum()
    }

    /// The tasks' means, as measurements of their own: its mean is the estimate, its error is that over tasks.
    pub fn over_tasks(&self) -> Paired {
        let mut means = Paired::default();
        self.tasks.values().filter_map(Paired::mean).for_each(|mean| means.push(mean));
        means
    }

    /// The mean over tasks.
    pub fn mean(&self) -> Option<f64> {
        self.over_tasks().mean()
    }

    /// Its standard error. `None` for fewer than two tasks.
    pub fn standard_error(&self) -> Option<f64> {
        self.over_tasks().standard_error()
    }

    /// Its 95 % interval.
    pub fn interval(&self) -> Option<[f64; 2]> {
        self.over_tasks().interval()
    }

    /// The share of all differences that are exactly zero.
    pub fn zeros(&self) -> Option<f64> {
        let mut all = Paired::default();
        self.tasks.values().for_each(|paired| all.merge(paired));
        all.zeros()
    }
}

#[cfg(test)]
mod tests;
