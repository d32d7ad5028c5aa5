//! The Gumbel-max trick: every token gets Gumbel noise, and the largest sum of logit and noise wins. That samples from the
//! softmax. Two draws with the same key use common random numbers: from nearly the same distribution they nearly always draw
//! the same token.

use super::elementwise::multiversion;
use lemon_model::simd;
use lemon_num::splitmix;

/// The seed of the noise of one draw.
#[derive(Clone, Copy)]
pub(crate) struct Key([u32; 2]);

impl Key {
    /// The key of one position of a completion.
    pub(crate) fn new(seed: u64, position: usize) -> Key {
        let bits = splitmix(splitmix(seed) ^ position as u64);
        Key([bits as u32, (bits >> 32) as u32])
    }

    /// 32 random bits for a token, computed in 32-bit words, which compilers turn into vector instructions.
    #[inline(always)]
    fn bits(self, token: u32) -> u32 {
        let mix = |bits: u32, factor: u32, shift: u32| (bits ^ (bits >> shift)).wrapping_mul(factor);
        let bits = mix(token.wrapping_mul(0x9e37_79b9).wrapping_add(self.0[0]), 0x21f0_aaad, 16);
        let bits = mix(bits ^ self.0[1], 0x735a_2d97, 15);
        let bits = mix(bits, 0x85eb_ca6b, 15);
        bits ^ (bits >> 16)
    }

    /// The noise of a token.
    #[inline(always)]
    pub(crate) fn noise(self, token: u32) -> f64 {
        let uniform = (f64::from(self.bits(token)) + 0.5) / 4_294_967_296.0;
        -(-(-uniform).ln_1p()).ln()
    }
}

multiversion! {
    /// Draws a token from the softmax of `logits · inverse`; `most` is the largest logit.
    pub(crate) fn draw(logits: &[f32], most: f32, inverse: f32, key: Key) -> u32 {
        const MOST: usize = 256;
        let (mut best, mut token, mut reach) = (f64::NEG_INFINITY, 0, f32::INFINITY);
        let (mut margins, mut start) = ([0f32; MOST], 0);
        while start < logits.len() {
            // Chunks grow: early on the best value is low and many tokens pass the test below; later chunks are long enough
            // for wide registers.
            let end = (start + start.clamp(16, MOST)).min(logits.len());
            let (logits, first) = (&logits[start..end], start as u32);
            let margins = &mut margins[..logits.len()];
            start = end;
            // Noise above g needs a uniform number below e^-g. This test is quick for many tokens at once and few pass; only
            // for those the noise itself is computed.
            for ((margin, logit), token) in margins.iter_mut().zip(logits).zip(first..) {
                let uniform = (key.bits(token) >> 8) as i32 as f32 / 16_777_216.0;
                *margin = simd::exp((logit - most) * inverse) * reach - uniform;
            }
            if simd::largest(margins) <= 0.0 {
                continue;
            }
            for ((_, logit), at) in margins.iter().zip(logits).zip(first..).filter(|((margin, _), _)| **margin > 0.0) {
                let value = f64::from((logit - most) * inverse) + key.noise(at);
                if value > best {
                    (best, token) = (value, at);
                    // The factor allows for the rounding of the test above.
                    reach = (-best).exp() as f32 * 1.001;
                }
            }
        }
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_num::Random;

    #[test]
    fn tokens_come_as_often_as_they_should() {
        let logits: Vec<f32> = (0..40).map(|at| ((at * at) % 7) as f32 * 0.8 - (at % 3) as f32).collect();
        for inverse in [1.0, 0.5, 3.0] {
            let most = logits.iter().copied().fold(f32::MIN, f32::max);
            let weights: Vec<f64> = logits.iter().map(|logit| f64::from((logit - most) * inverse).exp()).collect();
            let total: f64 = weights.iter().sum();
            let draws = 40_000;
            let mut counts = vec![0f64; logits.len()];
            for position in 0..draws {
                counts[draw(&logits, most, inverse, Key::new(5, position)) as usize] += 1.0;
            }
            let expected = weights.iter().map(|weight| weight / total * draws as f64);
            let chi: f64 = counts.iter().zip(expected).map(|(count, exact)| (count - exact).powi(2) / exact).sum();
            // 39 degrees of freedom: more than 80 happens once in ten thousand times.
            assert!(chi < 80.0, "{chi}");
        }
    }

    #[test]
    fn the_quick_test_misses_no_token() {
        for position in 0..300 {
            let logits = Random::new(position).normals(1_000, 2.0);
            let most = logits.iter().copied().fold(f32::MIN, f32::max);
            let key = Key::new(9, position as usize);
            let value = |token: &usize| f64::from((logits[*token] - most) * 0.7) + key.noise(*token as u32);
            let best = (0..logits.len()).max_by(|a, b| value(a).total_cmp(&value(b))).unwrap();
            assert_eq!(draw(&logits, most, 0.7, key) as usize, best);
        }
    }
}
