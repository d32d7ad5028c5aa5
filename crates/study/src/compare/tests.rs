use super::*;
use crate::row::EvalPoint;
use crate::samples::{row, studies};
use proptest::prelude::*;

/// The rows of two arms, by seed from 0.
fn two_arms(arm: &[f64], reference: &[f64]) -> Vec<StudyRow> {
    let of = |name: &'static str, rewards: &[f64]| {
        rewards.iter().zip(0..).map(|(reward, seed)| row(name, seed, *reward)).collect::<Vec<_>>()
    };
    [of("full", arm), of("plain", reference)].concat()
}

fn arm_difference(rows: &[StudyRow], reference: &str) -> ArmDifference {
    compare(rows, &[reference])[0].against[0].arms[0].clone()
}

fn near(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-9
}

#[test]
fn differences_are_those_computed_by_hand() {
    let check = |arm: &[f64], mean: f64, half: Option<f64>, p: f64| {
        let found = arm_difference(&two_arms(arm, &vec![1.0; arm.len()]), "plain").reward;
        assert!(near(found.estimate.mean.unwrap(), mean), "{found:?}");
        let width = found.estimate.interval.map(|[low, high]| (high - low) / 2.0);
        assert!(match (width, half) {
            (Some(width), Some(half)) => (width - half).abs() < 1e-6,
            (None, None) => true,
            _ => false,
        });
        assert!(near(found.p.unwrap(), p), "{found:?}");
        assert_eq!(found.holm, found.p);
    };
    // Differences 1, 2, 3: deviation 1, so a half width of 4.302653 / √3; two of eight signs are as far.
    check(&[2.0, 3.0, 4.0], 2.0, Some(2.484_137_7), 0.25);
    // Differences 2, −1: deviation 3/√2; |±2 ±1| ≥ 1 always.
    check(&[3.0, 0.0], 0.5, Some(12.706_204_7 * 1.5), 1.0);
    check(&[3.0], 2.0, None, 1.0);
    // Differences 1, 2, 3, −1: sums as far as 5 of 7 are 5, 5, 7 and their opposites … of 16 signs.
    check(&[2.0, 3.0, 4.0, 0.0], 1.25, Some(3.182_446_3 * 1.707_825_1 / 2.0), 6.0 / 16.0);
}

#[test]
fn arms_are_summed_up() {
    let rows = two_arms(&[2.0, 3.0, 4.0], &[1.0]);
    let comparison = &compare(&rows, &[])[0];
    let full = comparison.arm("full").unwrap();
    assert_eq!((full.seeds, full.reward.mean, full.credit_share), (3, Some(3.0), Some(0.1)));
    assert_eq!((full.steps.mean, full.worker_tokens.mean), (Some(40.0), Some(1_000.0)));
    assert_eq!(comparison.arm("plain").unwrap().reward.interval, None);
    assert!(comparison.arm("other").is_none() && comparison.against.is_empty());
}

#[test]
fn seeds_without_a_partner_are_left_out_and_counted() {
    let mut rows = two_arms(&[1.0, 2.0, 3.0], &[1.0, 1.0]);
    rows.push(row("plain", 7, 100.0));
    let found = arm_difference(&rows, "plain");
    assert_eq!((found.pairs, found.unpaired), (2, 2));
    assert_eq!(found.reward.estimate.mean, Some(0.5));
    // Not one pair.
    let found = arm_difference(&[row("full", 1, 1.0), row("plain", 2, 1.0)], "plain");
    assert_eq!((found.pairs, found.unpaired, found.reward), (0, 2, Difference::default()));
    assert_eq!((found.token_ratio, found.equal_steps), (None, None));
}

#[test]
fn a_run_that_stands_there_twice_counts_as_it_stands_there_last() {
    let mut rows = two_arms(&[5.0], &[1.0]);
    rows.push(row("full", 0, 2.0));
    assert_eq!(arm_difference(&rows, "plain").reward.estimate.mean, Some(1.0));
}

#[test]
fn studies_and_regimes_stay_apart() {
    let mut rows = two_arms(&[2.0], &[1.0]);
    rows.extend(["noise=10", "noise=9"].map(|regime| StudyRow { regime: regime.to_owned(), ..row("full", 0, 3.0) }));
    let found = compare(&rows, &["plain", "absent"]);
    let names: Vec<&str> = found.iter().map(|comparison| comparison.regime.as_str()).collect();
    assert_eq!(names, ["", "noise=9", "noise=10"]);
    assert_eq!(found.iter().map(|comparison| comparison.against.len()).collect::<Vec<_>>(), [1, 0, 0]);
    assert_eq!(compare(&[], &["plain"]), []);
}

/// A run that rises from 0 to 1 until `done` of 1,000 tokens, looked at every 10 of 40 steps.
fn rising(arm: &str, seed: u64, done: f64) -> StudyRow {
    let mut run = row(arm, seed, 1.0);
    run.curve = (0..=4)
        .map(|look| {
            let reward = (look as f64 * 250.0 / done).min(1.0);
            EvalPoint { step: 10 * look, worker_tokens: 250 * look, means: Means { reward, ..run.after } }
        })
        .collect();
    run
}

#[test]
fn tokens_to_reach_are_read_from_the_curves() {
    let check = |done: f64, expected: Option<f64>| {
        let pairs = (0..6).flat_map(|seed| [rising("full", seed, done), rising("plain", seed, 1_000.0)]);
        let found = arm_difference(&pairs.collect::<Vec<_>>(), "plain").token_ratio.unwrap();
        assert!(
            match (found.ratio, expected) {
                (Some(found), Some(expected)) => (found - expected).abs() < 1e-6,
                (None, None) => true,
                _ => false,
            },
            "{found:?}"
        );
        // All seeds are alike: redrawing them changes nothing.
        let ends = found.interval.unwrap();
        assert!(ends.iter().all(|end| end.is_some() == expected.is_some()), "{found:?}");
    };
    check(1_000.0, Some(1.0));
    check(500.0, Some(0.5));
    check(2_000.0, None);
    // A reference that learns nothing has no tokens to compare with.
    let flat = [row("full", 0, 1.0), row("plain", 0, 0.9)];
    assert_eq!(arm_difference(&flat, "plain").token_ratio, None);
}

#[test]
fn equal_steps_are_the_last_that_all_runs_have() {
    let mut rows = vec![rising("full", 0, 500.0), rising("plain", 0, 1_000.0)];
    rows[1].steps = 30;
    rows[1].curve.truncate(4);
    let found = arm_difference(&rows, "plain").equal_steps.unwrap();
    assert_eq!((found.step, found.reward.estimate.mean), (30, Some(0.25)));
    // Without looks at the same step there is nothing to compare.
    rows[1].steps = 31;
    rows[1].curve.clear();
    assert_eq!(arm_difference(&rows, "plain").equal_steps, None);
}

#[test]
fn mean_curves_go_as_far_as_all_runs() {
    let mut short = rising("full", 1, 1_000.0);
    short.steps = 20;
    short.curve.truncate(3);
    let comparison = &compare(&[rising("full", 0, 1_000.0), short], &[])[0];
    let curve = &comparison.arms[0].curve;
    let (first, last) = (curve.first().unwrap(), curve.last().unwrap());
    assert_eq!((first.worker_tokens, first.reward.mean), (0.0, Some(0.0)));
    assert_eq!((last.worker_tokens, last.reward.mean, last.reward.n), (500.0, Some(0.5), 2));
}

#[test]
fn holm_counts_the_arms_of_the_table() {
    for comparison in compare(&studies(), &["plain", "never"]) {
        for against in comparison.against {
            let mut tested: Vec<&Difference> =
                against.arms.iter().map(|arm_difference| &arm_difference.reward).collect();
            tested.sort_by(|left, right| left.p.unwrap().total_cmp(&right.p.unwrap()));
            let smallest = tested[0];
            assert!(near(smallest.holm.unwrap(), (smallest.p.unwrap() * tested.len() as f64).min(1.0)));
            assert!(tested.windows(2).all(|two| two[0].holm <= two[1].holm));
            assert!(tested.iter().all(|difference| difference.holm >= difference.p));
        }
    }
}

proptest! {
    #[test]
    fn swapping_arms_flips_the_sign(pairs in prop::collection::vec((0.0..2.0, 0.0..2.0), 1..24)) {
        let (arm, reference): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let rows = two_arms(&arm, &reference);
        let (prefetcher, back) = (arm_difference(&rows, "plain"), arm_difference(&rows, "full"));
        for (prefetcher, back) in [(prefetcher.reward, back.reward), (prefetcher.success, back.success), (prefetcher.tokens, back.tokens)] {
            prop_assert!(near(prefetcher.estimate.mean.unwrap(), -back.estimate.mean.unwrap()));
            if let (Some([low, high]), Some([other_low, other_high])) = (prefetcher.estimate.interval, back.estimate.interval) {
                prop_assert!((low + other_high).abs() < 1e-6 && (high + other_low).abs() < 1e-6);
            }
            prop_assert_eq!(prefetcher.p, back.p);
        }
    }

    #[test]
    fn a_constant_added_to_both_changes_nothing(
        pairs in prop::collection::vec((0.0..2.0, 0.0..2.0), 1..12),
        constant in -5.0..5.0,
    ) {
        let (arm, reference): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let shifted = |rewards: &[f64]| rewards.iter().map(|reward| reward + constant).collect::<Vec<_>>();
        let before = arm_difference(&two_arms(&arm, &reference), "plain").reward;
        let after = arm_difference(&two_arms(&shifted(&arm), &shifted(&reference)), "plain").reward;
        prop_assert!(near(before.estimate.mean.unwrap(), after.estimate.mean.unwrap()));
        prop_assert!(near(before.p.unwrap(), after.p.unwrap()));
    }

    #[test]
    fn p_is_never_below_what_so_many_pairs_can_show(arm in prop::collection::vec(0.0..2.0, 1..24)) {
        let found = arm_difference(&two_arms(&arm, &vec![1.0; arm.len()]), "plain").reward;
        let p = found.p.unwrap();
        prop_assert!((least_p(arm.len())..=1.0).contains(&p), "{p} of {}", arm.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn the_order_of_rows_does_not_matter(turn in 0_usize..100) {
        let mut rows = studies();
        rows.truncate(60);
        let before = compare(&rows, &["plain"]);
        rows.rotate_left(turn % 60);
        prop_assert_eq!(before, compare(&rows, &["plain"]));
    }
}
