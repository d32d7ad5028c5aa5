//! Randomness from a seed: the same seed, the same draws, on every machine.

/// The generator SplitMix64. Not for secrets.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Starts at a seed. Seeds next to each other give unrelated draws.
    pub fn new(seed: u64) -> Self {
        Random(mix(seed ^ 0x6c65_6d6f_6e21))
    }

    /// A draw from all 64-bit numbers.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A draw from `0..count`; zero when there is nothing to draw from.
    pub fn below(&mut self, count: usize) -> usize {
        // The high half of a product is uniform to within count / 2^64.
        ((u128::from(self.bits()) * count as u128) >> 64) as usize
    }

    /// A draw from `low..=high`; `low` when that is empty.
    pub fn within(&mut self, low: i64, high: i64) -> i64 {
        let count = high.checked_sub(low).and_then(|span| usize::try_from(span).ok()).map_or(1, |span| span + 1);
        low + self.below(count) as i64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.bits() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// One of several. `None` of none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    /// An index drawn in proportion to its weight; zero when all weights are zero.
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

    /// Puts a list into random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }
}

/// A number that depends on every byte of a text and on nothing else: unlike the standard hasher, stable over versions.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| mix(sum ^ u64::from(byte)))
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_in_range_and_reach_its_ends() {
        let mut random = Random::new(1);
        let draws: Vec<i64> = (0..1000).map(|_| random.within(3, 6)).collect();
        assert_eq!((draws.iter().min(), draws.iter().max()), (Some(&3), Some(&6)));
        assert_eq!(random.within(5, 4), 5);
        assert_eq!(random.pick::<u8>(&[]), None);
        assert_eq!(random.weighted(&[0, 0]), 0);
        assert!((0..100).all(|_| random.weighted(&[0, 2, 0]) == 1));
    }

    #[test]
    fn chance_is_what_it_says() {
        let mut random = Random::new(2);
        let hits = (0..10_000).filter(|_| random.chance(0.3)).count();
        assert!((2_800..3_200).contains(&hits), "{hits}");
        assert!(!random.chance(0.0) && random.chance(1.0));
    }
}
