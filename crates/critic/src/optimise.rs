//! Ridge-regularised regression, logistic or by least squares, solved with L-BFGS (J. Nocedal, Mathematics of Computation 35
//! (1980), 773–782). Sums run in the order of the rows, so the same rows give the same bits.

use crate::text::{BUCKETS, PLAIN_FEATURES, QuestionText};

/// Pairs of steps and gradient changes that the curvature is estimated from.
const MEMORY: usize = 8;
/// Steps at most.
const STEPS: usize = 150;
/// Halvings of a step at most.
const HALVINGS: usize = 30;
/// The relative decrease below which nothing more is gained.
const LEAST_DECREASE: f64 = 1e-7;

/// The rows of a regression.
pub(crate) trait Rows {
    /// Features of a row.
    fn width(&self) -> usize;
    /// The product of a row with weights.
    fn dot(&self, row: usize, weights: &[f64]) -> f64;
    /// Adds a multiple of a row.
    fn add(&self, row: usize, scale: f64, into: &mut [f64]);
}

/// Rows of numbers.
pub(crate) struct DenseRows {
    values: Vec<f64>,
    width: usize,
}

impl DenseRows {
    pub fn new(width: usize) -> Self {
        DenseRows { values: Vec::new(), width }
    }

    pub fn push(&mut self, row: &[f64]) {
        debug_assert_eq!(row.len(), self.width);
        self.values.extend_from_slice(row);
    }

    pub fn row(&self, row: usize) -> &[f64] {
        self.values.get(row * self.width..(row + 1) * self.width).unwrap_or_default()
    }

    /// Brings every feature to mean 0 and spread 1.
    pub fn standardised(mut self) -> StandardRows {
        let count = (self.values.len() / self.width.max(1)).max(1) as f64;
        let mut mean = vec![0.0; self.width];
        let mut spread = vec![0.0; self.width];
        for row in self.values.chunks_exact(self.width.max(1)) {
            mean.iter_mut().zip(row).for_each(|(mean, value)| *mean += value / count);
        }
        for row in self.values.chunks_exact(self.width.max(1)) {
            let parts = spread.iter_mut().zip(row.iter().zip(&mean));
            parts.for_each(|(spread, (value, mean))| *spread += (value - mean).powi(2) / count);
        }
        spread.iter_mut().for_each(|spread| *spread = if *spread > 1e-12 { spread.sqrt() } else { 1.0 });
        for row in self.values.chunks_exact_mut(self.width.max(1)) {
            let parts = row.iter_mut().zip(mean.iter().zip(&spread));
            parts.for_each(|(value, (mean, spread))| *value = (*value - mean) / spread);
        }
        StandardRows { rows: self, mean, spread }
    }
}

/// Rows whose features have mean 0 and spread 1, with what they were before.
pub(crate) struct StandardRows {
    pub rows: DenseRows,
    pub mean: Vec<f64>,
    pub spread: Vec<f64>,
}

impl Rows for DenseRows {
    fn width(&self) -> usize {
        self.width
    }

    fn dot(&self, row: usize, weights: &[f64]) -> f64 {
        self.row(row).iter().zip(weights).map(|(value, weight)| value * weight).sum()
    }

    fn add(&self, row: usize, scale: f64, into: &mut [f64]) {
        self.row(row).iter().zip(into).for_each(|(value, into)| *into += scale * value);
    }
}

/// Questions as rows: hashed words, then plain features.
pub(crate) struct TextRows<'a>(pub Vec<&'a QuestionText>);

/// Features of a question.
pub(crate) const TEXT_WIDTH: usize = BUCKETS + PLAIN_FEATURES;

/// The product of a question with weights.
pub(crate) fn text_dot(text: &QuestionText, weights: &[f64]) -> f64 {
    let words = text.words.iter().filter_map(|(bucket, value)| Some(value * weights.get(*bucket as usize)?));
    let plain = text.plain.iter().zip(weights.get(BUCKETS..).unwrap_or_default());
    words.sum::<f64>() + plain.map(|(value, weight)| value * weight).sum::<f64>()
}

impl Rows for TextRows<'_> {
    fn width(&self) -> usize {
        TEXT_WIDTH
    }

    fn dot(&self, row: usize, weights: &[f64]) -> f64 {
        self.0.get(row).map_or(0.0, |text| text_dot(text, weights))
    }

    fn add(&self, row: usize, scale: f64, into: &mut [f64]) {
        let Some(text) = self.0.get(row) else { return };
        for (bucket, value) in &text.words {
            if let Some(into) = into.get_mut(*bucket as usize) {
                *into += scale * value;
            }
        }
        let plain = into.get_mut(BUCKETS..).unwrap_or_default().iter_mut().zip(&text.plain);
        plain.for_each(|(into, value)| *into += scale * value);
    }
}

/// What a regression minimises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Cross-entropy; targets are probabilities.
    Logistic,
    /// Half the squared error.
    Squared,
}

/// A regression of targets on rows, each row with a weight.
pub(crate) struct Regression<'a, R> {
    pub rows: &'a R,
    pub targets: &'a [f64],
    pub weights: &'a [f64],
    pub loss: Loss,
    /// The weight of half the squared coefficients. The intercept, which comes last, is free.
    pub ridge: f64,
}

impl<R: Rows> Regression<'_, R> {
    /// The objective and its gradient.
    fn at(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let width = self.rows.width();
        let (coefficients, intercept) = x.split_at(width.min(x.len()));
        let intercept = intercept.first().copied().unwrap_or_default();
        gradient.fill(0.0);
        let mut value = 0.0;
        let mut free = 0.0;
        for (row, (target, weight)) in self.targets.iter().zip(self.weights).enumerate() {
            let predicted = self.rows.dot(row, coefficients) + intercept;
            let (loss, slope) = match self.loss {
                Loss::Logistic => {
                    // ln(1 + eˣ) − y x, without overflow.
                    let soft = predicted.max(0.0) + (-predicted.abs()).exp().ln_1p();
                    (soft - target * predicted, lemon_num::logistic(predicted) - target)
                }
                Loss::Squared => (0.5 * (predicted - target).powi(2), predicted - target),
            };
            value += weight * loss;
            free += weight * slope;
            self.rows.add(row, weight * slope, gradient);
        }
        for (gradient, x) in gradient.iter_mut().zip(coefficients) {
            value += 0.5 * self.ridge * x * x;
            *gradient += self.ridge * x;
        }
        if let Some(last) = gradient.get_mut(width) {
            *last = free;
        }
        value
    }

    /// The coefficients, and the intercept last.
    pub fn solve(&self) -> Vec<f64> {
        let dimensions = self.rows.width() + 1;
        let mut x = vec![0.0; dimensions];
        let mut gradient = vec![0.0; dimensions];
        let mut value = self.at(&x, &mut gradient);
        let mut memory: Vec<(Vec<f64>, Vec<f64>)> = Vec::new();
        let (mut next, mut next_gradient) = (x.clone(), gradient.clone());
        for _ in 0..STEPS {
            let direction = direction(&gradient, &memory);
            let slope = dot(&direction, &gradient);
            if slope >= 0.0 {
                break;
            }
            let mut step = if memory.is_empty() { 1.0 / norm(&gradient).max(1.0) } else { 1.0 };
            let mut found = None;
            for _ in 0..HALVINGS {
                for ((next, x), direction) in next.iter_mut().zip(&x).zip(&direction) {
                    *next = x + step * direction;
                }
                let candidate = self.at(&next, &mut next_gradient);
                if candidate.is_finite() && candidate <= value + 1e-4 * step * slope {
                    found = Some(candidate);
                    break;
                }
                step *= 0.5;
            }
            let Some(better) = found else { break };
            let moved: Vec<f64> = next.iter().zip(&x).map(|(next, x)| next - x).collect();
            let turned: Vec<f64> = next_gradient.iter().zip(&gradient).map(|(next, old)| next - old).collect();
            if dot(&moved, &turned) > 1e-12 {
                memory.push((moved, turned));
                if memory.len() > MEMORY {
                    memory.remove(0);
                }
            }
            std::mem::swap(&mut x, &mut next);
            std::mem::swap(&mut gradient, &mut next_gradient);
            let decrease = value - better;
            value = better;
            if decrease <= LEAST_DECREASE * value.abs() {
                break;
            }
        }
        x
    }
}

/// Minus the gradient times the estimated inverse curvature: the two loops of the method.
fn direction(gradient: &[f64], memory: &[(Vec<f64>, Vec<f64>)]) -> Vec<f64> {
    let mut direction: Vec<f64> = gradient.iter().map(|slope| -slope).collect();
    let mut factors = Vec::with_capacity(memory.len());
    for (moved, turned) in memory.iter().rev() {
        let factor = dot(moved, &direction) / dot(moved, turned);
        direction.iter_mut().zip(turned).for_each(|(direction, turned)| *direction -= factor * turned);
        factors.push(factor);
    }
    if let Some((moved, turned)) = memory.last() {
        let scale = dot(moved, turned) / dot(turned, turned).max(1e-300);
        direction.iter_mut().for_each(|direction| *direction *= scale);
    }
    for ((moved, turned), factor) in memory.iter().zip(factors.into_iter().rev()) {
        let back = dot(turned, &direction) / dot(moved, turned);
        direction.iter_mut().zip(moved).for_each(|(direction, moved)| *direction += (factor - back) * moved);
    }
    direction
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_num::Random;

    fn rows(count: usize, width: usize, seed: u64) -> (DenseRows, Vec<Vec<f64>>) {
        let mut random = Random::new(seed);
        let mut rows = DenseRows::new(width);
        let all: Vec<Vec<f64>> = (0..count).map(|_| (0..width).map(|_| random.normal()).collect()).collect();
        all.iter().for_each(|row| rows.push(row));
        (rows, all)
    }

    #[test]
    fn least_squares_is_the_solution_of_the_normal_equations() {
        let (rows, all) = rows(60, 4, 1);
        let mut random = Random::new(2);
        let targets: Vec<f64> = all.iter().map(|row| row[0] - 2.0 * row[2] + 0.5 + 0.1 * random.normal()).collect();
        let weights = vec![1.0; 60];
        let ridge = 0.7;
        let found =
            Regression { rows: &rows, targets: &targets, weights: &weights, loss: Loss::Squared, ridge }.solve();
        let with_one = |row: &Vec<f64>| row.iter().copied().chain([1.0]).collect::<Vec<f64>>();
        let mut matrix = vec![vec![0.0; 5]; 5];
        let mut right = vec![0.0; 5];
        for (row, target) in all.iter().map(with_one).zip(&targets) {
            for i in 0..5 {
                right[i] += row[i] * target;
                for j in 0..5 {
                    matrix[i][j] += row[i] * row[j];
                }
            }
        }
        (0..4).for_each(|i| matrix[i][i] += ridge);
        for (found, exact) in found.iter().zip(lemon_num::solve(matrix, right)) {
            assert!((found - exact).abs() < 1e-3, "{found} {exact}");
        }
    }

    #[test]
    fn logistic_regression_recovers_what_drew_its_labels() {
        let (rows, all) = rows(20_000, 3, 3);
        let mut random = Random::new(4);
        let odds = |row: &Vec<f64>| 1.5 * row[0] - row[1] + 0.3;
        let targets: Vec<f64> =
            all.iter().map(|row| f64::from(u8::from(random.chance(lemon_num::logistic(odds(row)))))).collect();
        let weights = vec![1.0; targets.len()];
        let regression =
            Regression { rows: &rows, targets: &targets, weights: &weights, loss: Loss::Logistic, ridge: 1e-3 };
        let found = regression.solve();
        for (found, exact) in found.iter().zip([1.5, -1.0, 0.0, 0.3]) {
            assert!((found - exact).abs() < 0.08, "{found} {exact}");
        }
        assert_eq!(found, regression.solve());
    }
}
