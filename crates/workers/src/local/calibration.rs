//! How likely a reply is right, by what a model's likelihoods and its own calculation say about it.

use lemon_num::{logistic, solve};
use lemon_problems::Doubts;
use serde::{Deserialize, Serialize};

/// A model's likelihoods order its replies, but say not how often such replies are right. This is what they were worth on
/// problems with known answers: the weights of a logistic regression.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    constant: f64,
    /// Of the logarithm of the mean likelihood.
    log_sure: f64,
    /// Of the logarithm of what it lacks to one.
    log_unsure: f64,
    false_step: f64,
    foreign_number: f64,
    unused_number: f64,
}

/// Weights of a calibration.
const WEIGHTS: usize = 6;
/// No likelihood is taken for nearer to 0 or to 1.
const NEAREST: f64 = 1e-4;
/// Holds weights back that few replies speak for.
const RIDGE: f64 = 0.1;
/// Newton's method is there long before.
const STEPS: usize = 50;

impl Calibration {
    /// The probability that a reply is right: the mean likelihood of its tokens, and what is doubtful about it.
    pub fn probability(&self, likelihood: f64, doubts: Doubts) -> f64 {
        logistic(dot(&self.weights(), &signs(likelihood, doubts)))
    }

    /// Fits it to replies: the mean likelihood, the doubts, and whether it was right.
    pub fn fit(replies: &[(f64, Doubts, bool)]) -> Self {
        let rows: Vec<([f64; WEIGHTS], f64)> = replies
            .iter()
            .map(|(likelihood, doubts, right)| (signs(*likelihood, *doubts), f64::from(u8::from(*right))))
            .collect();
        let mut weights = [0.0; WEIGHTS];
        for _ in 0..STEPS {
            let mut slope = weights.map(|weight| -RIDGE * weight);
            let mut curve: [[f64; WEIGHTS]; WEIGHTS] =
                std::array::from_fn(|row| std::array::from_fn(|column| if row == column { RIDGE } else { 0.0 }));
            for (signs, right) in &rows {
                let expected = logistic(dot(&weights, signs));
                let spread = expected * (1.0 - expected);
                for row in 0..WEIGHTS {
                    slope[row] += (right - expected) * signs[row];
                    for column in 0..WEIGHTS {
                        curve[row][column] += spread * signs[row] * signs[column];
                    }
                }
            }
            for (weight, step) in weights.iter_mut().zip(solve(curve.map(Vec::from).into(), slope.into())) {
                *weight += step;
            }
        }
        // Three digits are more than the replies can tell, and can be read.
        let [constant, log_sure, log_unsure, false_step, foreign_number, unused_number] =
            weights.map(|weight| (weight * 1e3).round() / 1e3);
        Calibration { constant, log_sure, log_unsure, false_step, foreign_number, unused_number }
    }

    fn weights(&self) -> [f64; WEIGHTS] {
        let Calibration { constant, log_sure, log_unsure, false_step, foreign_number, unused_number } = *self;
        [constant, log_sure, log_unsure, false_step, foreign_number, unused_number]
    }
}

/// What weights are multiplied with.
fn signs(likelihood: f64, doubts: Doubts) -> [f64; WEIGHTS] {
    let Doubts { false_step, foreign_number, unused_number } = doubts;
    let [false_step, foreign_number, unused_number] =
        [false_step, foreign_number, unused_number].map(|it| f64::from(u8::from(it)));
    let near = |it: f64| it.max(NEAREST).ln();
    [1.0, near(likelihood), near(1.0 - likelihood), false_step, foreign_number, unused_number]
}

fn dot(weights: &[f64; WEIGHTS], signs: &[f64; WEIGHTS]) -> f64 {
    weights.iter().zip(signs).map(|(weight, sign)| weight * sign).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fitted_says_how_often_replies_are_right() {
        // Of those with a false step one in ten is right, of others more the surer the model was.
        let mut replies = Vec::new();
        for number in 0..4_000 {
            let likelihood = 0.6 + 0.4 * f64::from(number % 97) / 97.0;
            let doubts = Doubts { false_step: number % 4 == 0, ..Doubts::default() };
            let uniform = f64::from(number * 31 % 101) / 101.0;
            replies.push((likelihood, doubts, uniform < if doubts.false_step { 0.1 } else { likelihood * likelihood }));
        }
        let fitted = Calibration::fit(&replies);
        for (likelihood, false_step, expected) in [(0.7, false, 0.49), (0.9, false, 0.81), (0.9, true, 0.1)] {
            let found = fitted.probability(likelihood, Doubts { false_step, ..Doubts::default() });
            assert!((found - expected).abs() < 0.05, "{found}, not {expected}");
        }
        assert_eq!((fitted.foreign_number, fitted.unused_number), (0.0, 0.0), "nothing speaks for them");
    }

    #[test]
    fn a_probability_is_one_whatever_it_is_made_of() {
        for replies in [&[][..], &[(0.0, Doubts::default(), true)], &[(1.0, Doubts::default(), false); 3]] {
            let fitted = Calibration::fit(replies);
            for likelihood in [0.0, 0.5, 1.0] {
                let found = fitted.probability(likelihood, Doubts { unused_number: true, ..Doubts::default() });
                assert!((0.0..=1.0).contains(&found), "{found}");
            }
        }
    }
}
