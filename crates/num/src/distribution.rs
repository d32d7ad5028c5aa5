//! The normal distribution and Student's t, as far as the bootstrap needs them.

use super::Z;
use std::f64::consts::TAU;

/// The probability of at most `x`: `½ + φ(x) (x + x³/3 + x⁵/(3·5) + …)`. G. Marsaglia, Journal of Statistical Software 11
/// (2004), issue 4.
pub fn cumulative(x: f64) -> f64 {
    // Beyond, the series loses its digits, and no number of resamples can tell the result from 0 or 1.
    if x.abs() > 7.0 {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let (mut sum, mut term, mut divisor) = (x, x, 1.0);
    while term.abs() > 1e-17 * sum.abs() {
        divisor += 2.0;
        term *= x * x / divisor;
        sum += term;
    }
    (0.5 + sum * (-0.5 * x * x).exp() / TAU.sqrt()).clamp(0.0, 1.0)
}

/// The `x` with the probability `p` of at most it, within ±7. By bisection: it is needed once an interval.
pub fn quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-7.0, 7.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if cumulative(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// The 97.5 % quantile of Student's t, by the expansion in 1/`freedom` of Abramowitz and Stegun, 26.7.5, to three terms.
/// Too small below 5 degrees of freedom (0.1 at 3), where the bootstrap reaches for its outermost resamples anyway.
pub fn t_quantile(freedom: f64) -> f64 {
    let (z, z3, z5, z7) = (Z, Z.powi(3), Z.powi(5), Z.powi(7));
    z + (z3 + z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * freedom.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(got: f64, expected: f64, within: f64) {
        assert!((got - expected).abs() <= within, "{got} is not {expected}");
    }

    #[test]
    fn values_are_those_of_the_tables() {
        check(cumulative(0.0), 0.5, 0.0);
        check(cumulative(1.0), 0.841_344_746_068_543, 1e-14);
        check(cumulative(-1.0), 0.158_655_253_931_457, 1e-14);
        check(cumulative(Z), 0.975, 1e-14);
        check(cumulative(-3.0), 0.001_349_898_031_630, 1e-14);
        check(cumulative(6.9), 1.0, 1e-11);
        check(cumulative(f64::INFINITY), 1.0, 0.0);
        check(cumulative(f64::NEG_INFINITY), 0.0, 0.0);
        check(t_quantile(5.0), 2.5706, 0.004);
        check(t_quantile(10.0), 2.2281, 0.0005);
        check(t_quantile(39.0), 2.0227, 0.0001);
        check(t_quantile(1e9), Z, 1e-8);
    }

    #[test]
    fn the_quantile_inverts() {
        for p in [1e-6, 0.025, 0.3, 0.5, 0.8, 0.999] {
            check(cumulative(quantile(p)), p, 1e-13);
        }
    }
}
