//! Products of few rows with a whole panel, with AVX2: numbers are unpacked in registers, as in `fused_vnni.rs`.

// Called only where the processor has these instructions; loads stay inside arrays of known size.
#![allow(unsafe_code)]
// One number indexes the registers of several arrays.
#![allow(clippy::needless_range_loop)]

use super::super::int8::Bytes;
use super::super::panels::LANES;
use super::{Half, Kind, OFFSETS_OF_256, Rounded};
use std::arch::x86_64::*;

/// Lines that are fetched ahead.
const AHEAD: usize = 48;
/// Outputs of a register.
const WIDTH: usize = LANES / 2;

/// The sums of one, two or four rows with a panel; false if there is no such kernel for this format.
pub(super) fn panel(
    kind: Kind,
    lines: &[Bytes],
    scales: &[Half],
    x: Rounded<'_>,
    products: &mut [[f32; LANES]],
) -> bool {
    // SAFETY: called only where the processor has the instructions.
    unsafe {
        match (kind, products.len()) {
            (Kind::Q4K, 1) => four_bits::<1>(lines, scales, x, products),
            (Kind::Q4K, 2) => four_bits::<2>(lines, scales, x, products),
            (Kind::Q4K, 4) => four_bits::<4>(lines, scales, x, products),
            (Kind::Q6K, 1) => six_bits::<1>(lines, scales, x, products),
            (Kind::Q6K, 2) => six_bits::<2>(lines, scales, x, products),
            (Kind::Q6K, 4) => six_bits::<4>(lines, scales, x, products),
            _ => return false,
        }
    }
    true
}

/// The bytes of one side of a half line.
#[target_feature(enable = "avx2")]
fn load(half: &Half, side: usize) -> __m128i {
    // SAFETY: a half line has 32 bytes; a side is the first or the second 16 of them.
    unsafe { _mm_loadu_si128((&raw const half.0).cast::<__m128i>().add(side & 1)) }
}

/// One side of a line.
#[target_feature(enable = "avx2")]
fn line(lines: &[Bytes], at: usize, side: usize) -> __m256i {
    let line: *const Bytes = &lines[at];
    // SAFETY: a line has 64 bytes and is aligned to them; a side has 32. Fetching ahead never fails, wherever it is.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(AHEAD).cast());
        _mm256_load_si256(line.cast::<__m256i>().add(side & 1))
    }
}

/// Each of the two scales of a pair of groups twice: for the two sums that each output has.
#[target_feature(enable = "avx2")]
fn doubled(both: __m256i) -> [__m256i; 2] {
    let low = _mm256_set1_epi32(0xffff);
    [
        _mm256_or_si256(_mm256_and_si256(both, low), _mm256_slli_epi32::<16>(both)),
        _mm256_or_si256(_mm256_srli_epi32::<16>(both), _mm256_andnot_si256(low, both)),
    ]
}

/// `total + scale · (bytes · four)`, where the products of bytes are summed in 16 bits.
#[target_feature(enable = "avx2")]
fn add_scaled(total: __m256i, sums: __m256i, scale: __m256i) -> __m256i {
    _mm256_add_epi32(total, _mm256_madd_epi16(sums, scale))
}

#[target_feature(enable = "avx2,fma,f16c")]
fn four_bits<const ROWS: usize>(lines: &[Bytes], scales: &[Half], x: Rounded<'_>, products: &mut [[f32; LANES]]) {
    let (lines, scales) = (lines.as_chunks::<32>().0, scales.as_chunks::<10>().0);
    let blocks = scales.len();
    let (quads, offsets) = (x.quads.as_chunks::<64>().0, x.offsets.as_chunks::<OFFSETS_OF_256>().0);
    let mask = _mm256_set1_epi8(15);
    let mut sums = [[_mm256_setzero_ps(); ROWS]; 2];
    for (block, (lines, scales)) in lines.iter().zip(scales).enumerate() {
        let quads: [&[i32; 64]; ROWS] = std::array::from_fn(|row| &quads[row * blocks + block]);
        let offsets: [&[i32; OFFSETS_OF_256]; ROWS] = std::array::from_fn(|row| &offsets[row * blocks + block]);
        for side in 0..2 {
            let (mut totals, mut least) = ([_mm256_setzero_si256(); ROWS], [_mm256_setzero_si256(); ROWS]);
            for pair in 0..4 {
                let mut whole = [[_mm256_setzero_si256(); ROWS]; 2];
                for at in 0..8 {
                    let packed = line(lines, 8 * pair + at, side);
                    let low = _mm256_and_si256(packed, mask);
                    let high = _mm256_and_si256(_mm256_srli_epi16::<4>(packed), mask);
                    for row in 0..ROWS {
                        let four = [quads[row][16 * pair + at], quads[row][16 * pair + 8 + at]];
                        let four = four.map(|it| _mm256_set1_epi32(it));
                        // Eight sums of two products of 15 · 127 at most fit 16 bits.
                        whole[0][row] = _mm256_add_epi16(whole[0][row], _mm256_maddubs_epi16(low, four[0]));
                        whole[1][row] = _mm256_add_epi16(whole[1][row], _mm256_maddubs_epi16(high, four[1]));
                    }
                }
                let scale = doubled(_mm256_cvtepu8_epi16(load(&scales[pair], side)));
                let minima = _mm256_cvtepu8_epi16(load(&scales[4 + pair], side));
                for row in 0..ROWS {
                    totals[row] = add_scaled(totals[row], whole[0][row], scale[0]);
                    totals[row] = add_scaled(totals[row], whole[1][row], scale[1]);
                    least[row] = add_scaled(least[row], minima, _mm256_set1_epi32(offsets[row][8 + pair]));
                }
            }
            let (factors, minima) = (_mm256_cvtph_ps(load(&scales[8], side)), _mm256_cvtph_ps(load(&scales[9], side)));
            for row in 0..ROWS {
                let of_row = _mm256_set1_ps(x.factors[row * blocks + block]);
                let factor = _mm256_mul_ps(factors, of_row);
                let sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(totals[row]), factor, sums[side][row]);
                let factor = _mm256_mul_ps(minima, of_row);
                sums[side][row] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(least[row]), factor, sum);
            }
        }
    }
    store(sums, products);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn six_bits<const ROWS: usize>(lines: &[Bytes], scales: &[Half], x: Rounded<'_>, products: &mut [[f32; LANES]]) {
    let (lines, scales) = (lines.as_chunks::<48>().0, scales.as_chunks::<9>().0);
    let blocks = scales.len();
    let (quads, offsets) = (x.quads.as_chunks::<64>().0, x.offsets.as_chunks::<OFFSETS_OF_256>().0);
    let (low, high) = (_mm256_set1_epi8(15), _mm256_set1_epi8(48));
    let mut sums = [[_mm256_setzero_ps(); ROWS]; 2];
    for (block, (lines, scales)) in lines.iter().zip(scales).enumerate() {
        let quads: [&[i32; 64]; ROWS] = std::array::from_fn(|row| &quads[row * blocks + block]);
        let offsets: [&[i32; OFFSETS_OF_256]; ROWS] = std::array::from_fn(|row| &offsets[row * blocks + block]);
        for side in 0..2 {
            let (mut totals, mut offset) = ([_mm256_setzero_si256(); ROWS], [_mm256_setzero_si256(); ROWS]);
            for half in 0..2 {
                // Two lines of each group of 32 at a time; each 16 inputs have a scale.
                for start in [0, 2, 4, 6] {
                    let mut whole = [[_mm256_setzero_si256(); ROWS]; 4];
                    for at in start..start + 2 {
                        let (a, b) = (line(lines, 16 * half + at, side), line(lines, 16 * half + 8 + at, side));
                        let two = line(lines, 32 + 8 * half + at, side);
                        let join = |four: __m256i, two: __m256i| {
                            _mm256_or_si256(_mm256_and_si256(four, low), _mm256_and_si256(two, high))
                        };
                        let weights = [
                            join(a, _mm256_slli_epi16::<4>(two)),
                            join(b, _mm256_slli_epi16::<2>(two)),
                            join(_mm256_srli_epi16::<4>(a), two),
                            join(_mm256_srli_epi16::<4>(b), _mm256_srli_epi16::<2>(two)),
                        ];
                        for row in 0..ROWS {
                            for part in 0..4 {
                                let four = _mm256_set1_epi32(quads[row][32 * half + 8 * part + at]);
                                // Two sums of two products of 63 · 127 at most fit 16 bits.
                                let pairs = _mm256_maddubs_epi16(weights[part], four);
                                whole[part][row] = _mm256_add_epi16(whole[part][row], pairs);
                            }
                        }
                    }
                    for part in 0..4 {
                        let both = _mm256_cvtepi8_epi16(load(&scales[4 * half + part], side));
                        let scale = doubled(both)[start / 4];
                        for row in 0..ROWS {
                            totals[row] = add_scaled(totals[row], whole[part][row], scale);
                        }
                    }
                }
            }
            for pair in 0..8 {
                let both = _mm256_cvtepi8_epi16(load(&scales[pair], side));
                for row in 0..ROWS {
                    offset[row] = add_scaled(offset[row], both, _mm256_set1_epi32(offsets[row][pair]));
                }
            }
            let factors = _mm256_cvtph_ps(load(&scales[8], side));
            for row in 0..ROWS {
                let total = _mm256_sub_epi32(totals[row], _mm256_slli_epi32::<5>(offset[row]));
                let factor = _mm256_mul_ps(factors, _mm256_set1_ps(x.factors[row * blocks + block]));
                sums[side][row] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), factor, sums[side][row]);
            }
        }
    }
    store(sums, products);
}

#[target_feature(enable = "avx2")]
fn store<const ROWS: usize>(sums: [[__m256; ROWS]; 2], products: &mut [[f32; LANES]]) {
    for (side, sums) in sums.into_iter().enumerate() {
        for (products, sum) in products.iter_mut().zip(sums) {
            let place = &mut products[WIDTH * side..][..WIDTH];
            // SAFETY: the place has room for eight numbers.
            unsafe { _mm256_storeu_ps(place.as_mut_ptr(), sum) };
        }
    }
}
