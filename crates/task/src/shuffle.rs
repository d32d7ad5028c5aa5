//! The permutation of `numpy.random.default_rng(seed).permutation(n)`.
//!
//! The multi-agent repositories pick their MMLU questions with it, so their subsets follow from a seed and a range.
//! It is seeding by hashing (O'Neill's `seed_seq` as in numpy's `SeedSequence`), the generator PCG64 (XSL-RR) and a
//! Fisher-Yates shuffle whose bounded draws mask and reject.

/// The numbers below `n` in the order numpy's generator with this seed shuffles them into.
pub(crate) fn permutation(seed: u32, n: usize) -> Vec<usize> {
    let mut random = Pcg64::new(seed);
    let mut order: Vec<usize> = (0..n).collect();
    for last in (1..n).rev() {
        order.swap(last, random.up_to(last));
    }
    order
}

struct Pcg64 {
    state: u128,
    increment: u128,
    /// The upper half of the last 64 bits, for the next draw of 32.
    half: Option<u32>,
}

impl Pcg64 {
    const MULTIPLIER: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;

    fn new(seed: u32) -> Self {
        let [a, b, c, d] = seed_words(seed);
        let join = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let mut random = Pcg64 { state: 0, increment: join(c, d) << 1 | 1, half: None };
        random.step();
        random.state = random.state.wrapping_add(join(a, b));
        random.step();
        random
    }

    fn step(&mut self) {
        self.state = self.state.wrapping_mul(Self::MULTIPLIER).wrapping_add(self.increment);
    }

    fn next_u32(&mut self) -> u32 {
        if let Some(half) = self.half.take() {
            return half;
        }
        self.step();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        let word = folded.rotate_right((self.state >> 122) as u32);
        self.half = Some((word >> 32) as u32);
        word as u32
    }

    /// A number in `0..=max`, for `max` from 1 and below 2³².
    fn up_to(&mut self, max: usize) -> usize {
        let mask = usize::MAX >> max.leading_zeros();
        loop {
            let draw = self.next_u32() as usize & mask;
            if draw <= max {
                return draw;
            }
        }
    }
}

fn seed_words(seed: u32) -> [u64; 4] {
    let mut hash = Hash { constant: 0x43b0_d7e5, multiplier: 0x931e_8875 };
    let mut pool = [seed, 0, 0, 0].map(|word| hash.next(word));
    for from in 0..4 {
        for to in (0..4).filter(|to| *to != from) {
            let mixed =
                pool[to].wrapping_mul(0xca01_f9dd).wrapping_sub(hash.next(pool[from]).wrapping_mul(0x4973_f715));
            pool[to] = mixed ^ mixed >> 16;
        }
    }
    let mut hash = Hash { constant: 0x8b51_f9dd, multiplier: 0x58f3_8ded };
    let words: [u32; 8] = std::array::from_fn(|index| hash.next(pool[index % 4]));
    std::array::from_fn(|index| u64::from(words[2 * index]) | u64::from(words[2 * index + 1]) << 32)
}

struct Hash {
    constant: u32,
    multiplier: u32,
}

impl Hash {
    fn next(&mut self, word: u32) -> u32 {
        let word = word ^ self.constant;
        self.constant = self.constant.wrapping_mul(self.multiplier);
        let word = word.wrapping_mul(self.constant);
        word ^ word >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions of the first questions in the published orders of MMLU's `dev` (285) and `val` (1,531).
    #[test]
    fn is_the_order_numpy_gives() {
        assert_eq!(permutation(888, 285)[..5], [116, 41, 247, 150, 35]);
        assert_eq!(permutation(888, 1531)[..5], [884, 1021, 475, 148, 871]);
    }

    #[test]
    fn holds_every_number_once() {
        for n in [0, 1, 2, 3, 4, 5, 63, 64, 65, 1000] {
            let mut order = permutation(888, n);
            order.sort_unstable();
            assert_eq!(order, (0..n).collect::<Vec<_>>());
        }
    }
}
