//! The products of some rows with a unit of a panel, with AVX2.
//!
//! The instruction multiplies unsigned with signed bytes and adds pairs in 16 bits. Numbers of few bits leave room for the sums
//! of several lines there; `LINES` says how many. Another instruction multiplies these sums with scales and adds pairs.

// Called only where the processor has these instructions; loads stay inside arrays of known size.
#![allow(unsafe_code)]
// One number indexes the registers of several arrays.
#![allow(clippy::needless_range_loop)]

use super::super::panels::LANES;
use super::{Half, Inputs, Kind, Unit};
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
    for side in 0..2 {
        match unit.kind {
            Kind::Q4K => large_block::<ROWS, 8, 8>(unit, x, first, side, products),
            Kind::Q5K => large_block::<ROWS, 8, 4>(unit, x, first, side, products),
            Kind::Q6K => large_block::<ROWS, 16, 2>(unit, x, first, side, products),
            Kind::Q4Centred => small_blocks::<ROWS, false, 8>(unit, x, first, side, products),
            Kind::Q4Min => small_blocks::<ROWS, true, 8>(unit, x, first, side, products),
            Kind::Q5Min => small_blocks::<ROWS, true, 4>(unit, x, first, side, products),
            Kind::Q8Centred => small_blocks::<ROWS, false, 0>(unit, x, first, side, products),
        }
    }
}

/// The bytes of one side of a half line.
#[target_feature(enable = "avx2")]
fn load(half: &Half, side: usize) -> __m128i {
    // SAFETY: a half line has 32 bytes; a side is the first or the second 16 of them.
    unsafe { _mm_loadu_si128((&raw const half.0).cast::<__m128i>().add(side)) }
}

/// One side of a line.
#[target_feature(enable = "avx2")]
fn weights(unit: &Unit<'_>, line: usize, side: usize) -> __m256i {
    assert!(line < unit.lines.len() && side < 2);
    // SAFETY: a line has 64 bytes and is aligned to them; a side has 32.
    unsafe { _mm256_load_si256(unit.lines.as_ptr().add(line).cast::<__m256i>().add(side)) }
}

/// A block with a scale for each of `GROUPS` groups.
#[target_feature(enable = "avx2,fma,f16c")]
fn large_block<const ROWS: usize, const GROUPS: usize, const LINES: usize>(
    unit: &Unit<'_>,
    x: &Inputs<'_>,
    first: usize,
    side: usize,
    products: &mut [[f32; LANES]; ROWS],
) {
    let is_signed = GROUPS == 16;
    let of_group = 64 / GROUPS;
    let scales = &unit.scales[..if is_signed { 9 } else { 10 }];
    let quads: [&[i32]; ROWS] = std::array::from_fn(|row| &x.row(first + row).0[..64]);
    let offsets: [&[i32]; ROWS] = std::array::from_fn(|row| &x.row(first + row).2[..super::OFFSETS_OF_256]);
    let (mut totals, mut least) = ([_mm256_setzero_si256(); ROWS], [_mm256_setzero_si256(); ROWS]);
    for pair in 0..GROUPS / 2 {
        let bytes = load(&scales[pair], side);
        let both = if is_signed { _mm256_cvtepi8_epi16(bytes) } else { _mm256_cvtepu8_epi16(bytes) };
        // Each scale twice: for the two sums that each output has.
        let low = _mm256_or_si256(_mm256_and_si256(both, _mm256_set1_epi32(0xffff)), _mm256_slli_epi32::<16>(both));
        let high = _mm256_or_si256(_mm256_srli_epi32::<16>(both), _mm256_andnot_si256(_mm256_set1_epi32(0xffff), both));
        for (at, scale) in [low, high].into_iter().enumerate() {
            let start = (2 * pair + at) * of_group;
            for start in (start..start + of_group).step_by(LINES) {
                let mut sums = [_mm256_setzero_si256(); ROWS];
                for line in start..start + LINES {
                    let weights = weights(unit, line, side);
                    for row in 0..ROWS {
                        // SAFETY: there are 64 quads.
                        let four = _mm256_set1_epi32(unsafe { *quads[row].get_unchecked(line) });
                        sums[row] = _mm256_add_epi16(sums[row], _mm256_maddubs_epi16(weights, four));
                    }
                }
                for row in 0..ROWS {
                    totals[row] = _mm256_add_epi32(totals[row], _mm256_madd_epi16(sums[row], scale));
                }
            }
        }
        let (both, from) = match is_signed {
            true => (both, 0),
            false => (_mm256_cvtepu8_epi16(load(&scales[4 + pair], side)), 8),
        };
        for row in 0..ROWS {
            let sum = _mm256_set1_epi32(offsets[row][from + pair]);
            least[row] = _mm256_add_epi32(least[row], _mm256_madd_epi16(both, sum));
        }
    }
    let factors = _mm256_cvtph_ps(load(&scales[8], side));
    for row in 0..ROWS {
        let of_row = _mm256_set1_ps(x.row(first + row).1[0]);
        let place = &mut products[row][WIDTH * side..][..WIDTH];
        // SAFETY: the place has eight numbers.
        let mut product = unsafe { _mm256_loadu_ps(place.as_ptr()) };
        let factor = _mm256_mul_ps(factors, of_row);
        if is_signed {
            let total = _mm256_sub_epi32(totals[row], _mm256_slli_epi32::<5>(least[row]));
            product = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), factor, product);
        } else {
            product = _mm256_fmadd_ps(_mm256_cvtepi32_ps(totals[row]), factor, product);
            let factor = _mm256_mul_ps(_mm256_cvtph_ps(load(&scales[9], side)), of_row);
            product = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(least[row]), factor, product);
        }
        // SAFETY: as above.
        unsafe { _mm256_storeu_ps(place.as_mut_ptr(), product) };
    }
}

/// Blocks of 32, with a minimum if `LEAST`. With `LINES` of 0 the numbers are bytes around 128.
#[target_feature(enable = "avx2,fma,f16c")]
fn small_blocks<const ROWS: usize, const LEAST: bool, const LINES: usize>(
    unit: &Unit<'_>,
    x: &Inputs<'_>,
    first: usize,
    side: usize,
    products: &mut [[f32; LANES]; ROWS],
) {
    let halves = if LEAST { 2 } else { 1 };
    let blocks = unit.blocks.min(8);
    let quads: [&[i32]; ROWS] = std::array::from_fn(|row| &x.row(first + row).0[..8 * blocks]);
    let factors: [&[f32]; ROWS] = std::array::from_fn(|row| &x.row(first + row).1[..blocks]);
    let offsets: [&[i32]; ROWS] = std::array::from_fn(|row| &x.row(first + row).2[..blocks]);
    let centre = unit.kind.centre();
    let ones = _mm256_set1_epi16(1);
    for block in 0..blocks {
        let mut totals = [_mm256_setzero_si256(); ROWS];
        let (start, end) = (8 * block, 8 * block + 8);
        if LINES == 0 {
            for line in start..end {
                let signed = _mm256_xor_si256(weights(unit, line, side), _mm256_set1_epi8(-128));
                // The instruction wants one side unsigned, so the sign moves to the other; 2 · 128 · 127 fits 16 bits.
                let size = _mm256_abs_epi8(signed);
                for row in 0..ROWS {
                    let four = _mm256_sign_epi8(_mm256_set1_epi32(quads[row][line]), signed);
                    let pairs = _mm256_maddubs_epi16(size, four);
                    totals[row] = _mm256_add_epi32(totals[row], _mm256_madd_epi16(pairs, ones));
                }
            }
        } else {
            for start in (start..end).step_by(LINES.max(1)) {
                let mut sums = [_mm256_setzero_si256(); ROWS];
                for line in start..start + LINES {
                    let weights = weights(unit, line, side);
                    for row in 0..ROWS {
                        let four = _mm256_set1_epi32(quads[row][line]);
                        sums[row] = _mm256_add_epi16(sums[row], _mm256_maddubs_epi16(weights, four));
                    }
                }
                for row in 0..ROWS {
                    totals[row] = _mm256_add_epi32(totals[row], _mm256_madd_epi16(sums[row], ones));
                }
            }
            for row in 0..ROWS {
                totals[row] = _mm256_sub_epi32(totals[row], _mm256_set1_epi32(centre * offsets[row][block]));
            }
        }
        let scales = _mm256_cvtph_ps(load(&unit.scales[block * halves], side));
        for row in 0..ROWS {
            let place = &mut products[row][WIDTH * side..][..WIDTH];
            // SAFETY: the place has eight numbers.
            let mut product = unsafe { _mm256_loadu_ps(place.as_ptr()) };
            let factor = _mm256_mul_ps(scales, _mm256_set1_ps(factors[row][block]));
            product = _mm256_fmadd_ps(_mm256_cvtepi32_ps(totals[row]), factor, product);
            if LEAST {
                let least = _mm256_cvtph_ps(load(&unit.scales[block * halves + 1], side));
                let sum = _mm256_set1_ps(factors[row][block] * offsets[row][block] as f32);
                product = _mm256_fmadd_ps(least, sum, product);
            }
            // SAFETY: as above.
            unsafe { _mm256_storeu_ps(place.as_mut_ptr(), product) };
        }
    }
}
