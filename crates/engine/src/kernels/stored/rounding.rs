//! Quantising inputs to 8 bits as llama.cpp does it.

use super::super::elementwise::{self, multiversion};
use super::super::int8::factor_of;

/// Sums that are kept for a block of 256: eight pairs of sums over 16, four pairs of sums over 32, as two 16-bit numbers each.
pub(crate) const OFFSETS_OF_256: usize = 12;

/// Adding this leaves the rounded number in the lowest bits.
const ROUND: f32 = 12_582_912.0;

multiversion! {
    /// Quantises a row with one factor for each 256.
    pub(crate) fn round_256(row: &[f32], quads: &mut [i32], factors: &mut [f32], offsets: &mut [i32]) {
        let parts = quads.as_chunks_mut::<64>().0.iter_mut().zip(offsets.as_chunks_mut::<OFFSETS_OF_256>().0);
        for ((block, factor), (quads, offsets)) in row.as_chunks::<256>().0.iter().zip(factors).zip(parts) {
            let (up, down) = factor_of(elementwise::largest_magnitude(block));
            *factor = up;
            let mut sums = [0i32; 16];
            for ((values, quads), sum) in
                block.as_chunks::<16>().0.iter().zip(quads.as_chunks_mut::<4>().0).zip(&mut sums)
            {
                *sum = round_16(values, down, quads);
            }
            let pair = |low: i32, high: i32| low & 0xffff | high << 16;
            for (at, offset) in offsets.iter_mut().enumerate() {
                *offset = match at {
                    0..8 => pair(sums[2 * at], sums[2 * at + 1]),
                    _ => {
                        let four = 4 * (at - 8);
                        pair(sums[four] + sums[four + 1], sums[four + 2] + sums[four + 3])
                    }
                };
            }
        }
    }
}

multiversion! {
    /// Quantises a row with one factor for each 32. The offsets are the sums.
    pub(crate) fn round_32(row: &[f32], quads: &mut [i32], factors: &mut [f32], offsets: &mut [i32]) {
        let parts = quads.as_chunks_mut::<8>().0.iter_mut().zip(offsets);
        for ((block, factor), (quads, offset)) in row.as_chunks::<32>().0.iter().zip(factors).zip(parts) {
            let (up, down) = factor_of(elementwise::largest_magnitude(block));
            *factor = up;
            *offset = 0;
            for (values, quads) in block.as_chunks::<16>().0.iter().zip(quads.as_chunks_mut::<4>().0) {
                *offset += round_16(values, down, quads);
            }
        }
    }
}

/// Quantises sixteen numbers; returns their sum.
#[inline(always)]
fn round_16(values: &[f32; 16], down: f32, quads: &mut [i32; 4]) -> i32 {
    let bytes = values.map(|value| (value * down + ROUND).to_bits() as u8);
    for (quad, four) in quads.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *quad = i32::from_le_bytes(*four);
    }
    bytes.iter().map(|byte| i32::from(*byte as i8)).sum()
}
