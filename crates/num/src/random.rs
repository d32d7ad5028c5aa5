//! The generator of every random choice.

use crate::seed::{GAMMA, fnv1a_from};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;
use std::f64::consts::TAU;

/// A sequence of random numbers: SplitMix64 (G. L. Steele, D. Lea and C. H. Flood, OOPSLA 2014), whose state is one number
/// and whose every seed is good. Not for secrets.
///
/// The same seed gives the same sequence on every machine and in every version. Stored results depend on it.
#[derive(Debug, Clone)]
pub struct Random {
    generator: SplitMix64,
    bounds: Bounds,
}

/// How 64 bits become a number below a bound. The methods are equally good (off by at most `bound / 2⁵³`), and give
/// different numbers: a caller keeps to the one that its stored results were drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bounds {
    /// The remainder. A bound of 0 takes nothing from the sequence.
    #[default]
    Remainder,
    /// The upper half of the product with the bound.
    Product,
    /// The product of the bound with a [`uniform`](Random::uniform) number.
    Share,
}

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Random {
        Random { generator: SplitMix64::seed_from_u64(seed), bounds: Bounds::default() }
    }

    /// A sequence of its own for each seed and name.
    pub fn named(seed: u64, name: &str) -> Random {
        Random::new(fnv1a_from(seed, name.bytes()))
    }

    /// A sequence of its own for each pass over the same data.
    pub fn of_pass(seed: u64, pass: u64) -> Random {
        Random::new(seed ^ pass.wrapping_mul(GAMMA))
    }

    /// The same sequence with another way to keep numbers below a bound.
    pub fn with_bounds(self, bounds: Bounds) -> Random {
        Random { bounds, ..self }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// A number from 0 to 1, 1 excluded.
    pub fn uniform(&mut self) -> f64 {
        // The 53 bits that a float holds.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// A number from the standard normal distribution, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (TAU * self.uniform()).cos()
    }

    /// The next `count` normal numbers times `spread`, drawn on all cores. The sequence itself does not move on.
    pub fn normals(&self, count: usize, spread: f32) -> Vec<f32> {
        let state = u64::from_le_bytes(self.generator.state());
        // Each number takes two steps of the sequence.
        let from = |at: usize| Random::new(state.wrapping_add((2 * at as u64).wrapping_mul(GAMMA)));
        (0..count).into_par_iter().with_min_len(4_096).map(|at| from(at).normal() as f32 * spread).collect()
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        match self.bounds {
            Bounds::Remainder if bound == 0 => 0,
            // Each result is below `bound`, hence a usize.
            Bounds::Remainder => (self.next_u64() % bound as u64) as usize,
            Bounds::Product => ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize,
            Bounds::Share => ((self.uniform() * bound as f64) as usize).min(bound.saturating_sub(1)),
        }
    }

    /// A number from `low` to `high`, both included; `low` where `high` is less.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below((high.saturating_sub(low)).saturating_add(1))
    }

    /// The same for numbers that may be negative.
    pub fn within(&mut self, low: i64, high: i64) -> i64 {
        let count = high.checked_sub(low).and_then(|span| usize::try_from(span).ok()).map_or(1, |span| span + 1);
        low + self.below(count) as i64
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// True in so many of a hundred draws.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of the items; `None` of none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    /// A place in proportion to its weight; 0 where all weights are 0.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let sum: usize = weights.iter().map(|weight| *weight as usize).sum();
        let mut drawn = self.below(sum);
        for (index, weight) in weights.iter().enumerate() {
            match drawn.checked_sub(*weight as usize) {
                Some(rest) => drawn = rest,
                None => return index,
            }
        }
        0
    }

    /// So many of the items, or all, in random order.
    pub fn some<T: Clone>(&mut self, items: &[T], count: usize) -> Vec<T> {
        let mut left = items.to_vec();
        let count = count.min(left.len());
        (0..count).map(|_| left.swap_remove(self.below(left.len()))).collect()
    }

    /// Puts the items into random order, each order equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// The numbers below `count` in random order.
    pub fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        self.shuffle(&mut order);
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const BOUNDS: [Bounds; 3] = [Bounds::Remainder, Bounds::Product, Bounds::Share];

    #[test]
    fn the_sequence_is_the_published_one() {
        // The first outputs for the seed 1234567, which implementations in many languages are checked with.
        let mut random = Random::new(1_234_567);
        let first = [(); 3].map(|()| random.next_u64());
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    /// The generator that every crate had of its own before, step by step.
    #[test]
    fn the_sequence_is_the_one_of_earlier_versions() {
        for seed in [0, 1, 0x6c65_6d6f_6e21, u64::MAX] {
            let (mut state, mut random) = (seed, Random::new(seed));
            for _ in 0..1_000 {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                assert_eq!(random.next_u64(), mixed ^ (mixed >> 31));
            }
        }
    }

    #[test]
    fn orders_stay_as_they_are() {
        assert_eq!(Random::of_pass(7, 3).order(8), [7, 4, 6, 5, 1, 3, 0, 2]);
    }

    #[test]
    fn normals_are_the_sequence_entered_anywhere() {
        let mut random = Random::named(3, "weights");
        random.next_u64();
        let all = random.normals(10_000, 0.5);
        let one_by_one: Vec<f32> = (0..10_000).map(|_| random.normal() as f32 * 0.5).collect();
        assert_eq!(all, one_by_one);
    }

    #[test]
    fn chance_is_what_it_says() {
        let mut random = Random::new(2);
        let hits = (0..10_000).filter(|_| random.chance(0.3)).count();
        assert!((2_800..3_200).contains(&hits), "{hits}");
        assert!(!random.chance(0.0) && random.chance(1.0));
    }

    #[test]
    fn draws_have_the_moments_they_should() {
        const COUNT: usize = 20_000;
        // Within four standard errors of a mean of draws with this deviation.
        #[track_caller]
        fn check(draw: impl FnMut(usize) -> f64, expected: f64, deviation: f64) {
            let (found, error) = ((0..COUNT).map(draw).sum::<f64>() / COUNT as f64, deviation / (COUNT as f64).sqrt());
            assert!((found - expected).abs() < 4.0 * error, "{found} is not {expected} ± {error}");
        }
        let mut random = Random::new(7);
        check(|_| random.uniform(), 0.5, (1.0_f64 / 12.0).sqrt());
        check(|_| random.normal(), 0.0, 1.0);
        check(|_| random.normal().powi(2), 1.0, 2.0_f64.sqrt());
        check(|_| random.normal().powi(4), 3.0, 96.0_f64.sqrt());
        for bounds in BOUNDS {
            let mut random = Random::new(7).with_bounds(bounds);
            check(|_| random.below(5) as f64, 2.0, 2.0_f64.sqrt());
        }
    }

    #[test]
    fn a_shuffle_reaches_every_order() {
        for bounds in BOUNDS {
            let mut random = Random::new(1).with_bounds(bounds);
            let orders: BTreeSet<Vec<usize>> = (0..200).map(|_| random.order(3)).collect();
            assert_eq!(orders.len(), 6);
        }
    }

    #[test]
    fn a_range_is_reached_to_its_ends() {
        for bounds in BOUNDS {
            let mut random = Random::new(1).with_bounds(bounds);
            let draws: Vec<i64> = (0..1_000).map(|_| random.within(-3, 6)).collect();
            assert_eq!((draws.iter().min(), draws.iter().max()), (Some(&-3), Some(&6)));
            assert_eq!((random.within(5, 4), random.between(5, 4)), (5, 5));
        }
    }

    #[test]
    fn nothing_is_drawn_from_nothing() {
        for bounds in BOUNDS {
            let mut random = Random::new(0).with_bounds(bounds);
            assert_eq!((random.below(0), random.below(1), random.pick::<u8>(&[])), (0, 0, None));
            assert_eq!((random.weighted(&[]), random.weighted(&[0, 0])), (0, 0));
            assert!((0..100).all(|_| random.weighted(&[0, 2, 0]) == 1));
            assert_eq!(random.order(0), [0; 0]);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn draws_stay_in_their_bounds(seed: u64, kind in 0..3_usize, bound in 1..usize::MAX, low: i64, high: i64) {
            let mut random = Random::new(seed).with_bounds(BOUNDS[kind]);
            prop_assert!(random.below(bound) < bound);
            prop_assert!((0.0..1.0).contains(&random.uniform()));
            prop_assert!(random.normal().is_finite());
            // Differences of more than 63 bits are none: only `low` is drawn.
            let drawn = random.within(low, high);
            prop_assert!(low <= drawn && drawn <= high.max(low));
        }

        #[test]
        fn a_shuffle_keeps_every_item(seed: u64, kind in 0..3_usize, count in 0..50_usize) {
            let mut random = Random::new(seed).with_bounds(BOUNDS[kind]);
            let mut order = random.order(count);
            let mut some = random.some(&order, count / 2);
            prop_assert_eq!(some.len(), count / 2);
            order.sort();
            prop_assert_eq!(order, (0..count).collect::<Vec<_>>());
            some.sort();
            some.dedup();
            prop_assert_eq!(some.len(), count / 2);
        }

        #[test]
        fn the_same_seed_gives_the_same_draws(seed: u64, name in "[a-z]{0,5}") {
            let draws = |mut random: Random| [(); 4].map(|()| (random.next_u64(), random.normal().to_bits()));
            prop_assert_eq!(draws(Random::new(seed)), draws(Random::new(seed)));
            prop_assert_eq!(draws(Random::named(seed, &name)), draws(Random::named(seed, &name)));
        }
    }
}
