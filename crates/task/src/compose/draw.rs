//! Draws that are the same on every machine.

/// SplitMix64: small, and every seed is good.
pub(super) struct Random(u64);

impl Random {
    /// The draws of one seed for one purpose.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut random = Random(seed);
        for byte in purpose.bytes() {
            random.0 = random.bits() ^ u64::from(byte);
        }
        random
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A position below `count`; 0 if there is none.
    pub fn below(&mut self, count: usize) -> usize {
        // The remainder is below `count`, hence a usize.
        if count == 0 { 0 } else { (self.bits() % count as u64) as usize }
    }

    /// True in so many of a hundred draws.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    /// So many of these, or all, in an order of no meaning.
    pub fn some<T: Clone>(&mut self, from: &[T], count: usize) -> Vec<T> {
        let mut left = from.to_vec();
        let count = count.min(left.len());
        (0..count).map(|_| left.swap_remove(self.below(left.len()))).collect()
    }
}
