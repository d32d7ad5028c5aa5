//! The little numerics that fitting needs.

use lemon_num::{logistic, solve};

/// Points and weights of a standard normal, for means over it.
pub(crate) struct Normal(Vec<(f64, f64)>);

impl Normal {
    /// This many evenly spaced points within 4.5 deviations: plenty for smooth functions.
    pub fn new(points: usize) -> Self {
        let at = |index: usize| -4.5 + 9.0 * index as f64 / (points - 1) as f64;
        let raw: Vec<(f64, f64)> = (0..points).map(|index| (at(index), (-at(index) * at(index) / 2.0).exp())).collect();
        let sum: f64 = raw.iter().map(|(_, weight)| weight).sum();
        Normal(raw.into_iter().map(|(x, weight)| (x, weight / sum)).collect())
    }

    /// The mean of a function.
    pub fn mean(&self, f: impl Fn(f64) -> f64) -> f64 {
        self.0.iter().map(|(x, weight)| weight * f(*x)).sum()
    }

    /// The mean of the logistic around `x` with this spread, and its slope.
    pub fn logistic(&self, x: f64, spread: f64) -> (f64, f64) {
        self.0.iter().fold((0.0, 0.0), |(mean, slope), (z, weight)| {
            let p = logistic(x + spread * z);
            (mean + weight * p, slope + weight * p * (1.0 - p))
        })
    }
}

/// One equation: the mean of the logistic of `row · solution` with some spread should be `target`, with this weight.
pub(crate) struct Equation {
    pub row: Vec<f64>,
    pub target: f64,
    pub weight: f64,
}

/// Solves `Σ weight · row · (target − mean logistic) = ridge · solution` by Newton's method: logistic regression where the
/// spread is 0, and otherwise the same with the mean over residuals of that spread. The first `free` coefficients carry no
/// ridge.
pub(crate) fn regress(equations: &[Equation], spread: f64, ridge: f64, free: usize) -> Vec<f64> {
    let width = equations.first().map_or(0, |equation| equation.row.len());
    let normal = Normal::new(if spread > 0.0 { 31 } else { 3 });
    let mut solution = vec![0.0; width];
    for _ in 0..40 {
        let penalty = |at: usize| if at < free { 0.0 } else { ridge };
        let mut gradient: Vec<f64> = solution.iter().enumerate().map(|(at, w)| -penalty(at) * w).collect();
        let mut curvature: Vec<Vec<f64>> =
            (0..width).map(|i| (0..width).map(|j| if i == j { penalty(i) + 1e-9 } else { 0.0 }).collect()).collect();
        for Equation { row, target, weight } in equations {
            let x: f64 = row.iter().zip(&solution).map(|(a, b)| a * b).sum();
            let (mean, slope) = normal.logistic(x, spread);
            for (i, a) in row.iter().enumerate().filter(|(_, a)| **a != 0.0) {
                gradient[i] += weight * a * (target - mean);
                row.iter().enumerate().for_each(|(j, b)| curvature[i][j] += weight * slope * a * b);
            }
        }
        let step = solve(curvature, gradient);
        let size: f64 = step.iter().map(|s| s.abs()).fold(0.0, f64::max);
        // Damped, because far from the solution the slope can vanish.
        let damp = if size > 2.0 { 2.0 / size } else { 1.0 };
        solution.iter_mut().zip(&step).for_each(|(w, s)| *w += damp * s);
        if size < 1e-9 {
            break;
        }
    }
    solution
}

/// The place of the least value on a grid, refined around it.
pub(crate) fn minimise(mut low: f64, mut high: f64, f: impl Fn(f64) -> f64) -> f64 {
    let mut best = low;
    for _ in 0..4 {
        let at = |step: usize| low + (high - low) * step as f64 / 8.0;
        best = (0..=8).map(at).min_by(|a, b| f(*a).total_cmp(&f(*b))).unwrap_or(low);
        let width = (high - low) / 8.0;
        (low, high) = ((best - width).max(low), (best + width).min(high));
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_finds_what_made_the_data() {
        let normal = Normal::new(31);
        for spread in [0.0, 1.5] {
            let equation = |x: f64| {
                let target = normal.logistic(0.7 - 0.4 * x, spread).0;
                Equation { row: vec![1.0, x], target, weight: 1.0 }
            };
            let found = regress(&(-20..20).map(|x| equation(f64::from(x) / 5.0)).collect::<Vec<_>>(), spread, 0.0, 2);
            assert!((found[0] - 0.7).abs() < 1e-3 && (found[1] + 0.4).abs() < 1e-3, "{found:?}");
        }
    }

    #[test]
    fn the_least_value_is_found() {
        assert!((minimise(0.0, 4.0, |x| (x - 1.234).powi(2)) - 1.234).abs() < 0.01);
        assert!(minimise(0.0, 4.0, |x| x) < 1e-9);
    }

    #[test]
    fn means_over_a_normal_are_right() {
        let normal = Normal::new(31);
        assert!(normal.mean(|x| x).abs() < 1e-12);
        assert!((normal.mean(|x| x * x) - 1.0).abs() < 1e-3);
    }
}
