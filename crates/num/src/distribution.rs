//! The normal distribution and Student's t.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};
use std::f64::consts::FRAC_1_SQRT_2;

/// The 97.5 % quantile of the normal distribution, for intervals of 95 %.
pub const Z: f64 = 1.959_963_984_540_054;

/// From here on the expansion in 1/freedom is right to nine digits.
const MANY: u64 = 200;

/// The probability of at most `x` in the standard normal distribution.
pub fn normal_cumulative(x: f64) -> f64 {
    // Not by `statrs`, whose complementary error function has eleven digits.
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// The `x` with the probability `p` of at most it. `p` outside of 0 to 1 is taken for the nearer end.
pub fn normal_quantile(p: f64) -> f64 {
    if p.is_nan() { p } else { Normal::standard().inverse_cdf(p.clamp(0.0, 1.0)) }
}

/// The 97.5 % quantile of Student's t with `freedom` degrees of freedom: half of a 95 % interval in standard errors.
/// Infinite for 0, where nothing is known.
pub fn t_quantile(freedom: u64) -> f64 {
    match freedom {
        // `statrs` takes it from 1 − y for a y that nears 1, so that more freedom costs digits.
        1..MANY => exact(freedom),
        0 => f64::INFINITY,
        _ => by_expansion(freedom as f64),
    }
}

fn exact(freedom: u64) -> f64 {
    // No error: the scale and the freedom are positive.
    StudentsT::new(0.0, 1.0, freedom as f64).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
}

/// The expansion of Abramowitz and Stegun, 26.7.5, to three terms.
fn by_expansion(freedom: f64) -> f64 {
    let (z, z3, z5, z7) = (Z, Z.powi(3), Z.powi(5), Z.powi(7));
    z + (z3 + z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * freedom.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(got: f64, expected: f64, within: f64) {
        assert!((got - expected).abs() <= within, "{got} is not {expected}");
    }

    #[test]
    fn values_are_those_of_the_tables() {
        check(normal_cumulative(0.0), 0.5, 0.0);
        check(normal_cumulative(1.0), 0.841_344_746_068_543, 1e-14);
        check(normal_cumulative(-1.0), 0.158_655_253_931_457, 1e-14);
        check(normal_cumulative(Z), 0.975, 1e-14);
        check(normal_cumulative(-3.0), 0.001_349_898_031_630, 1e-14);
        check(normal_cumulative(6.9), 1.0, 1e-11);
        check(normal_cumulative(f64::INFINITY), 1.0, 0.0);
        check(normal_cumulative(f64::NEG_INFINITY), 0.0, 0.0);
        check(normal_quantile(0.975), Z, 1e-14);
    }

    #[test]
    fn quantiles_of_t_are_those_of_the_tables() {
        let check = |freedom, expected| check(t_quantile(freedom), expected, 6e-8);
        check(1, 12.706_204_74);
        check(2, 4.302_652_73);
        check(3, 3.182_446_31);
        check(4, 2.776_445_11);
        check(5, 2.570_581_84);
        check(9, 2.262_157_16);
        check(10, 2.228_138_85);
        check(30, 2.042_272_46);
        check(39, 2.022_690_92);
        check(100, 1.983_971_52);
        check(1_000_000_000_000, Z);
        assert_eq!(t_quantile(0), f64::INFINITY);
    }

    #[test]
    fn quantiles_of_t_fall_towards_the_normal_and_both_methods_agree() {
        for freedom in 1..400 {
            assert!(t_quantile(freedom) > t_quantile(freedom + 1), "{freedom}");
        }
        for freedom in [MANY, MANY + 1] {
            check(exact(freedom), by_expansion(freedom as f64), 1e-9);
        }
    }

    #[test]
    fn the_quantile_inverts() {
        for p in [1e-6, 0.025, 0.3, 0.5, 0.8, 0.999] {
            check(normal_cumulative(normal_quantile(p)), p, 1e-13);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_normal_is_symmetric_and_rises(x in -8.0..8.0, more in 1e-6..4.0) {
            prop_assert!((normal_cumulative(x) + normal_cumulative(-x) - 1.0).abs() < 1e-14);
            prop_assert!(normal_cumulative(x) <= normal_cumulative(x + more));
        }

        #[test]
        fn quantiles_invert_and_have_ends(p in 1e-9..1.0, beyond: f64) {
            prop_assert!((normal_cumulative(normal_quantile(p)) - p).abs() < 1e-12);
            if !beyond.is_nan() && !(0.0..=1.0).contains(&beyond) {
                prop_assert!(normal_quantile(beyond).is_infinite());
            }
        }
    }
}
