//! The products of some rows with a unit of a panel, with AVX-512 and its int8 products.

// Called only where the processor has these instructions; loads stay inside arrays of known size.
#![allow(unsafe_code)]
// One number indexes the registers of several arrays.
#![allow(clippy::needless_range_loop)]

use super::super::int8::Bytes;
use super::super::panels::LANES;
use super::{Half, Inputs, Kind, LargeBlocks, Unit};
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
        Kind::Q4K | Kind::Q5K => large_block::<ROWS>(unit, x, products),
        Kind::Q6K => six_bits::<ROWS>(unit, x, products),
        Kind::Q4Centred | Kind::Q8Centred => small_blocks::<ROWS, false>(unit, x, products),
        Kind::Q4Min | Kind::Q5Min => small_blocks::<ROWS, true>(unit, x, products),
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load(half: &Half) -> __m256i {
    // SAFETY: any 32 bytes are a register.
    unsafe { std::mem::transmute(half.0) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn weights(line: &Bytes) -> __m512i {
    // SAFETY: any 64 bytes are a register.
    unsafe { std::mem::transmute(line.0) }
}

/// The two scales of a pair of groups.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn apart(both: __m512i) -> [__m512; 2] {
    let first = _mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(both));
    [_mm512_cvtepi32_ps(first), _mm512_cvtepi32_ps(_mm512_srai_epi32::<16>(both))]
}

/// `total + sum · scale · factor`; the first product is a whole number below 2^24 and thus exact.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn add_scaled(total: __m512, sum: __m512i, scale: __m512, factor: f32) -> __m512 {
    _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale), _mm512_set1_ps(factor), total)
}

/// The minima of a block of 256, times the sums of the inputs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn minima<const ROWS: usize>(scales: &[Half], x: &LargeBlocks<'_, ROWS>) -> [__m512; ROWS] {
    let mut least = [_mm512_setzero_ps(); ROWS];
    for (pair, half) in scales[4..8].iter().enumerate() {
        for (at, minima) in apart(_mm512_cvtepu8_epi16(load(half))).into_iter().enumerate() {
            for row in 0..ROWS {
                least[row] = _mm512_fmadd_ps(minima, _mm512_set1_ps(x.factors[row][2 * pair + at][1]), least[row]);
            }
        }
    }
    least
}

/// A block of 256 with a scale and a minimum for each 32.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn large_block<const ROWS: usize>(unit: &Unit<'_>, x: &Inputs<'_>, products: &mut [[f32; LANES]; ROWS]) {
    let scales = &unit.scales[..10];
    let x = x.large::<ROWS>(0, 0);
    let mut totals = [_mm512_setzero_ps(); ROWS];
    for (pair, lines) in unit.lines.as_chunks::<16>().0.iter().enumerate() {
        let scale = apart(_mm512_cvtepu8_epi16(load(&scales[pair])));
        for (at, lines) in lines.as_chunks::<8>().0.iter().enumerate() {
            let block = 2 * pair + at;
            let mut sums = [_mm512_setzero_si512(); ROWS];
            for (line, of_line) in lines.iter().enumerate() {
                let weights = weights(of_line);
                for row in 0..ROWS {
                    let four = _mm512_set1_epi32(x.quads[row][block][line]);
                    sums[row] = _mm512_dpbusd_epi32(sums[row], weights, four);
                }
            }
            for row in 0..ROWS {
                totals[row] = add_scaled(totals[row], sums[row], scale[at], x.factors[row][block][0]);
            }
        }
    }
    let least = minima(scales, &x);
    let factors = [_mm512_cvtph_ps(load(&scales[8])), _mm512_cvtph_ps(load(&scales[9]))];
    for row in 0..ROWS {
        // SAFETY: the array has sixteen numbers.
        unsafe {
            let product = _mm512_fmadd_ps(totals[row], factors[0], _mm512_loadu_ps(products[row].as_ptr()));
            _mm512_storeu_ps(products[row].as_mut_ptr(), _mm512_fnmadd_ps(least[row], factors[1], product));
        }
    }
}

/// A block of 256 with a scale for each 16; sums begin with what centres the numbers.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn six_bits<const ROWS: usize>(unit: &Unit<'_>, x: &Inputs<'_>, products: &mut [[f32; LANES]; ROWS]) {
    let scales = &unit.scales[..9];
    let x = x.large::<ROWS>(0, 0);
    let mut totals = [_mm512_setzero_ps(); ROWS];
    for [half, second, part] in super::ORDER_OF_16 {
        let block = 4 * half + part;
        let scale = apart(_mm512_cvtepi8_epi16(load(&scales[block])))[second];
        let mut sums = [_mm512_setzero_si512(); ROWS];
        for row in 0..ROWS {
            sums[row] = _mm512_set1_epi32(x.offsets[row][block][3 + second]);
        }
        for (at, line) in unit.lines.as_chunks::<4>().0[2 * block + second].iter().enumerate() {
            let weights = weights(line);
            for row in 0..ROWS {
                let four = _mm512_set1_epi32(x.quads[row][block][4 * second + at]);
                sums[row] = _mm512_dpbusd_epi32(sums[row], weights, four);
            }
        }
        for row in 0..ROWS {
            totals[row] = add_scaled(totals[row], sums[row], scale, x.factors[row][block][0]);
        }
    }
    let factors = _mm512_cvtph_ps(load(&scales[8]));
    for row in 0..ROWS {
        // SAFETY: the array has sixteen numbers.
        unsafe {
            let product = _mm512_fmadd_ps(totals[row], factors, _mm512_loadu_ps(products[row].as_ptr()));
            _mm512_storeu_ps(products[row].as_mut_ptr(), product);
        }
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
    let some = x.small::<ROWS>(0, blocks);
    let centre = unit.kind.centre();
    // SAFETY: the arrays have sixteen numbers.
    let mut products_of: [__m512; ROWS] = std::array::from_fn(|row| unsafe { _mm512_loadu_ps(products[row].as_ptr()) });
    for block in 0..blocks {
        let mut sums = [_mm512_setzero_si512(); ROWS];
        if !LEAST {
            for row in 0..ROWS {
                sums[row] = _mm512_set1_epi32(-centre * some[row].offsets[block][0]);
            }
        }
        for (line, of_line) in unit.lines.as_chunks::<8>().0[block].iter().enumerate() {
            let weights = weights(of_line);
            for row in 0..ROWS {
                let four = _mm512_set1_epi32(some[row].quads[block][line]);
                sums[row] = _mm512_dpbusd_epi32(sums[row], weights, four);
            }
        }
        let scales = _mm512_cvtph_ps(load(&unit.scales[block * halves]));
        for row in 0..ROWS {
            let factor = _mm512_mul_ps(scales, _mm512_set1_ps(some[row].factors[block][0]));
            products_of[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[row]), factor, products_of[row]);
        }
        if LEAST {
            let least = _mm512_cvtph_ps(load(&unit.scales[block * halves + 1]));
            for row in 0..ROWS {
                let sum = _mm512_set1_ps(some[row].factors[block][1]);
                products_of[row] = _mm512_fmadd_ps(least, sum, products_of[row]);
            }
        }
    }
    for (products, sums) in products.iter_mut().zip(products_of) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(products.as_mut_ptr(), sums) };
    }
}
