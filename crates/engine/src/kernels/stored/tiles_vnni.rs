//! The products of some rows with a unit of a panel, with AVX-512 and its int8 products.

// Called only where the processor has these instructions; loads stay inside arrays of known size.
#![allow(unsafe_code)]
// One number indexes the registers of several arrays.
#![allow(clippy::needless_range_loop)]

use super::super::panels::LANES;
use super::{Half, Inputs, Kind, Unit};
use std::arch::x86_64::*;

pub(super) fn tile(unit: &Unit<'_>, x: &Inputs<'_>, products: &mut [[f32; LANES]]) {
    // SAFETY: `kernel_for` gives this function out only where the processor has the instructions.
    unsafe {
        match x.rows {
            1 => rows::<1>(unit, x, products),
            2 => rows::<2>(unit, x, products),
            4 => rows::<4>(unit, x, products),
            _ => rows::<8>(unit, x, products),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn rows<const ROWS: usize>(unit: &Unit<'_>, x: &Inputs<'_>, products: &mut [[f32; LANES]]) {
    let products: &mut [[f32; LANES]; ROWS] = match products.first_chunk_mut() {
        Some(products) => products,
        None => return,
    };
    match unit.kind {
        Kind::Q4K | Kind::Q5K => large_block::<ROWS, 8>(unit, x, products),
        Kind::Q6K => large_block::<ROWS, 16>(unit, x, products),
        Kind::Q4Centred | Kind::Q8Centred => small_blocks::<ROWS, false>(unit, x, products),
        Kind::Q4Min | Kind::Q5Min => small_blocks::<ROWS, true>(unit, x, products),
    }
}

#[target_feature(enable = "avx512f")]
fn load(half: &Half) -> __m256i {
    // SAFETY: a half line has 32 bytes and is aligned to them.
    unsafe { _mm256_load_si256((&raw const half.0).cast()) }
}

/// A block with a scale for each of `GROUPS` groups.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn large_block<const ROWS: usize, const GROUPS: usize>(
    unit: &Unit<'_>,
    x: &Inputs<'_>,
    products: &mut [[f32; LANES]; ROWS],
) {
    let is_signed = GROUPS == 16;
    let of_group = 64 / GROUPS;
    let scales = &unit.scales[..if is_signed { 9 } else { 10 }];
    let quads: [&[i32]; ROWS] = std::array::from_fn(|row| &x.row(row).0[..64]);
    let mut totals = [_mm512_setzero_si512(); ROWS];
    for pair in 0..GROUPS / 2 {
        let both = if is_signed {
            _mm512_cvtepi8_epi16(load(&scales[pair]))
        } else {
            _mm512_cvtepu8_epi16(load(&scales[pair]))
        };
        let scales = [_mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(both)), _mm512_srai_epi32::<16>(both)];
        for (at, scale) in scales.into_iter().enumerate() {
            let first = (2 * pair + at) * of_group;
            let mut sums = [_mm512_setzero_si512(); ROWS];
            for line in first..first + of_group {
                // SAFETY: a line has 64 bytes and is aligned to them; there are 64 lines.
                let weights = unsafe { _mm512_load_si512(unit.lines.as_ptr().add(line).cast()) };
                for row in 0..ROWS {
                    // SAFETY: there are 64 quads.
                    let four = unsafe { *quads[row].get_unchecked(line) };
                    sums[row] = _mm512_dpbusd_epi32(sums[row], weights, _mm512_set1_epi32(four));
                }
            }
            for row in 0..ROWS {
                totals[row] = _mm512_add_epi32(totals[row], _mm512_mullo_epi32(sums[row], scale));
            }
        }
    }
    let mut least = [_mm512_setzero_si512(); ROWS];
    let offsets: [&[i32]; ROWS] = std::array::from_fn(|row| &x.row(row).2[..super::OFFSETS_OF_256]);
    for pair in 0..GROUPS / 2 {
        let (both, first) = match is_signed {
            true => (_mm512_cvtepi8_epi16(load(&scales[pair])), 0),
            false => (_mm512_cvtepu8_epi16(load(&scales[4 + pair])), 8),
        };
        for row in 0..ROWS {
            least[row] = _mm512_dpwssd_epi32(least[row], both, _mm512_set1_epi32(offsets[row][first + pair]));
        }
    }
    let factors = _mm512_cvtph_ps(load(&scales[8]));
    for row in 0..ROWS {
        let of_row = _mm512_set1_ps(x.row(row).1[0]);
        // SAFETY: the array has sixteen numbers.
        let mut product = unsafe { _mm512_loadu_ps(products[row].as_ptr()) };
        let factor = _mm512_mul_ps(factors, of_row);
        if is_signed {
            let total = _mm512_sub_epi32(totals[row], _mm512_slli_epi32::<5>(least[row]));
            product = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), factor, product);
        } else {
            product = _mm512_fmadd_ps(_mm512_cvtepi32_ps(totals[row]), factor, product);
            let factor = _mm512_mul_ps(_mm512_cvtph_ps(load(&scales[9])), of_row);
            product = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(least[row]), factor, product);
        }
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(products[row].as_mut_ptr(), product) };
    }
}

/// Blocks of 32, with a minimum if `LEAST`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn small_blocks<const ROWS: usize, const LEAST: bool>(
    unit: &Unit<'_>,
    x: &Inputs<'_>,
    products: &mut [[f32; LANES]; ROWS],
) {
    let halves = if LEAST { 2 } else { 1 };
    let blocks = unit.blocks.min(8);
    let quads: [&[i32]; ROWS] = std::array::from_fn(|row| &x.row(row).0[..8 * blocks]);
    let factors: [&[f32]; ROWS] = std::array::from_fn(|row| &x.row(row).1[..blocks]);
    let offsets: [&[i32]; ROWS] = std::array::from_fn(|row| &x.row(row).2[..blocks]);
    let centre = unit.kind.centre();
    // SAFETY: the arrays have sixteen numbers.
    let mut products_of: [__m512; ROWS] = std::array::from_fn(|row| unsafe { _mm512_loadu_ps(products[row].as_ptr()) });
    for block in 0..blocks {
        let mut sums = [_mm512_setzero_si512(); ROWS];
        if !LEAST {
            for row in 0..ROWS {
                sums[row] = _mm512_set1_epi32(-centre * offsets[row][block]);
            }
        }
        for line in 8 * block..8 * block + 8 {
            // SAFETY: a line has 64 bytes and is aligned to them; there are 64 lines, 8 for each of at most 8 blocks.
            let weights = unsafe { _mm512_load_si512(unit.lines.as_ptr().add(line).cast()) };
            for row in 0..ROWS {
                // SAFETY: there are 8 quads for each block.
                let four = unsafe { *quads[row].get_unchecked(line) };
                sums[row] = _mm512_dpbusd_epi32(sums[row], weights, _mm512_set1_epi32(four));
            }
        }
        let scales = _mm512_cvtph_ps(load(&unit.scales[block * halves]));
        for row in 0..ROWS {
            let factor = _mm512_mul_ps(scales, _mm512_set1_ps(factors[row][block]));
            products_of[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[row]), factor, products_of[row]);
        }
        if LEAST {
            let least = _mm512_cvtph_ps(load(&unit.scales[block * halves + 1]));
            for row in 0..ROWS {
                let sum = _mm512_set1_ps(factors[row][block] * offsets[row][block] as f32);
                products_of[row] = _mm512_fmadd_ps(least, sum, products_of[row]);
            }
        }
    }
    for (products, sums) in products.iter_mut().zip(products_of) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(products.as_mut_ptr(), sums) };
    }
}
