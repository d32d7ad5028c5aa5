//! Seeds from names, and the hashes they are made of. Each depends on its arguments alone, on every machine and in every
//! version. None is for secrets.
//!
//! Every derivation is part of what stored results depend on: another one would give other draws for the same seed.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// What the state of SplitMix64 grows by at each step.
pub(crate) const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// FNV-1a begins here,
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
/// and multiplies with this.
const PRIME: u64 = 0x0100_0000_01b3;

/// The first output of SplitMix64 for a seed: spreads any number, small ones included, over all 64 bits. No two seeds give
/// the same.
pub fn splitmix(seed: u64) -> u64 {
    SplitMix64::seed_from_u64(seed).next_u64()
}

/// The output function of SplitMix64 alone, without the step that precedes it.
pub fn mix(bits: u64) -> u64 {
    splitmix(bits.wrapping_sub(GAMMA))
}

/// The 64-bit FNV-1a hash. Usually of bytes; numbers of more bits count as one byte each.
pub fn fnv1a<T: Into<u64>>(items: impl IntoIterator<Item = T>) -> u64 {
    fnv1a_from(0, items)
}

/// FNV-1a with a seed: another hash for each. The seed 0 is [`fnv1a`].
pub fn fnv1a_from<T: Into<u64>>(seed: u64, items: impl IntoIterator<Item = T>) -> u64 {
    items.into_iter().fold(seed ^ OFFSET, |hash, item| (hash ^ item.into()).wrapping_mul(PRIME))
}

/// A seed from names. Lists that differ give seeds that differ: where one name ends and the next begins counts.
pub fn seed_of(names: &[&str]) -> u64 {
    absorb(0, names)
}

/// A seed from another seed and words, by SplitMix64.
pub fn mixed_seed(seed: u64, words: &[&str]) -> u64 {
    splitmix(absorb(seed, words))
}

/// A seed from another seed and parts, by BLAKE3.
pub fn hashed_seed(seed: u64, parts: &[&str]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    u64::from_le_bytes(first)
}

/// No name contains the byte 0xff, which ends each.
fn absorb(seed: u64, names: &[&str]) -> u64 {
    let bytes = names.iter().flat_map(|name| name.bytes().chain([0xff]));
    bytes.fold(seed, |state, byte| splitmix(state ^ u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// As they were when each crate had its own: stored results depend on them.
    #[test]
    fn derivations_stay_as_they_are() {
        assert_eq!(splitmix(1_234_567), 6_457_827_717_110_365_317);
        assert_eq!(hashed_seed(1, &["a", "b"]), 0x0385_c60f_6da5_2208);
        assert_eq!(seed_of(&["a", "b"]), 0x2a54_4a51_3d14_eb29);
        assert_eq!(mixed_seed(7, &["lesson", "0"]), 0x7c05_a166_48b1_721d);
        assert_eq!(mix(7), 0x12ae_3023_7b17_df14);
        assert_eq!(fnv1a_from(3, "name".bytes()), 0x1f67_3da2_cea4_0245);
        // From the FNV reference code.
        assert_eq!(fnv1a("foobar".bytes()), 0x8594_4171_f739_67e8);
        assert_eq!(fnv1a([0_u8; 0]), 0xcbf2_9ce4_8422_2325);
    }

    #[test]
    fn names_are_told_apart() {
        let lists: [&[&str]; 6] = [&[], &[""], &["a", "b"], &["ab"], &["b", "a"], &["a", "b", ""]];
        for derive in [seed_of, |names: &[&str]| mixed_seed(3, names), |names: &[&str]| hashed_seed(3, names)] {
            let seeds: HashSet<u64> = lists.iter().map(|names| derive(names)).collect();
            assert_eq!(seeds.len(), lists.len());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn names_with_the_same_letters_give_other_seeds(text in "[a-z]{2,12}", cut in 1..11_usize, seed: u64) {
            let (left, right) = text.split_at(cut.min(text.len() - 1));
            prop_assert_ne!(seed_of(&[&text]), seed_of(&[left, right]));
            prop_assert_ne!(mixed_seed(seed, &[&text]), mixed_seed(seed, &[left, right]));
            prop_assert_ne!(hashed_seed(seed, &[&text]), hashed_seed(seed, &[left, right]));
        }

        #[test]
        fn mixing_is_a_step_less(seed: u64) {
            prop_assert_eq!(mix(seed.wrapping_add(GAMMA)), splitmix(seed));
        }
    }
}
