//! Products of few rows with a whole panel, with AVX2: numbers of four bits are unpacked in registers, as in `fused_vnni.rs`. And
//! how numbers are unpacked into memory for more rows.

// Called only where the processor has these instructions; loads stay inside arrays of known size.
#![allow(unsafe_code)]
// One number indexes the registers of several arrays.
#![allow(clippy::needless_range_loop)]

use super::super::int8::Bytes;
use super::super::panels::LANES;
use super::tiles_avx2::{add_products, doubled, load, minima, weights};
use super::{Half, Inputs, Kind, UNIT_LINES};
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
    x: &Inputs<'_>,
    products: &mut [[f32; LANES]],
) -> bool {
    // SAFETY: called only where the processor has the instructions.
    unsafe {
        match (kind, products.len()) {
            (Kind::Q4K, 1) => four_bits::<1>(lines, scales, x, products),
            (Kind::Q4K, 2) => four_bits::<2>(lines, scales, x, products),
            (Kind::Q4K, 4) => four_bits::<4>(lines, scales, x, products),
            _ => return false,
        }
    }
    true
}

/// Fetches a line that comes later.
#[inline]
pub(super) fn fetch_ahead(line: &Bytes) {
    // SAFETY: every processor of this architecture can; fetching ahead never fails, wherever it is.
    unsafe { _mm_prefetch::<_MM_HINT_T0>((&raw const *line).wrapping_add(AHEAD).cast()) };
}

/// One side of a line.
#[inline]
#[target_feature(enable = "avx2")]
fn line(line: &Bytes, side: usize) -> __m256i {
    fetch_ahead(line);
    weights(line, side)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn four_bits<const ROWS: usize>(lines: &[Bytes], scales: &[Half], x: &Inputs<'_>, products: &mut [[f32; LANES]]) {
    let (lines, scales) = (lines.as_chunks::<32>().0, scales.as_chunks::<10>().0);
    let mask = _mm256_set1_epi8(15);
    let mut sums = [[_mm256_setzero_ps(); ROWS]; 2];
    for (block, (lines, scales)) in lines.iter().zip(scales).enumerate() {
        let x = x.large::<ROWS>(0, block);
        for side in 0..2 {
            let mut totals = [_mm256_setzero_ps(); ROWS];
            for pair in 0..4 {
                let mut whole = [[_mm256_setzero_si256(); ROWS]; 2];
                for at in 0..8 {
                    let packed = line(&lines[8 * pair + at], side);
                    let low = _mm256_and_si256(packed, mask);
                    let high = _mm256_and_si256(_mm256_srli_epi16::<4>(packed), mask);
                    for row in 0..ROWS {
                        let four = [2 * pair, 2 * pair + 1].map(|block| _mm256_set1_epi32(x.quads[row][block][at]));
                        // Eight sums of two products of 15 · 127 at most fit 16 bits.
                        whole[0][row] = add_products(whole[0][row], low, four[0]);
                        whole[1][row] = add_products(whole[1][row], high, four[1]);
                    }
                }
                let scale = doubled(_mm256_cvtepu8_epi16(load(&scales[pair], side)));
                for at in 0..2 {
                    for row in 0..ROWS {
                        let factor = _mm256_set1_ps(x.factors[row][2 * pair + at][0]);
                        let whole = _mm256_cvtepi32_ps(_mm256_madd_epi16(whole[at][row], scale[at]));
                        totals[row] = _mm256_fmadd_ps(whole, factor, totals[row]);
                    }
                }
            }
            let least = minima(scales, &x, side);
            let factors = [_mm256_cvtph_ps(load(&scales[8], side)), _mm256_cvtph_ps(load(&scales[9], side))];
            for row in 0..ROWS {
                let sum = _mm256_fmadd_ps(totals[row], factors[0], sums[side][row]);
                sums[side][row] = _mm256_fnmadd_ps(least[row], factors[1], sum);
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

/// As [`super::blocks::unpack`], with the next lines fetched ahead.
pub(super) fn unpack(kind: Kind, packed: &[Bytes], lines: &mut [Bytes; UNIT_LINES]) {
    match (kind, packed.first_chunk(), packed.first_chunk()) {
        // SAFETY: called only where the processor has the instructions.
        (Kind::Q4K, Some(packed), _) => unsafe { unpack_four_bits(packed, lines) },
        // SAFETY: as above.
        (Kind::Q6K, _, Some(packed)) => unsafe { unpack_six_bits(packed, lines) },
        _ => {
            packed.iter().for_each(fetch_ahead);
            super::blocks::unpack(kind, packed, lines);
        }
    }
}

#[target_feature(enable = "avx2")]
fn unpack_four_bits(packed: &[Bytes; 32], lines: &mut [Bytes; UNIT_LINES]) {
    let mask = _mm256_set1_epi8(15);
    for (pair, packed) in packed.as_chunks::<8>().0.iter().enumerate() {
        for (at, packed) in packed.iter().enumerate() {
            for side in 0..2 {
                let both = line(packed, side);
                put(&mut lines[16 * pair + at], side, _mm256_and_si256(both, mask));
                put(&mut lines[16 * pair + 8 + at], side, _mm256_and_si256(_mm256_srli_epi16::<4>(both), mask));
            }
        }
    }
}

#[target_feature(enable = "avx2")]
fn unpack_six_bits(packed: &[Bytes; 48], lines: &mut [Bytes; UNIT_LINES]) {
    for half in 0..2 {
        for at in 0..8 {
            for side in 0..2 {
                for (part, six) in six_bit_weights(packed, half, at, side).into_iter().enumerate() {
                    put(&mut lines[32 * half + 8 * part + at], side, six);
                }
            }
        }
    }
}

/// Four inputs of the outputs of a side, from each of four groups of 32.
#[inline]
#[target_feature(enable = "avx2")]
fn six_bit_weights(lines: &[Bytes; 48], half: usize, at: usize, side: usize) -> [__m256i; 4] {
    let (low, high) = (_mm256_set1_epi8(15), _mm256_set1_epi8(48));
    let (a, b) = (line(&lines[16 * half + at], side), line(&lines[16 * half + 8 + at], side));
    let two = line(&lines[32 + 8 * half + at], side);
    let join = |four: __m256i, two: __m256i| _mm256_or_si256(_mm256_and_si256(four, low), _mm256_and_si256(two, high));
    [
        join(a, _mm256_slli_epi16::<4>(two)),
        join(b, _mm256_slli_epi16::<2>(two)),
        join(_mm256_srli_epi16::<4>(a), two),
        join(_mm256_srli_epi16::<4>(b), _mm256_srli_epi16::<2>(two)),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn put(place: &mut Bytes, side: usize, half: __m256i) {
    if let Some(place) = place.0.as_chunks_mut::<32>().0.get_mut(side) {
        // SAFETY: the place has 32 bytes.
        unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), half) };
    }
}
