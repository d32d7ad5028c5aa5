use super::*;
use proptest::prelude::*;

fn paired(deltas: &[f64]) -> Paired {
    let mut paired = Paired::default();
    deltas.iter().for_each(|delta| paired.push(*delta));
    paired
}

fn close(got: f64, expected: f64) -> bool {
    (got - expected).abs() <= 1e-9 * (1.0 + expected.abs())
}

/// Checks mean, variance and share of zeros.
fn check(deltas: &[f64], mean: Option<f64>, variance: Option<f64>, zeros: Option<f64>) {
    let paired = paired(deltas);
    let same = |got: Option<f64>, expected: Option<f64>| match (got, expected) {
        (Some(got), Some(expected)) => close(got, expected),
        (got, expected) => got == expected,
    };
    assert!(same(paired.mean(), mean), "{deltas:?}: {:?}", paired.mean());
    assert!(same(paired.variance(), variance), "{deltas:?}: {:?}", paired.variance());
    assert!(same(paired.zeros(), zeros), "{deltas:?}: {:?}", paired.zeros());
}

#[test]
fn what_is_not_measured_is_not_zero() {
    check(&[], None, None, None);
    check(&[f64::NAN, f64::INFINITY], None, None, None);
    check(&[0.0], Some(0.0), None, Some(1.0));
    check(&[0.0, -0.0], Some(0.0), Some(0.0), Some(1.0));
    check(&[1.0, -1.0, 0.0, f64::NAN], Some(0.0), Some(1.0), Some(1.0 / 3.0));
    check(&[2.0, 4.0], Some(3.0), Some(2.0), Some(0.0));
    assert_eq!(paired(&[0.5]).standard_error(), None);
    assert_eq!(paired(&[0.5]).interval(), None);
}

#[test]
fn the_interval_is_students() {
    // Mean 2, standard error √(1/3), 2 degrees of freedom: half of it is 4.30265 · 0.57735.
    let [low, high] = paired(&[1.0, 2.0, 3.0]).interval().unwrap();
    assert!((high - 2.0 - 2.484_138).abs() < 1e-5, "{high}");
    assert!(close(high - 2.0, 2.0 - low));
}

#[test]
fn equal_differences_leave_room_for_others() {
    assert_eq!(paired(&[0.0; 30]).interval(), Some([0.0, 0.0]));
    assert_eq!(paired(&[0.0; 30]).interval_within(1.0), Some([-0.1, 0.1]));
    assert_eq!(paired(&[0.0; 2]).interval_within(1.0), Some([-1.0, 1.0]));
    assert_eq!(paired(&[1.0; 30]).interval_within(1.0), Some([0.8, 1.0]));
    assert_eq!(paired(&[1.0]).interval_within(1.0), None);
    let clipped = paired(&[1.0, 1.0, 1.0, 0.0]).interval_within(1.0).unwrap();
    assert_eq!(clipped[1], 1.0);
}

#[test]
fn seeds_of_a_task_are_one_measurement() {
    let mut clustered = ClusteredPaired::default();
    for (task, delta) in [(0, 1.0), (0, 1.0), (0, 1.0), (1, 0.0), (1, f64::NAN), (2, f64::NAN)] {
        clustered.push(task, delta);
    }
    assert_eq!((clustered.tasks(), clustered.pairs()), (2, 4));
    assert_eq!(clustered.mean(), Some(0.5));
    assert_eq!(clustered.standard_error(), Some(0.5));
    assert_eq!(clustered.zeros(), Some(0.25));
    assert_eq!(clustered.interval(), paired(&[1.0, 0.0]).interval());
}

#[test]
fn estimates_survive_being_written_and_read() {
    let mut clustered = ClusteredPaired::default();
    [(3, 0.25), (3, 0.5), (11, -1.0)].into_iter().for_each(|(task, delta)| clustered.push(task, delta));
    let text = serde_json::to_string(&clustered).unwrap();
    assert_eq!(serde_json::from_str::<ClusteredPaired>(&text).unwrap(), clustered);
}

fn deltas() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(prop_oneof![Just(0.0), Just(1.0), Just(-1.0), -100.0..100.0], 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn adding_one_by_one_is_adding_all_at_once(deltas in deltas()) {
        let n = deltas.len() as f64;
        let mean = deltas.iter().sum::<f64>() / n;
        let squares: f64 = deltas.iter().map(|delta| (delta - mean).powi(2)).sum();
        let paired = paired(&deltas);
        prop_assert!(paired.mean().is_none_or(|got| close(got, mean)));
        prop_assert!(paired.variance().is_none_or(|got| close(got, squares / (n - 1.0))));
        prop_assert_eq!(paired.mean().is_some(), !deltas.is_empty());
        prop_assert_eq!(paired.variance().is_some(), deltas.len() > 1);
        prop_assert!(close(paired.sum_of_squares(), deltas.iter().map(|delta| delta * delta).sum()));
    }

    #[test]
    fn merging_is_adding_one_after_another(left in deltas(), right in deltas()) {
        let mut merged = paired(&left);
        merged.merge(&paired(&right));
        let whole = paired(&[left, right].concat());
        prop_assert_eq!((merged.n(), merged.nonzero()), (whole.n(), whole.nonzero()));
        prop_assert!(close(merged.mean, whole.mean) && close(merged.squares, whole.squares));
    }

    #[test]
    fn one_pair_a_task_is_the_plain_estimate(deltas in deltas()) {
        let mut clustered = ClusteredPaired::default();
        deltas.iter().enumerate().for_each(|(task, delta)| clustered.push(task, *delta));
        prop_assert_eq!(clustered.over_tasks(), paired(&deltas));
    }

    #[test]
    fn repeating_a_pair_never_makes_an_estimate_surer(deltas in deltas(), repeats in 1_usize..5) {
        let (mut once, mut often) = (ClusteredPaired::default(), ClusteredPaired::default());
        for (task, delta) in deltas.iter().enumerate() {
            once.push(task, *delta);
            (0..repeats).for_each(|_| often.push(task, *delta));
        }
        match (once.standard_error(), often.standard_error()) {
            (Some(once), Some(often)) => prop_assert!(close(once, often)),
            (once, often) => prop_assert_eq!(once, often),
        }
    }
}

/// The interval covers the truth in about 95 of 100 samples of the kind it is made for.
#[test]
fn intervals_cover_the_truth() {
    let mut random = lemon_num::Random::new(5);
    let (samples, size, truth) = (4_000, 12, 0.25);
    let covers = (0..samples).filter(|_| {
        // Sums of twelve uniforms are nearly normal.
        let draws: Vec<f64> = (0..size).map(|_| truth + (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0).collect();
        let [low, high] = paired(&draws).interval().unwrap();
        (low..=high).contains(&truth)
    });
    let share = covers.count() as f64 / f64::from(samples);
    assert!((0.94..=0.96).contains(&share), "{share}");
}
