//! Two methods at a time.

use super::PairReport;
use super::runs::{Runs, as_share};
use crate::Row;
use lemon_num::seed_of;
use lemon_num::stats::{self, RunCluster};

/// Every two methods that have a run in common, the earlier one first.
pub fn reports(methods: &[(&str, Runs)]) -> Vec<PairReport> {
    let mut pairs = Vec::new();
    for (place, (a, runs_a)) in methods.iter().enumerate() {
        let later = methods.iter().skip(place + 1);
        pairs.extend(later.filter_map(|(b, runs_b)| report([a, b], &in_common(runs_a, runs_b))));
    }
    let raw: Vec<f64> = pairs.iter().map(|pair| pair.permutation_p).collect();
    for (pair, adjusted) in pairs.iter_mut().zip(stats::holm(&raw)) {
        pair.holm_p = adjusted;
    }
    pairs
}

/// The runs both made, by item.
fn in_common<'a>(a: &Runs<'a>, b: &Runs<'a>) -> Vec<Vec<[&'a Row; 2]>> {
    let items = a.iter().filter_map(|(item, seeds)| Some((seeds, b.get(item)?)));
    let both = items.map(|(a, b)| a.iter().filter_map(|(seed, row)| Some([*row, *b.get(seed)?])).collect::<Vec<_>>());
    both.filter(|pairs| !pairs.is_empty()).collect()
}

/// Without the adjusted p, which the other pairs have a part in.
fn report([a, b]: [&str; 2], items: &[Vec<[&Row; 2]>]) -> Option<PairReport> {
    let pairs: Vec<&[&Row; 2]> = items.iter().flatten().collect();
    if pairs.is_empty() {
        return None;
    }
    let count = |a: bool, b: bool| pairs.iter().filter(|[row_a, row_b]| (row_a.right, row_b.right) == (a, b)).count();
    let (only_a, only_b) = (count(true, false), count(false, true));
    let seed = |of: &str| seed_of(&[a.min(b), a.max(b), of]);
    let right = differences(items, |row| as_share(row.right));
    let tokens = differences(items, |row| row.tokens.total as f64);
    // Of draws of several sizes the larger count for more, as in the difference that is tested.
    let size = pairs.len() as f64 / right.len() as f64;
    let item_means: Vec<f64> = right.iter().map(|item| item.sum / size).collect();
    let independent = items.iter().all(|pairs| pairs.len() == 1);
    Some(PairReport {
        a: a.to_owned(),
        b: b.to_owned(),
        runs: pairs.len(),
        difference: stats::mean(&right),
        interval: stats::difference_interval(&right, Some([-1.0, 1.0]), seed("accuracy")),
        both: count(true, true),
        only_a,
        only_b,
        neither: count(false, false),
        mcnemar_p: independent.then(|| stats::mcnemar_exact(only_a as u64, only_b as u64)),
        permutation_p: stats::permutation(&item_means, seed("permutation")),
        holm_p: 1.0,
        token_difference: stats::mean(&tokens),
        token_interval: stats::difference_interval(&tokens, None, seed("tokens")),
    })
}

/// What `a` has more of than `b`, by item.
fn differences(items: &[Vec<[&Row; 2]>], quantity: impl Fn(&Row) -> f64) -> Vec<RunCluster> {
    items.iter().map(|pairs| pairs.iter().map(|[a, b]| quantity(a) - quantity(b)).collect()).collect()
}
