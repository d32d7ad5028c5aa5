//! Single functions: published examples, and what always holds.

use lemon_num::stats::{
    RunCluster, difference_interval, holm, mcnemar_exact, mean, mean_interval, permutation, sign_test, wilson,
};
use proptest::prelude::*;

/// Equal but for rounding.
fn close(got: f64, expected: f64) -> bool {
    (got - expected).abs() <= 1e-9 * (1.0 + expected.abs())
}

#[test]
fn wilson_as_published() {
    let check = |right: u64, runs: u64, expected: [f64; 2]| {
        let rounded = wilson(right, runs).map(|end| (end * 1e4).round() / 1e4);
        assert_eq!(rounded, expected, "{right} of {runs}");
    };
    // Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
    check(81, 263, [0.2553, 0.3662]);
    check(15, 148, [0.0624, 0.1605]);
    check(0, 20, [0.0, 0.1611]);
    check(1, 29, [0.0061, 0.1718]);
    // Mirrored, and the ends.
    check(20, 20, [0.8389, 1.0]);
    check(182, 263, [0.6338, 0.7447]);
    check(0, 0, [0.0, 1.0]);
    check(9, 5, wilson(5, 5).map(|end| (end * 1e4).round() / 1e4));
}

#[test]
fn mcnemar_is_the_binomial() {
    let check = |a: u64, b: u64, expected: f64| {
        assert!(close(mcnemar_exact(a, b), expected), "{a}, {b}: {}", mcnemar_exact(a, b));
        assert_eq!(mcnemar_exact(a, b), mcnemar_exact(b, a));
    };
    check(0, 0, 1.0);
    check(1, 0, 1.0);
    check(0, 5, 2.0 / 32.0);
    check(0, 6, 2.0 / 64.0);
    // Tables of the binomial: P(X ≤ 5) of 20 is 21700 / 2²⁰ = 0.0207.
    check(5, 15, 2.0 * 21_700.0 / 1_048_576.0);
    check(0, 1000, 0.5_f64.powi(999));
    check(70_000, 70_000, 1.0);
    assert!((0.8..1.0).contains(&mcnemar_exact(5_000, 5_010)));
    assert!(mcnemar_exact(4_000, 6_000) < 1e-80);
}

#[test]
fn mcnemar_counts_every_outcome() {
    for n in 1..=60_u64 {
        let mut row = vec![1_u128];
        for _ in 0..n {
            row = (0..=row.len()).map(|k| row.get(k).unwrap_or(&0) + k.checked_sub(1).map_or(0, |k| row[k])).collect();
        }
        for a in 0..=n {
            let fewer = a.min(n - a) as usize;
            let tail: u128 = row[..=fewer].iter().sum();
            let expected = (2.0 * tail as f64 / 2.0_f64.powi(n as i32)).min(1.0);
            assert!(close(mcnemar_exact(a, n - a), expected), "{a} of {n}");
        }
    }
}

#[test]
fn the_sign_test_is_exact() {
    for (wins, losses, expected) in [(0, 0, 1.0), (5, 0, 0.03125), (8, 2, 56.0 / 1024.0), (3, 3, 42.0 / 64.0)] {
        let found = sign_test(wins, losses);
        assert!((found - expected).abs() < 1e-12, "{wins}:{losses} {found}");
    }
    assert!(sign_test(2_000, 1_000) < 1e-9);
    assert_eq!((sign_test(0, 9), sign_test(1_000, 200_000)), (1.0, 1.0));
}

#[test]
fn permutation_as_published() {
    // Darwin's maize, as Fisher tested it (The Design of Experiments, 1935, § 21): 1,726 of 2¹⁵ sums are as far from zero.
    let darwin = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48].map(f64::from);
    assert!(close(permutation(&darwin, 1), 1_726.0 / 32_768.0), "{}", permutation(&darwin, 1));

    let check = |differences: &[f64], expected: f64| {
        let got = permutation(differences, 1);
        assert!(close(got, expected), "{differences:?}: {got}");
    };
    check(&[], 1.0);
    check(&[0.0, -0.0], 1.0);
    check(&[0.5], 1.0);
    check(&[1.0, 2.0, 0.0, 4.0], 2.0 / 8.0);
    check(&[1.0, 2.0, -3.0], 1.0);
    // Thirds do not add up to the same in every order; they have to count as equal.
    check(&[1.0 / 3.0, 1.0 / 3.0, -2.0 / 3.0, 0.1 + 0.2, -0.3], 1.0);
    // All of one size: McNemar's test, however many.
    check(&[0.25; 40], 0.5_f64.powi(39));
}

#[test]
fn drawn_permutations_are_near_all_of_them() {
    let differences: Vec<f64> = (1..=18).map(|i| f64::from(i) * if i % 3 == 0 { -0.1 } else { 0.1 }).collect();
    let observed: f64 = differences.iter().sum();
    // Every sum in tenths, and in how many ways it comes about.
    let mut ways = std::collections::BTreeMap::from([(0_i32, 1.0)]);
    for size in 1..=18 {
        let mut next = std::collections::BTreeMap::new();
        for (sum, count) in ways {
            *next.entry(sum + size).or_insert(0.0) += count;
            *next.entry(sum - size).or_insert(0.0) += count;
        }
        ways = next;
    }
    let as_far = (observed * 10.0).round().abs() as i32;
    let exact =
        ways.iter().filter(|(sum, _)| sum.abs() >= as_far).map(|(_, count)| count).sum::<f64>() / 2_f64.powi(18);
    for seed in 0..5 {
        let drawn = permutation(&differences, seed);
        assert!((drawn - exact).abs() < 0.02, "{drawn} is far from {exact}");
        assert_eq!(drawn, permutation(&differences, seed));
    }
    let clear: Vec<f64> = (1..=70).map(f64::from).collect();
    assert_eq!(permutation(&clear, 1), 1e-4);
}

#[test]
fn holm_as_published() {
    let check = |p: &[f64], expected: &[f64]| {
        let got = holm(p);
        let same =
            got.len() == expected.len() && got.iter().zip(expected).all(|(got, expected)| close(*got, *expected));
        assert!(same, "{p:?}: {got:?}");
    };
    check(&[], &[]);
    check(&[0.3], &[0.3]);
    // The usual example: at 5 %, the first and the last are rejected.
    check(&[0.01, 0.04, 0.03, 0.005], &[0.03, 0.06, 0.06, 0.02]);
    check(&[0.5, 0.5, 0.9], &[1.0, 1.0, 1.0]);
}

#[test]
fn no_spread_is_not_certainty() {
    let share = Some([0.0, 1.0]);
    let items = |value: f64, count: usize| vec![RunCluster { sum: 3.0 * value, runs: 3 }; count];
    let check = |got: [f64; 2], expected: [f64; 2]| {
        assert!(close(got[0], expected[0]) && close(got[1], expected[1]), "{got:?} is not {expected:?}");
    };
    check(mean_interval(&items(1.0, 20), share, 1), wilson(20, 20));
    check(mean_interval(&items(0.0, 20), share, 1), wilson(0, 20));
    check(mean_interval(&items(1.0, 1), share, 1), wilson(1, 1));
    let unseen = wilson(0, 20)[1];
    check(difference_interval(&items(0.0, 20), Some([-1.0, 1.0]), 1), [-unseen, unseen]);
    check(mean_interval(&items(250.0, 20), None, 1), [250.0, 250.0]);
    check(mean_interval(&[], share, 1), [0.0, 1.0]);
    check(mean_interval(&[RunCluster::default()], share, 1), [0.0, 1.0]);
    check(mean_interval(&[], None, 1), [0.0, 0.0]);
}

#[test]
fn an_interval_is_about_two_standard_errors_wide() {
    // 400 items, half of them at 0 and half at 10, each run thrice: the standard error is 0.25.
    let items: Vec<RunCluster> = (0..400).map(|i| [f64::from(i % 2) * 10.0; 3].into_iter().collect()).collect();
    for interval in [mean_interval, difference_interval] {
        let [low, high] = interval(&items, None, 7);
        assert!((low - 4.51).abs() < 0.04 && (high - 5.49).abs() < 0.04, "{low} to {high}");
        assert_eq!(interval(&items, None, 7), [low, high]);
        assert_ne!(interval(&items, None, 8), [low, high]);
    }
}

/// Items with up to four runs, each right or wrong.
fn items() -> impl Strategy<Value = Vec<RunCluster>> {
    let item = (1..=4_u32).prop_flat_map(|runs| (0..=runs, Just(runs)));
    prop::collection::vec(item.prop_map(|(right, runs)| RunCluster { sum: f64::from(right), runs }), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wilson_holds_its_share(runs in 1..5_000_u64, part in 0.0..=1.0) {
        let right = (part * runs as f64) as u64;
        let [low, high] = wilson(right, runs);
        let share = right as f64 / runs as f64;
        prop_assert!(0.0 <= low && low <= share && share <= high && high <= 1.0);
        let mirrored = wilson(runs - right, runs);
        prop_assert!(close(low, 1.0 - mirrored[1]) && close(high, 1.0 - mirrored[0]));
        let more = wilson(4 * right, 4 * runs);
        prop_assert!(more[1] - more[0] < high - low);
    }

    /// One outcome is at least as good as this one or it is worse; both ends together are the two-sided test.
    #[test]
    fn the_sign_test_splits_all_outcomes(wins in 0..3_000_u64, losses in 0..3_000_u64) {
        let (better, worse) = (sign_test(wins, losses), sign_test(losses + 1, wins.saturating_sub(1)));
        prop_assert!(wins == 0 || close(better + worse, 1.0), "{better} {worse}");
        prop_assert!(close((2.0 * better.min(sign_test(losses, wins))).min(1.0), mcnemar_exact(wins, losses)));
        prop_assert!(sign_test(wins + 1, losses) <= better + 1e-12);
    }

    #[test]
    fn intervals_hold_their_mean(items in items(), seed: u64) {
        let mean = mean(&items);
        for interval in [mean_interval, difference_interval] {
            let [low, high] = interval(&items, Some([0.0, 1.0]), seed);
            prop_assert!(0.0 <= low && low <= mean && mean <= high && high <= 1.0, "{low} {mean} {high}");
            prop_assert!(low < high);
        }
    }

    /// Which of two methods is called `a` does not matter.
    #[test]
    fn differences_are_mirrored(items in items(), seed: u64) {
        let turned: Vec<RunCluster> = items.iter().map(|item| RunCluster { sum: -item.sum, ..*item }).collect();
        let [low, high] = difference_interval(&items, Some([-1.0, 1.0]), seed);
        let [turned_low, turned_high] = difference_interval(&turned, Some([-1.0, 1.0]), seed);
        prop_assert!(close(low, -turned_high) && close(high, -turned_low));
    }

    #[test]
    fn permutation_is_a_symmetric_probability(differences in prop::collection::vec(-4..=4_i8, 0..30), seed: u64) {
        let differences: Vec<f64> = differences.into_iter().map(|d| f64::from(d) / 4.0).collect();
        let turned: Vec<f64> = differences.iter().map(|d| -d).collect();
        let p = permutation(&differences, seed);
        prop_assert!(0.0 < p && p <= 1.0);
        prop_assert_eq!(p, permutation(&turned, seed));
    }

    #[test]
    fn holm_keeps_the_order(p in prop::collection::vec(0.0..=1.0, 0..20)) {
        let adjusted = holm(&p);
        prop_assert_eq!(adjusted.len(), p.len());
        for (raw, own) in p.iter().zip(&adjusted) {
            prop_assert!(raw <= own && *own <= 1.0);
            for (other_raw, other) in p.iter().zip(&adjusted) {
                prop_assert!(raw > other_raw || own <= other);
            }
        }
    }

    /// Nothing panics, whatever it is given.
    #[test]
    fn strange_numbers_do_no_harm(sums in prop::collection::vec(any::<f64>(), 0..12), runs: u32, seed: u64) {
        let items: Vec<RunCluster> = sums.iter().map(|sum| RunCluster { sum: *sum, runs }).collect();
        mean_interval(&items, None, seed);
        difference_interval(&items, Some([-1.0, 1.0]), seed);
        permutation(&sums, seed);
        prop_assert_eq!(holm(&sums).len(), sums.len());
    }
}
