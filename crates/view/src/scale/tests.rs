use super::*;
use proptest::prelude::*;

const ANY: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

fn labels(scale: &Scale, most: f64, write: fn(f64, f64) -> String) -> String {
    scale.ticks(most).iter().map(|tick| write(tick.value, tick.step)).collect::<Vec<_>>().join(" ")
}

#[test]
fn ticks_are_round_and_written_as_short_as_can_be() {
    let check = |values: &[f64], bounds, write, expected: &str| {
        let scale = Scale::within(values.iter().copied(), bounds, (160.0, 0.0)).unwrap();
        assert_eq!(labels(&scale, 160.0 / 24.0, write), expected, "{values:?}");
    };
    let share = (0.0, 1.0);
    check(&[0.43, 0.91], ANY, plain, "0.5 0.6 0.7 0.8 0.9");
    check(&[0.43, 0.91], share, percent, "50 % 60 % 70 % 80 % 90 %");
    check(&[0.951, 0.958], share, percent, "94 % 95 % 96 % 97 %");
    check(&[130.0, 1900.0], ANY, plain, "500 1,000 1,500 2,000");
    check(&[12_000.0, 61_000.0], ANY, plain, "10k 20k 30k 40k 50k 60k");
    check(&[1.2e6, 3.4e6], ANY, plain, "1.5M 2M 2.5M 3M 3.5M");
    check(&[10_150.0, 10_151.0], ANY, plain, "10k 10.1k 10.2k 10.3k");
    check(&[1e-5, 1e-4], ANY, plain, "2e-5 4e-5 6e-5 8e-5 1.0e-4");
    check(&[-0.3, 0.4], ANY, plain, "−0.2 0 0.2 0.4");
    check(&[1e12, 3e12], ANY, plain, "1.0e12 1.5e12 2.0e12 2.5e12 3.0e12");
    // One value, or always the same.
    check(&[0.5], ANY, plain, "0.40 0.45 0.50 0.55 0.60");
    check(&[1.0; 9], share, percent, "75 % 80 % 85 % 90 % 95 % 100 %");
    check(&[0.0, 0.0], share, percent, "0 % 10 % 20 % 30 % 40 % 50 %");
    check(&[0.0], ANY, plain, "−0.4 −0.2 0 0.2 0.4");
    // What is no number has no place.
    check(&[f64::NAN, 0.2, f64::INFINITY, 0.8], ANY, plain, "0.2 0.4 0.6 0.8");
    for none in [&[][..], &[f64::NAN], &[f64::INFINITY, f64::NEG_INFINITY]] {
        assert!(Scale::within(none.iter().copied(), ANY, (160.0, 0.0)).is_none());
        assert!(Scale::log_within(none.iter().copied(), (1e-3, 1e3), (160.0, 0.0)).is_none());
    }
}

#[test]
fn ticks_of_documents_are_round() {
    let check = |values: [f64; 2], most, expected: &[&str]| {
        let ticks = Scale::exactly(values, (0.0, 100.0)).ticks(most);
        assert_eq!(ticks.iter().map(|tick| formal(tick.value, tick.step)).collect::<Vec<_>>(), expected);
    };
    check([-0.021, 0.034], 6.0, &["−0.02", "−0.01", "0.00", "0.01", "0.02", "0.03"]);
    check([0.0, 1.0], 6.0, &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    check([0.0, 20.4e6], 5.0, &["0", "5 M", "10 M", "15 M", "20 M"]);
    check([0.0, 3_000.0], 4.0, &["0", "1000", "2000", "3000"]);
    check([f64::MIN, f64::MAX], 4.0, &[]);
}

#[test]
fn ticks_of_a_domain_are_round() {
    let check = |domain, most, expected: &[f64]| {
        let ticks = ticks(domain, most);
        assert_eq!(ticks.len(), expected.len(), "{ticks:?}");
        assert!(ticks.iter().zip(expected).all(|((tick, _), expected)| (tick - expected).abs() < 1e-9), "{ticks:?}");
    };
    check((0.43, 0.91), 6.0, &[0.5, 0.6, 0.7, 0.8, 0.9]);
    check((0.0, 1.0), 6.0, &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
    check((130.0, 1900.0), 5.0, &[500.0, 1000.0, 1500.0]);
    check((3.0, 3.0), 5.0, &[]);
    check((0.0, f64::INFINITY), 5.0, &[]);
    assert_eq!(log_ticks((80.0, 3000.0), 8.0), [100.0, 200.0, 500.0, 1000.0, 2000.0]);
    assert_eq!(log_ticks((80.0, 90_000.0), 8.0), [100.0, 1000.0, 10_000.0]);
}

#[test]
fn logarithmic_ticks() {
    let check = |values: &[f64], expected: &str| {
        let scale = Scale::log_within(values.iter().copied(), (1e-3, 1e3), (60.0, 0.0)).unwrap();
        assert_eq!(labels(&scale, 8.0, plain), expected, "{values:?}");
    };
    check(&[1.0], "1");
    check(&[0.3, 4.0], "0.5 1 2 5");
    check(&[0.02, 7.0], "0.1 1");
    check(&[0.02, 70.0], "0.1 1 10");
    check(&[-1.0, 1e9], "0.01 1 100");
}

#[test]
fn steps() {
    let check = |ends, expected: &str, middle: f64| {
        let scale = Scale::steps(ends, (0.0, 100.0));
        assert_eq!(labels(&scale, 4.0, plain), expected);
        assert_eq!(scale.at(middle), 50.0);
    };
    check((0.0, 200.0), "0 50 100 150 200", 100.0);
    check((1.0, 3.0), "1 2 3", 2.0);
    check((0.0, 0.0), "−1 0 1", 0.0);
    check((0.0, 20_000.0), "0 5,000 10k 15k 20k", 10_000.0);
}

#[test]
fn what_lies_outside_is_drawn_at_the_edge() {
    let scale = Scale::within([0.0, 1.0], (0.0, 1.0), (160.0, 0.0)).unwrap();
    let check = |value, expected| assert_eq!(scale.at(value), expected, "{value}");
    check(0.0, 160.0);
    check(0.25, 120.0);
    check(7.0, 0.0);
    check(f64::NEG_INFINITY, 160.0);
    check(f64::NAN, 80.0);
}

#[test]
fn large_numbers_are_short() {
    let check = |value, expected: &str| assert_eq!(large(value), expected);
    check(0.0, "0");
    check(9_999.0, "9,999");
    check(12_340.0, "12.3 k");
    check(999_960.0, "1 M");
    check(2.5e9, "2.5 G");
    check(f64::NAN, "–");
}

proptest! {
    #[test]
    fn every_value_has_a_pixel(values in prop::collection::vec(any::<f64>(), 1..8), value: f64) {
        let scales = [
            Scale::within(values.iter().copied(), ANY, (160.0, 0.0)),
            Scale::within(values.iter().copied(), (0.0, 1.0), (160.0, 0.0)),
            Scale::log_within(values.iter().copied(), (1e-3, 1e3), (160.0, 0.0)),
        ];
        for scale in scales.into_iter().flatten() {
            prop_assert!((0.0..=160.0).contains(&scale.at(value)));
            let ticks = scale.ticks(8.0);
            prop_assert!(ticks.len() <= 9, "{:?}", ticks);
            for tick in ticks {
                prop_assert!(plain(tick.value, tick.step).len() < 20);
            }
        }
    }

    #[test]
    fn every_value_has_a_pixel_in_documents(values in prop::collection::vec(prop::num::f64::ANY, 0..6), value: f64) {
        for scale in [Scale::exactly(values.clone(), (10.0, 90.0)), Scale::around(values, (10.0, 90.0))] {
            prop_assert!((10.0..=90.0).contains(&scale.at(value)));
            prop_assert!(scale.ticks(6.0).len() <= 7);
        }
    }

    #[test]
    fn ticks_stay_in_their_domain(low in -1e6..1e6, span in 1e-6..1e6, most in 2.0..12.0) {
        let ticks = ticks((low, low + span), most);
        prop_assert!(ticks.len() <= most as usize + 1);
        prop_assert!(ticks.iter().all(|(tick, _)| (low - span * 1e-3..=low + span * 1.001).contains(tick)));
    }

    #[test]
    fn no_two_ticks_are_written_alike(low in 0.0..1e5, span in 1e-3..1e5) {
        let scale = Scale::within([low, low + span], ANY, (160.0, 0.0)).unwrap();
        let mut labels: Vec<String> = scale.ticks(6.0).iter().map(|tick| plain(tick.value, tick.step)).collect();
        let count = labels.len();
        labels.dedup();
        prop_assert_eq!(labels.len(), count);
    }
}
