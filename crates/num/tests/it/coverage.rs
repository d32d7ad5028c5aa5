//! Simulations: do intervals of 95 % hold the truth in 95 % of samples, and do tests err in 5 %?

use lemon_num::Random;
use lemon_num::stats::{RunCluster, difference_interval, mean_interval, permutation, wilson};

/// In how many of the samples the interval holds the truth.
fn coverage(samples: u32, truth: f64, mut interval: impl FnMut() -> [f64; 2]) -> f64 {
    let holds = |[low, high]: [f64; 2]| low - 1e-9 <= truth && truth <= high + 1e-9;
    f64::from((0..samples).map(|_| u32::from(holds(interval()))).sum::<u32>()) / f64::from(samples)
}

/// Every set-up is near 95 %, and their mean is nearer.
fn check(coverages: &[f64], each: std::ops::Range<f64>) {
    println!("{coverages:.3?}");
    let mean = coverages.iter().sum::<f64>() / coverages.len() as f64;
    assert!((0.935..0.97).contains(&mean), "on average {mean}");
    assert!(coverages.iter().all(|coverage| each.contains(coverage)), "{coverages:?}");
}

/// Not simulated: the probability of every outcome is known.
#[test]
fn wilson_covers() {
    let exact = |n: u64, p: f64| {
        let mut probability = (1.0 - p).powi(n as i32);
        let mut covered = 0.0;
        for right in 0..=n {
            let [low, high] = wilson(right, n);
            covered += if low <= p && p <= high { probability } else { 0.0 };
            probability *= (n - right) as f64 / (right + 1) as f64 * p / (1.0 - p);
        }
        covered
    };
    for n in [10, 40, 100, 200] {
        let coverages: Vec<f64> = (1..=90).map(|i| exact(n, 0.05 + f64::from(i) / 101.0)).collect();
        let mean = coverages.iter().sum::<f64>() / coverages.len() as f64;
        assert!((0.945..0.96).contains(&mean), "{n}: on average {mean}");
        assert!(coverages.iter().all(|coverage| *coverage > 0.9), "{n}: {coverages:.3?}");
    }
}

/// An item whose runs are all alike with the probability `alike`, and independent of each other otherwise.
fn item(random: &mut Random, alike: f64, runs: usize, mut run: impl FnMut(&mut Random) -> f64) -> RunCluster {
    if random.uniform() < alike {
        return [run(random)].into_iter().cycle().take(runs).collect();
    }
    (0..runs).map(|_| run(random)).collect()
}

#[test]
fn the_bootstrap_covers_shares() {
    let mut random = Random::new(2);
    let mut coverages = Vec::new();
    for (n, runs, p, alike) in [
        (40, 3, 0.5, 0.0),
        (40, 3, 0.8, 0.5),
        (60, 5, 0.7, 0.8),
        (60, 2, 0.9, 0.3),
        (100, 3, 0.9, 0.5),
        (100, 3, 0.3, 0.0),
    ] {
        coverages.push(coverage(400, p, || {
            let right = |random: &mut Random| f64::from(u8::from(random.uniform() < p));
            let items: Vec<RunCluster> = (0..n).map(|_| item(&mut random, alike, runs, right)).collect();
            mean_interval(&items, Some([0.0, 1.0]), random.next_u64())
        }));
    }
    check(&coverages, 0.91..0.985);
}

#[test]
fn the_bootstrap_covers_differences() {
    let mut random = Random::new(3);
    let mut coverages = Vec::new();
    for (n, runs, a, b, alike) in [
        (40, 1, 0.6, 0.6, 0.0),
        (40, 3, 0.8, 0.6, 0.5),
        (60, 3, 0.5, 0.5, 0.0),
        (100, 1, 0.9, 0.85, 0.0),
        (100, 3, 0.7, 0.5, 0.8),
        (100, 2, 0.85, 0.85, 0.3),
    ] {
        coverages.push(coverage(400, a - b, || {
            // Half of the time, both methods have the same noise.
            let difference = |random: &mut Random| {
                let noise = random.uniform();
                let other = if random.uniform() < 0.5 { noise } else { random.uniform() };
                f64::from(u8::from(noise < a)) - f64::from(u8::from(other < b))
            };
            let items: Vec<RunCluster> = (0..n).map(|_| item(&mut random, alike, runs, difference)).collect();
            difference_interval(&items, Some([-1.0, 1.0]), random.next_u64())
        }));
    }
    check(&coverages, 0.91..0.985);
}

#[test]
fn the_bootstrap_covers_tokens() {
    let mut random = Random::new(4);
    let mut coverages = Vec::new();
    for (n, runs, long) in [(60, 1, 0.15), (60, 3, 0.3), (150, 3, 0.1), (100, 2, 0.5)] {
        // Most runs take 500 to 1,500 tokens, some ten times as many.
        coverages.push(coverage(400, 1_000.0 * (1.0 + 9.0 * long), || {
            let tokens = |random: &mut Random| {
                let size = if random.uniform() < long { 10_000.0 } else { 1_000.0 };
                size * (0.5 + random.uniform())
            };
            let items: Vec<RunCluster> = (0..n).map(|_| item(&mut random, 0.7, runs, tokens)).collect();
            mean_interval(&items, None, random.next_u64())
        }));
    }
    check(&coverages, 0.91..0.985);
}

#[test]
fn the_permutation_test_errs_as_often_as_it_says() {
    let mut random = Random::new(5);
    let samples = 600;
    let mut rejected = [0, 0];
    for _ in 0..samples {
        // The differences of two equal methods with four seeds, on 12 items (every sign tried) and on 30 (drawn).
        for (n, rejected) in [12, 30].into_iter().zip(&mut rejected) {
            let toss = |random: &mut Random| f64::from(random.below(2) as u32);
            let mut run_pair = || toss(&mut random) - toss(&mut random);
            let differences: Vec<f64> = (0..n).map(|_| (0..4).map(|_| run_pair()).sum::<f64>() / 4.0).collect();
            *rejected += u32::from(permutation(&differences, random.next_u64()) <= 0.05);
        }
    }
    let rates = rejected.map(|count| f64::from(count) / f64::from(samples));
    println!("{rates:.3?}");
    assert!(rates.iter().all(|rate| (0.015..0.07).contains(rate)), "{rates:?}");
}
