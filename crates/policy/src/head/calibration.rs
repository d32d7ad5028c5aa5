//! How sure a head is: the scale of its log-odds, and the covariance of its last layer.

use lemon_num::{inverse, logistic};

/// The precision of the prior over the last layer.
const PRIOR: f64 = 1.0;

/// A state and the constant.
pub(super) fn with_one(state: &[f32]) -> Vec<f64> {
    state.iter().map(|it| f64::from(*it)).chain([1.0]).collect()
}

pub(super) fn cross_entropy(p: f64, success: f64) -> f64 {
    let p = p.clamp(1e-9, 1.0 - 1e-9);
    -(success * p.ln() + (1.0 - success) * (1.0 - p).ln())
}

/// The inverse of the prior's precision and these rows' curvature: the lower triangle by rows.
pub(super) fn covariance(size: usize, rows: &[(Vec<f64>, f64)]) -> Vec<f32> {
    let mut precision: Vec<Vec<f64>> =
        (0..size).map(|at| (0..size).map(|other| if other == at { PRIOR } else { 0.0 }).collect()).collect();
    for (state, weight) in rows {
        for (at, line) in precision.iter_mut().enumerate() {
            let scale = weight * state.get(at).copied().unwrap_or_default();
            line.iter_mut().zip(state).take(at + 1).for_each(|(entry, other)| *entry += scale * other);
        }
    }
    let inverse = inverse(&precision);
    inverse.iter().enumerate().flat_map(|(at, line)| line.iter().take(at + 1)).map(|it| *it as f32).collect()
}

/// Logistic regression of success on the log-odds: scale and offset, by Newton's method. A little of a prior holds the scale near 1.
pub(super) fn platt(rows: &[(f64, f64, f64)]) -> [f64; 2] {
    let (mut scale, mut offset) = (1.0, 0.0);
    for _ in 0..20 {
        let (mut slope, mut curve) = ([1e-2 * (scale - 1.0), 1e-2 * offset], [1e-2, 0.0, 1e-2]);
        for (logit, success, weight) in rows {
            let p = logistic(scale * logit + offset);
            let (miss, bend) = (weight * (p - success), weight * p * (1.0 - p));
            slope[0] += miss * logit;
            slope[1] += miss;
            curve[0] += bend * logit * logit;
            curve[1] += bend * logit;
            curve[2] += bend;
        }
        let determinant = curve[0] * curve[2] - curve[1] * curve[1];
        let step = [
            (curve[2] * slope[0] - curve[1] * slope[1]) / determinant,
            (curve[0] * slope[1] - curve[1] * slope[0]) / determinant,
        ];
        if !step.iter().all(|it| it.is_finite()) {
            break;
        }
        scale -= step[0].clamp(-1.0, 1.0);
        offset -= step[1].clamp(-1.0, 1.0);
    }
    [scale, offset]
}

/// The variance of the product of weights with this covariance (the lower triangle by rows) and a state.
pub(super) fn variance(covariance: &[f32], state: &[f64]) -> f64 {
    let mut entries = covariance.iter().map(|it| f64::from(*it));
    let mut sum = 0.0;
    for (row, a) in state.iter().enumerate() {
        // A row of the triangle ends with its diagonal; what stands left of it counts twice.
        for (column, b) in state.iter().take(row + 1).enumerate() {
            let twice = if column < row { 2.0 } else { 1.0 };
            sum += twice * a * b * entries.next().unwrap_or_default(); // The file's length was checked.
        }
    }
    sum.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_num::Random;

    #[test]
    fn the_scale_of_log_odds_is_found() {
        let mut random = Random::new(1);
        let row = |_| {
            let logit = 3.0 * random.normal();
            (logit, logistic(0.4 * logit - 0.7), 1.0)
        };
        let rows: Vec<_> = (0..400).map(row).collect();
        let [scale, offset] = platt(&rows);
        assert!((scale - 0.4).abs() < 0.01 && (offset + 0.7).abs() < 0.01, "{scale} {offset}");
        assert_eq!(platt(&[]), [1.0, 0.0]);
    }

    #[test]
    fn what_was_seen_often_is_known_well() {
        let seen: Vec<(Vec<f64>, f64)> = (0..100).map(|_| (vec![2.0, 0.0, 1.0], 0.25)).collect();
        let covariance = covariance(3, &seen);
        assert_eq!(covariance.len(), 6);
        let known = variance(&covariance, &[2.0, 0.0, 1.0]);
        // The curvature of a hundred rows is 100 · 0.25 · 5 along their direction of length √5.
        assert!((known - 5.0 / (1.0 + 125.0)).abs() < 1e-5, "{known}");
        assert!((variance(&covariance, &[0.0, 1.0, 0.0]) - 1.0).abs() < 1e-6, "nothing but the prior");
    }
}
