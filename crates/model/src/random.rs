//! Random numbers that are the same on every machine.

use rayon::prelude::*;

/// SplitMix64: a sequence of its own for each seed.
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A sequence of its own for each seed and name.
    pub fn named(seed: u64, name: &str) -> Random {
        // FNV-1a: any spreading of names over seeds will do.
        let spread = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Random(name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, spread))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 (included) to 1 (not).
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// So many normal numbers of a spread, by Box and Muller. The sequence can be entered anywhere, so that a model of
    /// billions is drawn on all cores at once.
    pub fn normals(&self, count: usize, spread: f32) -> Vec<f32> {
        let one = |at: usize| {
            // Two steps of the sequence for each number.
            let mut here = Random(self.0.wrapping_add((2 * at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            let radius = (-2.0 * (1.0 - here.uniform()).ln()).sqrt();
            (radius * (std::f64::consts::TAU * here.uniform()).cos()) as f32 * spread
        };
        (0..count).into_par_iter().with_min_len(4_096).map(one).collect()
    }
}
