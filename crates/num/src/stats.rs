//! Intervals and tests for runs on a sample of items. Pure functions; what draws takes a seed.
//!
//! The unit that is independent of others is the item, not the run: runs of one item with several seeds share its
//! difficulty. Intervals resample items ([`mean_interval`], [`difference_interval`]), the [`permutation`] test swaps
//! items, and [`wilson`] and [`mcnemar_exact`], which count runs as independent, are for one run an item only.

mod bootstrap;

pub use bootstrap::{RESAMPLES, RunCluster, difference_interval, mean, mean_interval};

use crate::Random;
use crate::distribution::Z;
use std::f64::consts::LN_2;

/// Up to so many differences other than zero, [`permutation`] tries every assignment of signs.
const MOST_ENUMERATED: usize = 16;

/// Assignments of signs that [`permutation`] draws where there are too many to try all.
const DRAWN: u32 = 9_999;

/// The 95 % interval of a share, by Wilson's score method: all shares that a two-sided test at 5 % would not reject,
///
/// `(p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n)`, with `p = right / n`.
///
/// Of nothing it is `[0, 1]`. E. B. Wilson, Journal of the American Statistical Association 22 (1927), 209–212; method 3
/// in R. G. Newcombe, Statistics in Medicine 17 (1998), 857–872.
pub fn wilson(right: u64, runs: u64) -> [f64; 2] {
    if runs == 0 {
        return [0.0, 1.0];
    }
    let (n, wrong) = (runs as f64, runs.saturating_sub(right));
    let p = right.min(runs) as f64 / n;
    let centre = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    // The ends are exactly 0 and 1 where the share is; rounding would leave them next to it.
    let low = if right == 0 { 0.0 } else { (centre - half) / scale };
    let high = if wrong == 0 { 1.0 } else { (centre + half) / scale };
    [low, high]
}

/// McNemar's test, exact and two-sided, of two methods on the same items: `only_a` items only the one got right, `only_b`
/// only the other. If both are equally good, each of the `n = only_a + only_b` is a toss of a coin:
///
/// `p = min(1, 2 P(X ≤ min(only_a, only_b)))`, `X ~ Binomial(n, ½)`.
///
/// Q. McNemar, Psychometrika 12 (1947), 153–157, with the binomial instead of χ².
pub fn mcnemar_exact(only_a: u64, only_b: u64) -> f64 {
    (2.0 * lower_tail(only_a.min(only_b), only_a.max(only_b))).min(1.0)
}

/// The sign test, exact and one-sided: the probability of at least so many wins if wins and losses were equally likely.
pub fn sign_test(wins: u64, losses: u64) -> f64 {
    match wins.checked_sub(1) {
        _ if losses <= wins => lower_tail(losses, wins),
        Some(below) => 1.0 - lower_tail(below, losses.saturating_add(1)),
        None => 1.0,
    }
}

/// `P(X ≤ fewer)`, `X ~ Binomial(fewer + more, ½)`, where `fewer` is at most `more`.
fn lower_tail(fewer: u64, more: u64) -> f64 {
    let more = more as f64;
    let n = fewer as f64 + more;
    // In logarithms, since 2⁻ⁿ vanishes from n = 1075 on: the probability of `fewer`, …
    let ln_binomial: f64 = (1..=fewer).map(|i| ((more + i as f64) / i as f64).ln()).sum();
    let probability = (ln_binomial - n * LN_2).exp();
    // … and, relative to it, those of fewer still.
    let (mut term, mut tail) = (1.0, 1.0);
    for k in (1..=fewer).rev() {
        term *= k as f64 / (n - k as f64 + 1.0);
        tail += term;
    }
    (probability * tail).min(1.0)
}

/// The paired permutation test, two-sided, on the items' mean differences between two methods. If the methods do not
/// differ, each difference could as well have had the other sign:
///
/// `p = P(|Σ ±dᵢ| ≥ |Σ dᵢ|)`, all assignments of signs being equally likely.
///
/// Exact for up to 16 differences other than zero, and for any number of them if all have the same size, where it is
/// [`mcnemar_exact`]. Otherwise `(k + 1) / (m + 1)` for `k` of `m` = 9,999 draws, which is never too small on average and
/// never zero. R. A. Fisher, The Design of Experiments (1935), § 21; B. Phipson and G. K. Smyth, Statistical Applications
/// in Genetics and Molecular Biology 9 (2010), article 39.
pub fn permutation(differences: &[f64], seed: u64) -> f64 {
    let differences: Vec<f64> = differences.iter().copied().filter(|difference| *difference != 0.0).collect();
    let sizes = || differences.iter().map(|difference| difference.abs());
    let (smallest, largest) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    // Sums of the same sizes differ by rounding only; they have to count as equal.
    let slack = 1e-9 * sizes().sum::<f64>();
    if largest - smallest <= 1e-9 * largest {
        let positive = differences.iter().filter(|difference| **difference > 0.0).count();
        return mcnemar_exact(positive as u64, (differences.len() - positive) as u64);
    }
    let as_far = differences.iter().sum::<f64>().abs() - slack;
    if differences.len() <= MOST_ENUMERATED {
        let all = 1_u64 << differences.len();
        let hits = (0..all).filter(|signs| flipped_sum(&differences, || *signs).abs() >= as_far).count();
        return hits as f64 / all as f64;
    }
    let mut random = Random::new(seed);
    let hits = (0..DRAWN).filter(|_| flipped_sum(&differences, || random.next_u64()).abs() >= as_far).count();
    (hits as f64 + 1.0) / (f64::from(DRAWN) + 1.0)
}

/// The sum with the signs that the bits say; each call of `bits` gives 64.
fn flipped_sum(differences: &[f64], mut bits: impl FnMut() -> u64) -> f64 {
    let mut sum = 0.0;
    for chunk in differences.chunks(64) {
        let signs = bits();
        for (place, difference) in chunk.iter().enumerate() {
            // The highest bit of a float is its sign. A branch on a random bit would cost more than the addition.
            sum += f64::from_bits(difference.to_bits() ^ ((signs >> place) << 63));
        }
    }
    sum
}

/// Holm's correction for several tests: the p-values adjusted so that comparing each with 5 % keeps the chance of any
/// false rejection at 5 %, in the order they came in. For the i-th smallest of m, from 1,
///
/// `max over j ≤ i of min(1, (m − j + 1) pⱼ)`.
///
/// S. Holm, Scandinavian Journal of Statistics 6 (1979), 65–70.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = p.iter().copied().enumerate().collect();
    order.sort_by(|(_, left), (_, right)| left.total_cmp(right));
    let mut adjusted = vec![1.0; p.len()];
    let mut least = 0.0_f64;
    for (rank, (place, p)) in order.into_iter().enumerate() {
        least = least.max(p * (adjusted.len() - rank) as f64).min(1.0);
        // `place` came from enumerating `p`.
        adjusted[place] = least;
    }
    adjusted
}
