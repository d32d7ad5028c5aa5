//! Fitted linear models of a few features, with the uncertainty of what they predict.

use crate::model::CriticError;
use crate::optimise::{DenseRows, Loss, Regression, Rows, StandardRows, dot};
use lemon_num::{logistic, solve};
use serde::{Deserialize, Serialize};

/// A probability with the standard error of its estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub mean: f64,
    pub error: f64,
}

/// A logistic regression with the covariance of its weights (Laplace's approximation).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogisticModel {
    mean: Vec<f64>,
    spread: Vec<f64>,
    /// The intercept last.
    weights: Vec<f64>,
    /// The lower triangle, row by row; empty: no one asks for the error.
    covariance: Vec<f32>,
}

impl LogisticModel {
    /// Fits targets between 0 and 1. `errors`: whether someone will ask for standard errors, which take time.
    pub fn fit(rows: &StandardRows, targets: &[f64], weights: &[f64], ridge: f64, errors: bool) -> Self {
        let found = Regression { rows: &rows.rows, targets, weights, loss: Loss::Logistic, ridge }.solve();
        let covariance = if errors { covariance(&rows.rows, weights, &found, ridge) } else { Vec::new() };
        LogisticModel { mean: rows.mean.clone(), spread: rows.spread.clone(), weights: found, covariance }
    }

    pub fn log_odds(&self, row: &[f64]) -> f64 {
        dot(&self.standardised(row), &self.weights)
    }

    pub fn probability(&self, row: &[f64]) -> f64 {
        logistic(self.log_odds(row))
    }

    /// The probability and its standard error.
    pub fn estimate(&self, row: &[f64]) -> Estimate {
        let row = self.standardised(row);
        let mean = logistic(dot(&row, &self.weights));
        let mut variance = 0.0;
        let mut entries = self.covariance.iter();
        for (at, left) in row.iter().enumerate() {
            for (other, right) in row.iter().enumerate().take(at + 1) {
                let twice = if other == at { 1.0 } else { 2.0 };
                variance += twice * left * right * f64::from(entries.next().copied().unwrap_or_default());
            }
        }
        Estimate { mean, error: mean * (1.0 - mean) * variance.max(0.0).sqrt() }
    }

    /// The same in a file a third as long: numbers have five digits, and the covariance three or, where no one asks for
    /// errors, none.
    pub fn compact(&mut self, keep_errors: bool) {
        [&mut self.mean, &mut self.spread, &mut self.weights].into_iter().for_each(|numbers| round(numbers, 5));
        self.covariance = match keep_errors {
            // Three digits of a number fit into single precision.
            true => self.covariance.iter().map(|value| rounded(f64::from(*value), 3) as f32).collect(),
            false => Vec::new(),
        };
    }

    fn standardised(&self, row: &[f64]) -> Vec<f64> {
        let parts = row.iter().zip(self.mean.iter().zip(&self.spread));
        parts.map(|(value, (mean, spread))| (value - mean) / spread).chain([1.0]).collect()
    }

    /// Checks sizes and values of a model that was read from a file.
    pub fn check(&self, name: &str, width: usize) -> Result<(), CriticError> {
        check_sizes(name, width, &self.mean, &self.spread, &self.weights)?;
        let entries = (width + 1) * (width + 2) / 2;
        let fits = self.covariance.is_empty() || self.covariance.len() == entries;
        if !fits || !self.covariance.iter().all(|value| value.is_finite()) {
            let found = self.covariance.len();
            let fact = format!("{name}.covariance: expected {entries} finite numbers or none, found {found}");
            return Err(CriticError::Content(fact));
        }
        Ok(())
    }
}

/// The inverse of the curvature of the objective.
fn covariance(rows: &DenseRows, weights: &[f64], found: &[f64], ridge: f64) -> Vec<f32> {
    let size = rows.width() + 1;
    let mut curvature = vec![vec![0.0; size]; size];
    for (at, weight) in weights.iter().enumerate() {
        let row: Vec<f64> = rows.row(at).iter().copied().chain([1.0]).collect();
        let p = logistic(dot(&row, found));
        let scale = weight * p * (1.0 - p);
        for (line, left) in curvature.iter_mut().zip(&row) {
            line.iter_mut().zip(&row).for_each(|(entry, right)| *entry += scale * left * right);
        }
    }
    for (at, line) in curvature.iter_mut().enumerate() {
        // The intercept is free; a little keeps the matrix regular where all targets are equal.
        line[at] += if at + 1 < size { ridge } else { 1e-3 };
    }
    let mut lower = Vec::new();
    for at in 0..size {
        let unit = (0..size).map(|other| f64::from(u8::from(other == at))).collect();
        lower.extend(solve(curvature.clone(), unit).iter().take(at + 1).map(|value| *value as f32));
    }
    lower
}

/// A regression of the logarithm of a cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CostModel {
    mean: Vec<f64>,
    spread: Vec<f64>,
    weights: Vec<f64>,
    /// The mean of costs over what the logarithm alone predicts.
    smear: f64,
}

impl CostModel {
    pub fn fit(rows: &StandardRows, costs: &[f64], weights: &[f64], ridge: f64) -> Self {
        let targets: Vec<f64> = costs.iter().map(|cost| cost.max(1.0).ln()).collect();
        let found = Regression { rows: &rows.rows, targets: &targets, weights, loss: Loss::Squared, ridge }.solve();
        let (mean, spread) = (rows.mean.clone(), rows.spread.clone());
        let mut model = CostModel { mean, spread, weights: found, smear: 1.0 };
        let (mut ratio, mut total) = (0.0, 0.0);
        for (at, (cost, weight)) in costs.iter().zip(weights).enumerate() {
            let row: Vec<f64> = rows.rows.row(at).iter().copied().chain([1.0]).collect();
            ratio += weight * cost / dot(&row, &model.weights).exp();
            total += weight;
        }
        if total > 0.0 {
            model.smear = ratio / total;
        }
        model
    }

    /// The same in a shorter file: numbers have five digits.
    pub fn compact(&mut self) {
        [&mut self.mean, &mut self.spread, &mut self.weights].into_iter().for_each(|numbers| round(numbers, 5));
        self.smear = rounded(self.smear, 5);
    }

    pub fn cost(&self, row: &[f64]) -> f64 {
        let parts = row.iter().zip(self.mean.iter().zip(&self.spread));
        let row: Vec<f64> = parts.map(|(value, (mean, spread))| (value - mean) / spread).chain([1.0]).collect();
        // No call costs more than e²⁰ tokens.
        dot(&row, &self.weights).min(20.0).exp() * self.smear
    }

    pub fn check(&self, name: &str, width: usize) -> Result<(), CriticError> {
        check_sizes(name, width, &self.mean, &self.spread, &self.weights)?;
        if !(self.smear.is_finite() && self.smear > 0.0) {
            return Err(CriticError::Content(format!("{name}.smear must be above 0, got {}", self.smear)));
        }
        Ok(())
    }
}

fn round(numbers: &mut [f64], digits: i32) {
    numbers.iter_mut().for_each(|number| *number = rounded(*number, digits));
}

/// A number with so many significant digits.
fn rounded(number: f64, digits: i32) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return number;
    }
    // Between −308 and 308.
    let places = digits - 1 - number.abs().log10().floor() as i32;
    let shifted = number * 10f64.powi(places);
    // A tiny number cannot be shifted so far: it stays as it is.
    if shifted.is_finite() { shifted.round() / 10f64.powi(places) } else { number }
}

fn check_sizes(name: &str, width: usize, mean: &[f64], spread: &[f64], weights: &[f64]) -> Result<(), CriticError> {
    let sizes = (mean.len(), spread.len(), weights.len());
    if sizes != (width, width, width + 1) {
        let fact = format!("{name}: expected {width} features, found {sizes:?} means, spreads and weights");
        return Err(CriticError::Content(fact));
    }
    let finite = mean.iter().chain(spread).chain(weights).all(|value| value.is_finite());
    if !finite || !spread.iter().all(|spread| *spread > 0.0) {
        return Err(CriticError::Content(format!("{name}: expected finite numbers and spreads above 0")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_num::Random;

    fn sample(count: usize, seed: u64) -> (DenseRows, Vec<f64>, Vec<Vec<f64>>) {
        let mut random = Random::new(seed);
        let mut rows = DenseRows::new(2);
        let all: Vec<Vec<f64>> = (0..count).map(|_| vec![random.normal(), 5.0 + random.normal()]).collect();
        let targets =
            all.iter().map(|row| f64::from(u8::from(random.chance(logistic(row[0] - 0.5 * (row[1] - 5.0)))))).collect();
        all.iter().for_each(|row| rows.push(row));
        (rows, targets, all)
    }

    #[test]
    fn the_error_says_how_far_off_estimates_are() {
        let point = [0.8, 4.0];
        let truth = logistic(0.8 + 0.5);
        let mut inside = 0;
        for seed in 0..100 {
            let (rows, targets, _) = sample(300, seed);
            let estimate =
                LogisticModel::fit(&rows.standardised(), &targets, &vec![1.0; 300], 0.1, true).estimate(&point);
            inside += u32::from((estimate.mean - truth).abs() < 1.96 * estimate.error);
        }
        assert!((88..=100).contains(&inside), "{inside} of 100 intervals hold the truth");
    }

    #[test]
    fn fewer_digits_change_nothing_that_matters() {
        for (number, digits, expected) in
            [(0.123_456_7, 5, 0.123_46), (-98_765.4, 3, -98_800.0), (0.0, 3, 0.0), (1e-320, 3, 1e-320)]
        {
            assert!((rounded(number, digits) - expected).abs() <= 1e-9 * f64::abs(expected), "{number}");
        }
        let (rows, targets, all) = sample(300, 9);
        let model = LogisticModel::fit(&rows.standardised(), &targets, &vec![1.0; 300], 0.1, true);
        let (mut with, mut without) = (model.clone(), model.clone());
        with.compact(true);
        without.compact(false);
        assert!(without.check("it", 2).is_ok() && with.check("it", 2).is_ok());
        for row in &all {
            let (exact, short) = (model.estimate(row), with.estimate(row));
            assert!((exact.mean - short.mean).abs() < 1e-3 && (exact.error / short.error - 1.0).abs() < 0.02);
            assert_eq!((without.estimate(row).mean, without.estimate(row).error), (short.mean, 0.0));
        }
    }

    #[test]
    fn costs_are_right_on_average() {
        let (rows, _, all) = sample(2_000, 7);
        let mut random = Random::new(8);
        let costs: Vec<f64> = all.iter().map(|row| (5.0 + 0.3 * row[0] + 0.5 * random.normal()).exp()).collect();
        let model = CostModel::fit(&rows.standardised(), &costs, &vec![1.0; 2_000], 1.0);
        let predicted: f64 = all.iter().map(|row| model.cost(row)).sum();
        assert!((predicted / costs.iter().sum::<f64>() - 1.0).abs() < 0.02);
    }
}
