//! Quantising inputs to 8 bits.
//!
//! Each 32 inputs have a factor, for formats with blocks of 256 too. llama.cpp has one for each 256 there: a large number then
//! takes the precision of 255 others.

use super::super::elementwise::{self, multiversion};
use super::super::int8::factor_of;
use super::InputBlock;

/// Adding this leaves the rounded number in the lowest bits.
const ROUND: f32 = 12_582_912.0;

multiversion! {
    /// Quantises a row.
    pub(crate) fn round_32(row: &[f32], quads: &mut [i32], factors: &mut [f32], offsets: &mut [i32]) {
        let parts = factors.as_chunks_mut::<{ InputBlock::FACTORS }>().0.iter_mut();
        let parts = parts.zip(offsets.as_chunks_mut::<{ InputBlock::OFFSETS }>().0);
        let parts = quads.as_chunks_mut::<8>().0.iter_mut().zip(parts);
        for (block, (quads, (factors, offsets))) in row.as_chunks::<32>().0.iter().zip(parts) {
            let (up, down) = factor_of(elementwise::largest_magnitude(block));
            let halves = block.as_chunks::<16>().0.iter().zip(quads.as_chunks_mut::<4>().0);
            let mut sums = [[0i32; 2]; 2];
            for ((values, quads), sums) in halves.zip(&mut sums) {
                *sums = round_16(values, down, quads);
            }
            let whole = sums.as_flattened().iter().sum::<i32>();
            *factors = [up, up * whole as f32];
            // Eight numbers of 127 at most, times 32, fit 16 bits.
            let pair = |[a, b]: [i32; 2]| ((-32 * a) & 0xffff) | ((-32 * b) << 16);
            let each = |[a, b]: [i32; 2]| -32 * (a + b);
            *offsets = [whole, pair(sums[0]), pair(sums[1]), each(sums[0]), each(sums[1])];
        }
    }
}

/// Quantises sixteen numbers. Returns two sums: of the first two of each four, and of the others.
#[inline(always)]
fn round_16(values: &[f32; 16], down: f32, quads: &mut [i32; 4]) -> [i32; 2] {
    let bytes = values.map(|value| (value * down + ROUND).to_bits() as u8);
    let mut sums = [0; 2];
    for (quad, four) in quads.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *quad = i32::from_le_bytes(*four);
        let [a, b, c, d] = four.map(|byte| i32::from(byte as i8));
        sums = [sums[0] + a + b, sums[1] + c + d];
    }
    sums
}
