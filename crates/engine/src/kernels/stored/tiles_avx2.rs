//! The products of some rows with a unit of a panel, with AVX2.
//!
//! The instruction multiplies unsigned with signed bytes and adds pairs in 16 bits. Numbers of few bits leave room for the sums
//! of several lines there; `LINES` says how many. Another instruction multiplies these sums with scales and adds pairs.

// Called only where the processor has these instructions; loads stay inside arrays of known size. One line of assembly keeps sums
// where they are.
#![allow(unsafe_code)]
// One number indexes the registers of several arrays.
#![allow(clippy::needless_range_loop)]

use super::super::int8::Bytes;
use super::super::panels::LANES;
use super::{Half, Inputs, Kind, LargeBlocks, Unit};
use std::arch::x86_64::*;

/// Outputs of a register.
const WIDTH: usize = LANES / 2;

pub(super) fn tile(unit: &Unit<'_>, x: &Inputs<'_>, products: &mut [[f32; LANES]]) {
    // SAFETY: `kernel_for` gives this function out only where the processor has the instructions.
    unsafe {
        match x.rows {
            1 => rows::<1>(unit, x, 0, products),
            2 => rows::<2>(unit, x, 0, products),
            4 => rows::<4>(unit, x, 0, products),
            _ => {
                rows::<4>(unit, x, 0, products);
                rows::<4>(unit, x, 4, &mut products[4..]);
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn rows<const ROWS: usize>(unit: &Unit<'_>, x: &Inputs<'_>, first: usize, products: &mut [[f32; LANES]]) {
    let products: &mut [[f32; LANES]; ROWS] = match products.first_chunk_mut() {
        Some(products) => products,
        None => return,
    };
    match unit.kind {
        Kind::Q4K => large_block::<ROWS, 8>(unit, x, first, products),
        Kind::Q5K => large_block::<ROWS, 4>(unit, x, first, products),
        Kind::Q6K => six_bits::<ROWS>(unit, x, first, products),
        Kind::Q4Centred => small_blocks::<ROWS, false, 8>(unit, x, first, products),
        Kind::Q4Min => small_blocks::<ROWS, true, 8>(unit, x, first, products),
        Kind::Q5Min => small_blocks::<ROWS, true, 4>(unit, x, first, products),
        Kind::Q8Centred => small_blocks::<ROWS, false, 0>(unit, x, first, products),
    }
}

/// The bytes of one side of a half line.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load(half: &Half, side: usize) -> __m128i {
    let sides = half.0.as_flattened().as_chunks::<16>().0;
    // SAFETY: any sixteen bytes are a register.
    unsafe { std::mem::transmute(sides[side & 1]) }
}

/// One side of a line.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn weights(line: &Bytes, side: usize) -> __m256i {
    let sides = line.0.as_chunks::<32>().0;
    // SAFETY: any 32 bytes are a register.
    unsafe { std::mem::transmute(sides[side & 1]) }
}

/// Each of the two scales of a pair of groups twice: for the two sums that each output has.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn doubled(both: __m256i) -> [__m256i; 2] {
    let first = _mm256_setr_epi32(
        0x0100_0100,
        0x0504_0504,
        0x0908_0908,
        0x0d0c_0d0c,
        0x0100_0100,
        0x0504_0504,
        0x0908_0908,
        0x0d0c_0d0c,
    );
    let second = _mm256_add_epi8(first, _mm256_set1_epi8(2));
    [_mm256_shuffle_epi8(both, first), _mm256_shuffle_epi8(both, second)]
}

/// Adds the minima of a block of 256, times the sums of the inputs.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn minima<const ROWS: usize>(scales: &[Half], x: &LargeBlocks<'_, ROWS>, side: usize) -> [__m256; ROWS] {
    let mut least = [_mm256_setzero_ps(); ROWS];
    for (pair, half) in scales[4..8].iter().enumerate() {
        let both = _mm256_cvtepu8_epi16(load(half, side));
        let each = [_mm256_and_si256(both, _mm256_set1_epi32(0xffff)), _mm256_srli_epi32::<16>(both)];
        for (at, minima) in each.into_iter().enumerate() {
            let minima = _mm256_cvtepi32_ps(minima);
            for row in 0..ROWS {
                least[row] = _mm256_fmadd_ps(minima, _mm256_set1_ps(x.factors[row][2 * pair + at][1]), least[row]);
            }
        }
    }
    least
}

/// Both sides of a line.
#[inline]
#[target_feature(enable = "avx2")]
fn both(line: &Bytes) -> [__m256i; 2] {
    [weights(line, 0), weights(line, 1)]
}

/// Both sides of the halves of a pair of groups, each scale twice: by group, then by side.
#[inline]
#[target_feature(enable = "avx2")]
fn scales_of(both: [__m256i; 2]) -> [[__m256i; 2]; 2] {
    let [[a, b], [c, d]] = both.map(|both| doubled(both));
    [[a, c], [b, d]]
}

/// Products of four inputs of each output, added to sums in 16 bits. The sum stays in its register: a compiler that is free
/// to order additions takes one row after another, and has no registers left for the weights.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn add_products(sum: __m256i, weights: __m256i, four: __m256i) -> __m256i {
    let mut sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(weights, four));
    // SAFETY: no instruction.
    unsafe { std::arch::asm!("/* {0} */", inout(ymm_reg) sum, options(nomem, nostack, preserves_flags)) };
    sum
}

/// A block of 256 with a scale and a minimum for each 32. The sums of `LINES` lines fit 16 bits.
///
/// Each input that is loaded meets both sides of a line: otherwise loads would take longer than products.
#[target_feature(enable = "avx2,fma,f16c")]
fn large_block<const ROWS: usize, const LINES: usize>(
    unit: &Unit<'_>,
    x: &Inputs<'_>,
    first: usize,
    products: &mut [[f32; LANES]; ROWS],
) {
    let scales = &unit.scales[..10];
    let x = x.large::<ROWS>(first, 0);
    let mut totals = [[_mm256_setzero_ps(); 2]; ROWS];
    for (pair, lines) in unit.lines.as_chunks::<16>().0.iter().enumerate() {
        let half = &scales[pair];
        let scale = scales_of([_mm256_cvtepu8_epi16(load(half, 0)), _mm256_cvtepu8_epi16(load(half, 1))]);
        for (group, lines) in lines.as_chunks::<8>().0.iter().enumerate() {
            let block = 2 * pair + group;
            let mut whole = [[_mm256_setzero_si256(); 2]; ROWS];
            for (part, lines) in lines.as_chunks::<LINES>().0.iter().enumerate() {
                let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
                for (at, line) in lines.iter().enumerate() {
                    let weights = both(line);
                    for row in 0..ROWS {
                        let four = _mm256_set1_epi32(x.quads[row][block][part * LINES + at]);
                        for side in 0..2 {
                            sums[row][side] = add_products(sums[row][side], weights[side], four);
                        }
                    }
                }
                for row in 0..ROWS {
                    for side in 0..2 {
                        let scaled = _mm256_madd_epi16(sums[row][side], scale[group][side]);
                        whole[row][side] = _mm256_add_epi32(whole[row][side], scaled);
                    }
                }
            }
            for row in 0..ROWS {
                let factor = _mm256_set1_ps(x.factors[row][block][0]);
                for side in 0..2 {
                    totals[row][side] =
                        _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole[row][side]), factor, totals[row][side]);
                }
            }
        }
    }
    for side in 0..2 {
        let least = minima(scales, &x, side);
        let factors = [_mm256_cvtph_ps(load(&scales[8], side)), _mm256_cvtph_ps(load(&scales[9], side))];
        for row in 0..ROWS {
            let place = &mut products[row][WIDTH * side..][..WIDTH];
            // SAFETY: the place has eight numbers.
            unsafe {
                let product = _mm256_fmadd_ps(totals[row][side], factors[0], _mm256_loadu_ps(place.as_ptr()));
                _mm256_storeu_ps(place.as_mut_ptr(), _mm256_fnmadd_ps(least[row], factors[1], product));
            }
        }
    }
}

/// A block of 256 with a scale for each 16. Sums begin with what centres the numbers, so that four lines fit 16 bits.
#[target_feature(enable = "avx2,fma,f16c")]
fn six_bits<const ROWS: usize>(unit: &Unit<'_>, x: &Inputs<'_>, first: usize, products: &mut [[f32; LANES]; ROWS]) {
    let scales = &unit.scales[..9];
    let x = x.large::<ROWS>(first, 0);
    let mut totals = [[_mm256_setzero_ps(); 2]; ROWS];
    for [half, second, part] in super::ORDER_OF_16 {
        let block = 4 * half + part;
        let pair = &scales[block];
        let scale = scales_of([_mm256_cvtepi8_epi16(load(pair, 0)), _mm256_cvtepi8_epi16(load(pair, 1))])[second];
        let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
        for row in 0..ROWS {
            sums[row] = [_mm256_set1_epi32(x.offsets[row][block][1 + second]); 2];
        }
        for (at, line) in unit.lines.as_chunks::<4>().0[2 * block + second].iter().enumerate() {
            let weights = both(line);
            for row in 0..ROWS {
                let four = _mm256_set1_epi32(x.quads[row][block][4 * second + at]);
                for side in 0..2 {
                    sums[row][side] = add_products(sums[row][side], weights[side], four);
                }
            }
        }
        for row in 0..ROWS {
            let factor = _mm256_set1_ps(x.factors[row][block][0]);
            for side in 0..2 {
                let whole = _mm256_cvtepi32_ps(_mm256_madd_epi16(sums[row][side], scale[side]));
                totals[row][side] = _mm256_fmadd_ps(whole, factor, totals[row][side]);
            }
        }
    }
    for side in 0..2 {
        let factors = _mm256_cvtph_ps(load(&scales[8], side));
        for row in 0..ROWS {
            let place = &mut products[row][WIDTH * side..][..WIDTH];
            // SAFETY: the place has eight numbers.
            unsafe {
                let product = _mm256_fmadd_ps(totals[row][side], factors, _mm256_loadu_ps(place.as_ptr()));
                _mm256_storeu_ps(place.as_mut_ptr(), product);
            }
        }
    }
}

/// Blocks of 32, with a minimum if `LEAST`. With `LINES` of 0 the numbers are bytes around 128.
#[target_feature(enable = "avx2,fma,f16c")]
fn small_blocks<const ROWS: usize, const LEAST: bool, const LINES: usize>(
    unit: &Unit<'_>,
    x: &Inputs<'_>,
    first: usize,
    products: &mut [[f32; LANES]; ROWS],
) {
    let halves = if LEAST { 2 } else { 1 };
    let blocks = unit.blocks.min(8);
    let some = x.small::<ROWS>(first, blocks);
    let centre = unit.kind.centre();
    let ones = _mm256_set1_epi16(1);
    let mut totals = [[_mm256_setzero_ps(); 2]; ROWS];
    for (totals, products) in totals.iter_mut().zip(&*products) {
        // SAFETY: a product has sixteen numbers.
        *totals = [0, WIDTH].map(|place| unsafe { _mm256_loadu_ps(products[place..].as_ptr()) });
    }
    for (block, lines) in unit.lines.as_chunks::<8>().0.iter().enumerate().take(blocks) {
        let mut whole = [[_mm256_setzero_si256(); 2]; ROWS];
        if LINES == 0 {
            for (at, line) in lines.iter().enumerate() {
                let signed = both(line).map(|it| _mm256_xor_si256(it, _mm256_set1_epi8(-128)));
                // The instruction wants one side unsigned, so the sign moves to the other; 2 · 128 · 127 fits 16 bits.
                let size = signed.map(|it| _mm256_abs_epi8(it));
                for row in 0..ROWS {
                    let four = _mm256_set1_epi32(some[row].quads[block][at]);
                    for side in 0..2 {
                        let pairs = _mm256_maddubs_epi16(size[side], _mm256_sign_epi8(four, signed[side]));
                        whole[row][side] = _mm256_add_epi32(whole[row][side], _mm256_madd_epi16(pairs, ones));
                    }
                }
            }
        } else {
            for (part, lines) in lines.chunks_exact(LINES.max(1)).enumerate() {
                let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
                for (at, line) in lines.iter().enumerate() {
                    let weights = both(line);
                    for row in 0..ROWS {
                        let four = _mm256_set1_epi32(some[row].quads[block][part * LINES + at]);
                        for side in 0..2 {
                            sums[row][side] = add_products(sums[row][side], weights[side], four);
                        }
                    }
                }
                for row in 0..ROWS {
                    for side in 0..2 {
                        let pairs = _mm256_madd_epi16(sums[row][side], ones);
                        whole[row][side] = _mm256_add_epi32(whole[row][side], pairs);
                    }
                }
            }
            for row in 0..ROWS {
                let centres = _mm256_set1_epi32(centre * some[row].offsets[block][0]);
                whole[row] = whole[row].map(|whole| _mm256_sub_epi32(whole, centres));
            }
        }
        for side in 0..2 {
            let scales = _mm256_cvtph_ps(load(&unit.scales[block * halves], side));
            for row in 0..ROWS {
                let factor = _mm256_mul_ps(scales, _mm256_set1_ps(some[row].factors[block][0]));
                totals[row][side] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole[row][side]), factor, totals[row][side]);
            }
            if LEAST {
                let least = _mm256_cvtph_ps(load(&unit.scales[block * halves + 1], side));
                for row in 0..ROWS {
                    let sum = _mm256_set1_ps(some[row].factors[block][1]);
                    totals[row][side] = _mm256_fmadd_ps(least, sum, totals[row][side]);
                }
            }
        }
    }
    for (totals, products) in totals.into_iter().zip(products) {
        for (total, products) in totals.into_iter().zip(products.as_chunks_mut::<WIDTH>().0) {
            // SAFETY: the array has eight numbers.
            unsafe { _mm256_storeu_ps(products.as_mut_ptr(), total) };
        }
    }
}
