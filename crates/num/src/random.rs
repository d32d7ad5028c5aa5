//! Random bits that are the same on every machine and in every version.

/// SplitMix64 (G. L. Steele, D. Lea and C. H. Flood, OOPSLA 2014), whose state is one number and whose every seed is good.
///
/// Not [`lemon_spec::generate::Random`], which is the same but serves tests: a published interval should not move when they
/// need other draws.
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// A seed from names, so that a method's interval does not depend on which others there are. The names are told apart: no
/// two lists that differ are written the same.
pub fn seed_of(names: &[&str]) -> u64 {
    let bytes = names.iter().flat_map(|name| name.bytes().chain([0xff]));
    bytes.fold(0, |state, byte| Random::new(state ^ u64::from(byte)).next_u64())
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
    fn names_are_told_apart() {
        let lists: [&[&str]; 6] = [&[], &[""], &["a", "b"], &["ab"], &["b", "a"], &["a", "b", ""]];
        let seeds: std::collections::HashSet<u64> = lists.iter().map(|names| seed_of(names)).collect();
        assert_eq!(seeds.len(), lists.len());
    }
}
