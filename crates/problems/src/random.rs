//! Where draws come from: the same seed, the same draws.

use lemon_num::{Bounds, Random, mix};

/// The draws of a seed. Seeds next to each other give unrelated draws.
pub fn seeded(seed: u64) -> Random {
    Random::new(mix(seed ^ 0x6c65_6d6f_6e21)).with_bounds(Bounds::Product)
}

/// A number that depends on every byte of a text and on nothing else: unlike the standard hasher, stable over versions.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| mix(sum ^ u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_as_they_are() {
        let mut random = seeded(1);
        let first = [(); 3].map(|()| random.next_u64());
        assert_eq!(first, [13_526_868_484_064_272_751, 14_666_334_034_752_474_260, 7_557_619_433_295_278_411]);
    }

    #[test]
    fn draws_stay_in_range_and_reach_its_ends() {
        let mut random = seeded(1);
        let draws: Vec<i64> = (0..1000).map(|_| random.within(3, 6)).collect();
        assert_eq!((draws.iter().min(), draws.iter().max()), (Some(&3), Some(&6)));
    }
}
