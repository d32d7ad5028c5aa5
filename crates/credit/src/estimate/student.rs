//! Student's t.

use std::f64::consts::FRAC_PI_2;

/// The 97.5 % quantile of the normal distribution, for intervals of 95 %.
const Z: f64 = 1.959_963_984_540_054;

/// From here on the expansion in 1/freedom is right to nine digits, and the series grows long.
const MANY: u64 = 200;

/// The 97.5 % quantile of Student's t with `freedom` degrees of freedom: half of a 95 % interval in standard errors.
/// Infinite for 0, where nothing is known.
///
/// By bisection on the probability, which has finitely many terms for whole degrees of freedom (Abramowitz and Stegun,
/// 26.7.3 and 26.7.4); beyond 200 by the expansion in 1/freedom, to three terms (26.7.5).
pub fn t_quantile(freedom: u64) -> f64 {
    match freedom {
        0 => f64::INFINITY,
        1..MANY => by_bisection(freedom),
        _ => by_expansion(freedom as f64),
    }
}

fn by_bisection(freedom: u64) -> f64 {
    // The largest quantile is 12.7, that of one degree of freedom.
    let (mut low, mut high) = (1.9, 12.8);
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if within(middle, freedom) < 0.95 {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// The probability of a value from −`t` to `t`: with θ = atan(t/√ν), for odd ν
/// `(θ + sin θ (cos θ + 2/3 cos³ θ + … + 2·4…(ν−3)/3·5…(ν−2) cos^(ν−2) θ)) · 2/π`, for even ν
/// `sin θ (1 + 1/2 cos² θ + … + 1·3…(ν−3)/2·4…(ν−2) cos^(ν−2) θ)`.
fn within(t: f64, freedom: u64) -> f64 {
    let theta = (t / (freedom as f64).sqrt()).atan();
    let (sin, cos) = theta.sin_cos();
    let odd = freedom % 2 == 1;
    let first = if odd { 1 } else { 0 };
    let mut term = if odd { cos } else { 1.0 };
    let mut sum = if freedom == 1 { 0.0 } else { term };
    for power in ((first + 2)..=freedom.saturating_sub(2)).step_by(2) {
        term *= cos * cos * (power - 1) as f64 / power as f64;
        sum += term;
    }
    if odd { (theta + sin * sum) / FRAC_PI_2 } else { sin * sum }
}

fn by_expansion(freedom: f64) -> f64 {
    let (z, z3, z5, z7) = (Z, Z.powi(3), Z.powi(5), Z.powi(7));
    z + (z3 + z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * freedom.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(freedom: u64, expected: f64) {
        let got = t_quantile(freedom);
        assert!((got - expected).abs() < 6e-7, "{freedom}: {got} is not {expected}");
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        check(1, 12.706_204_7);
        check(2, 4.302_652_7);
        check(3, 3.182_446_3);
        check(4, 2.776_445_1);
        check(5, 2.570_581_8);
        check(9, 2.262_157_2);
        check(10, 2.228_138_9);
        check(30, 2.042_272_5);
        check(100, 1.983_971_5);
        check(1_000_000_000_000, Z);
        assert_eq!(t_quantile(0), f64::INFINITY);
    }

    #[test]
    fn they_fall_towards_the_normal_and_both_methods_agree() {
        for freedom in 1..400 {
            assert!(t_quantile(freedom) > t_quantile(freedom + 1), "{freedom}");
        }
        assert!((by_bisection(MANY) - by_expansion(MANY as f64)).abs() < 1e-9);
        assert!((by_bisection(MANY + 1) - by_expansion(MANY as f64 + 1.0)).abs() < 1e-9);
    }
}
