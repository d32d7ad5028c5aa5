//! Products of few rows with a whole panel, with AVX-512 and its int8 products: numbers are unpacked in registers.
//!
//! With few rows the time goes into reading weights, so nothing is written back and the next lines are fetched ahead.

// Called only where the processor has these instructions; loads stay inside arrays of known size.
#![allow(unsafe_code)]
// One number indexes the registers of several arrays.
#![allow(clippy::needless_range_loop)]

use super::super::int8::Bytes;
use super::super::panels::LANES;
use super::fused_avx2::fetch_ahead;
use super::tiles_vnni::{add_scaled, apart, load, minima, weights};
use super::{Half, Inputs, Kind, UNIT_LINES};
use std::arch::x86_64::*;

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
            (Kind::Q6K, 1) => six_bits::<1>(lines, scales, x, products),
            (Kind::Q6K, 2) => six_bits::<2>(lines, scales, x, products),
            (Kind::Q6K, 4) => six_bits::<4>(lines, scales, x, products),
            _ => return false,
        }
    }
    true
}

#[inline]
#[target_feature(enable = "avx512f")]
fn line(line: &Bytes) -> __m512i {
    fetch_ahead(line);
    weights(line)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn four_bits<const ROWS: usize>(lines: &[Bytes], scales: &[Half], x: &Inputs<'_>, products: &mut [[f32; LANES]]) {
    let (lines, scales) = (lines.as_chunks::<32>().0, scales.as_chunks::<10>().0);
    let mask = _mm512_set1_epi8(15);
    let mut sums = [_mm512_setzero_ps(); ROWS];
    for (block, (lines, scales)) in lines.iter().zip(scales).enumerate() {
        let x = x.large::<ROWS>(0, block);
        let mut totals = [_mm512_setzero_ps(); ROWS];
        for pair in 0..4 {
            let mut whole = [[_mm512_setzero_si512(); ROWS]; 2];
            for at in 0..8 {
                let packed = line(&lines[8 * pair + at]);
                let low = _mm512_and_si512(packed, mask);
                let high = _mm512_and_si512(_mm512_srli_epi16::<4>(packed), mask);
                for row in 0..ROWS {
                    let four = [2 * pair, 2 * pair + 1].map(|block| _mm512_set1_epi32(x.quads[row][block][at]));
                    whole[0][row] = _mm512_dpbusd_epi32(whole[0][row], low, four[0]);
                    whole[1][row] = _mm512_dpbusd_epi32(whole[1][row], high, four[1]);
                }
            }
            let scale = apart(_mm512_cvtepu8_epi16(load(&scales[pair])));
            for at in 0..2 {
                for row in 0..ROWS {
                    let factor = x.factors[row][2 * pair + at][0];
                    totals[row] = add_scaled(totals[row], whole[at][row], scale[at], factor);
                }
            }
        }
        let least = minima(scales, &x);
        let factors = [_mm512_cvtph_ps(load(&scales[8])), _mm512_cvtph_ps(load(&scales[9]))];
        for row in 0..ROWS {
            let sum = _mm512_fmadd_ps(totals[row], factors[0], sums[row]);
            sums[row] = _mm512_fnmadd_ps(least[row], factors[1], sum);
        }
    }
    store(sums, products);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn six_bits<const ROWS: usize>(lines: &[Bytes], scales: &[Half], x: &Inputs<'_>, products: &mut [[f32; LANES]]) {
    let (lines, scales) = (lines.as_chunks::<48>().0, scales.as_chunks::<9>().0);
    let mut sums = [_mm512_setzero_ps(); ROWS];
    for (block, (lines, scales)) in lines.iter().zip(scales).enumerate() {
        let x = x.large::<ROWS>(0, block);
        let mut totals = [_mm512_setzero_ps(); ROWS];
        for half in 0..2 {
            // Of each group of 32 inputs, the first 16 and then the others: each 16 have a scale.
            for second in 0..2 {
                // Sums begin with what centres the numbers.
                let mut whole = [[_mm512_setzero_si512(); ROWS]; 4];
                for part in 0..4 {
                    for row in 0..ROWS {
                        whole[part][row] = _mm512_set1_epi32(x.offsets[row][4 * half + part][3 + second]);
                    }
                }
                for at in 4 * second..4 * second + 4 {
                    let six = six_bit_weights(lines, half, at);
                    for row in 0..ROWS {
                        for part in 0..4 {
                            let four = _mm512_set1_epi32(x.quads[row][4 * half + part][at]);
                            whole[part][row] = _mm512_dpbusd_epi32(whole[part][row], six[part], four);
                        }
                    }
                }
                for part in 0..4 {
                    let block = 4 * half + part;
                    let scale = apart(_mm512_cvtepi8_epi16(load(&scales[block])))[second];
                    for row in 0..ROWS {
                        totals[row] = add_scaled(totals[row], whole[part][row], scale, x.factors[row][block][0]);
                    }
                }
            }
        }
        let factors = _mm512_cvtph_ps(load(&scales[8]));
        for row in 0..ROWS {
            sums[row] = _mm512_fmadd_ps(totals[row], factors, sums[row]);
        }
    }
    store(sums, products);
}

#[target_feature(enable = "avx512f")]
fn store<const ROWS: usize>(sums: [__m512; ROWS], products: &mut [[f32; LANES]]) {
    for (products, sum) in products.iter_mut().zip(sums) {
        // SAFETY: the array has room for sixteen numbers.
        unsafe { _mm512_storeu_ps(products.as_mut_ptr(), sum) };
    }
}

/// As [`super::blocks::unpack`]; compilers do not find the fastest way for the formats with large blocks.
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

#[target_feature(enable = "avx512f,avx512bw")]
fn unpack_four_bits(packed: &[Bytes; 32], lines: &mut [Bytes; UNIT_LINES]) {
    let mask = _mm512_set1_epi8(15);
    for pair in 0..4 {
        for at in 0..8 {
            let line = line(&packed[8 * pair + at]);
            put(&mut lines[16 * pair + at], _mm512_and_si512(line, mask));
            put(&mut lines[16 * pair + 8 + at], _mm512_and_si512(_mm512_srli_epi16::<4>(line), mask));
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn unpack_six_bits(packed: &[Bytes; 48], lines: &mut [Bytes; UNIT_LINES]) {
    for half in 0..2 {
        for at in 0..8 {
            for (part, weights) in six_bit_weights(packed, half, at).into_iter().enumerate() {
                put(&mut lines[32 * half + 8 * part + at], weights);
            }
        }
    }
}

/// Four inputs of each output of a panel, from each of four groups of 32.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn six_bit_weights(lines: &[Bytes; 48], half: usize, at: usize) -> [__m512i; 4] {
    let (low, high) = (_mm512_set1_epi8(15), _mm512_set1_epi8(48));
    let (a, b) = (line(&lines[16 * half + at]), line(&lines[16 * half + 8 + at]));
    let two = line(&lines[32 + 8 * half + at]);
    let join = |four: __m512i, two: __m512i| _mm512_or_si512(_mm512_and_si512(four, low), _mm512_and_si512(two, high));
    [
        join(a, _mm512_slli_epi16::<4>(two)),
        join(b, _mm512_slli_epi16::<2>(two)),
        join(_mm512_srli_epi16::<4>(a), two),
        join(_mm512_srli_epi16::<4>(b), _mm512_srli_epi16::<2>(two)),
    ]
}

#[target_feature(enable = "avx512f")]
fn put(place: &mut Bytes, line: __m512i) {
    // SAFETY: a line has 64 bytes and is aligned to them.
    unsafe { _mm512_store_si512((&raw mut place.0).cast(), line) }
}
