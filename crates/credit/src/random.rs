//! Random bits that are the same on every machine and in every version.

/// SplitMix64 (G. L. Steele, D. Lea and C. H. Flood, OOPSLA 2014).
///
/// Not [`lemon_spec::generate::Random`], which is the same but serves tests: what is proposed should not change when they
/// need other draws.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The bias towards small numbers is below `bound / 2⁶⁴`. The result is below `bound`, hence a usize.
        if bound == 0 { 0 } else { (self.next_u64() % bound as u64) as usize }
    }

    /// A number from 0 to 1, 1 excluded.
    pub fn unit(&mut self) -> f64 {
        // The 53 bits that a float holds.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Any order of the items, each equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // The first outputs for the seed 1234567, which implementations in many languages are checked with.
        let mut random = Random::new(1_234_567);
        let first = [(); 3].map(|()| random.next_u64());
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn draws_stay_in_their_bounds() {
        let mut random = Random::new(7);
        assert_eq!(random.below(0), 0);
        for bound in 1..200 {
            assert!(random.below(bound) < bound);
            assert!((0.0..1.0).contains(&random.unit()));
        }
    }

    #[test]
    fn a_shuffle_keeps_every_item_and_reaches_every_order() {
        let mut random = Random::new(1);
        let mut orders = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut items = [1, 2, 3];
            random.shuffle(&mut items);
            orders.insert(items);
        }
        assert_eq!(orders.len(), 6);
        assert!(orders.iter().all(|order| order.iter().sum::<i32>() == 6));
    }
}
