//! Int8 products: weights and inputs in groups of 64, each group with its own scale factor.
//!
//! The sums within a group are exact integers, and groups are added in order with fused multiply-adds: every kernel below, on
//! every processor, gives the same bits.

// Functions compiled for wider registers are called only where the processor has them; their loads are aligned.
#![allow(unsafe_code)]

use super::elementwise::{self, multiversion};
use super::panels::{Floats, LANES, Rounded, TILE};
#[cfg(target_arch = "x86_64")]
use super::simd_level::{SimdLevel, simd_level};
use std::sync::OnceLock;

/// Numbers that share a scale factor.
pub(crate) const GROUP: usize = 64;
/// Numbers that an instruction sums at a time.
const QUAD: usize = 4;

/// Four weights of each output of a panel, each stored plus 128, because the instruction takes one side unsigned.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Bytes(pub(super) [u8; LANES * QUAD]);

// SAFETY: all bits zero are numbers: the least ones.
unsafe impl crate::shared_buffer::Number for Bytes {}

impl Bytes {
    /// Sixteen times four zero weights.
    pub(crate) const ZERO: Bytes = Bytes([128; LANES * QUAD]);

    /// The bytes, eight at a time.
    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        self.0.as_chunks::<8>().0.iter().map(|eight| u64::from_le_bytes(*eight))
    }
}

multiversion! {
    /// Quantises the weights of one output and stores them in their lane of a panel.
    pub(super) fn pack(weights: &[f32], lane: usize, lines: &mut [Bytes], factors: &mut [Floats]) {
        // Adding this rounds to a whole number, ties to even, and leaves it in the lowest bits.
        const ROUND: f32 = 12_582_912.0;
        for ((group, lines), factors) in weights.chunks(GROUP).zip(lines.chunks_mut(LANES)).zip(factors) {
            let (factor, inverse) = factor_of(elementwise::largest_magnitude(group));
            factors.0[lane] = factor;
            let mut bytes = [128u8; GROUP];
            for (byte, weight) in bytes.iter_mut().zip(group) {
                *byte = (weight * inverse + ROUND).to_bits() as u8 ^ 128;
            }
            for (line, quad) in lines.iter_mut().zip(bytes.as_chunks::<QUAD>().0) {
                line.0[lane * QUAD..][..QUAD].copy_from_slice(quad);
            }
        }
    }
}

/// The weights of one output of a panel.
pub(super) fn unpack(lines: &[Bytes], factors: &[Floats], lane: usize, weights: &mut [f32]) {
    for ((group, lines), factors) in weights.chunks_mut(GROUP).zip(lines.chunks(LANES)).zip(factors) {
        for (quad, line) in group.chunks_mut(QUAD).zip(lines) {
            for (at, weight) in quad.iter_mut().enumerate() {
                *weight = (f32::from(line.0[lane * QUAD + at]) - 128.0) * factors.0[lane];
            }
        }
    }
}

/// The factors of a group with this largest magnitude: after rounding, and before it. If the magnitude is NaN, so is the
/// first factor and every product: damage is never rounded away. If it is so small that its inverse overflows, all numbers
/// become zeros.
#[inline(always)]
pub(super) fn factor_of(most: f32) -> (f32, f32) {
    let inverse = 127.0 / most;
    (most / 127.0, if inverse.is_finite() { inverse } else { 0.0 })
}

/// Quantises an input row. The offsets cancel what the 128 in every weight adds.
pub(crate) fn round(row: &[f32], quads: &mut [i32], factors: &mut [f32], offsets: &mut [i32]) {
    #[cfg(target_arch = "x86_64")]
    if simd_level() >= SimdLevel::Avx512 {
        // SAFETY: the processor has been asked.
        return unsafe { vnni::round(row, quads, factors, offsets) };
    }
    round_anywhere(row, quads, factors, offsets);
}

multiversion! {
    /// As [`round`], on any processor.
    fn round_anywhere(row: &[f32], quads: &mut [i32], factors: &mut [f32], offsets: &mut [i32]) {
        // Adding this leaves the rounded number in the lowest bits.
        const ROUND: f32 = 12_582_912.0;
        let parts = quads.as_chunks_mut::<LANES>().0.iter_mut().zip(factors.iter_mut().zip(offsets));
        for (group, (quads, (factor, offset))) in row.chunks(GROUP).zip(parts) {
            let (up, down) = factor_of(elementwise::largest_magnitude(group));
            *factor = up;
            let mut bytes = [0u8; GROUP];
            let mut sum = 0;
            for (byte, value) in bytes.iter_mut().zip(group) {
                let whole = (value * down + ROUND).to_bits() as i8;
                *byte = whole as u8;
                sum += i32::from(whole);
            }
            *offset = -128 * sum;
            for (quad, four) in quads.iter_mut().zip(bytes.as_chunks::<QUAD>().0) {
                *quad = i32::from_le_bytes(*four);
            }
        }
    }
}

/// One, two, four or eight rows with one panel.
pub(super) fn tile(lines: &[Bytes], factors: &[Floats], x: Rounded<'_>, products: &mut [[f32; LANES]; TILE]) {
    static KERNEL: OnceLock<Tile> = OnceLock::new();
    KERNEL.get_or_init(kernel)(lines, factors, x, products);
}

type Tile = fn(&[Bytes], &[Floats], Rounded<'_>, &mut [[f32; LANES]; TILE]);

/// The kernel for this processor.
fn kernel() -> Tile {
    #[cfg(target_arch = "x86_64")]
    {
        if simd_level() == SimdLevel::Avx512Vnni {
            // SAFETY: the processor has been asked.
            return |lines, factors, x, products| unsafe { vnni::tile(lines, factors, x, products) };
        }
        if simd_level() >= SimdLevel::Avx2 {
            // SAFETY: as above.
            return |lines, factors, x, products| unsafe { avx2::tile(lines, factors, x, products) };
        }
    }
    anywhere
}

#[cfg(target_arch = "x86_64")]
mod vnni {
    use super::*;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn tile(lines: &[Bytes], factors: &[Floats], x: Rounded<'_>, products: &mut [[f32; LANES]; TILE]) {
        // Few rows are summed in several chains, because one would wait for itself.
        match x.factors.len() / factors.len().max(1) {
            1 => rows::<1, 4>(lines, factors, x, products),
            2 => rows::<2, 2>(lines, factors, x, products),
            4 => rows::<4, 1>(lines, factors, x, products),
            _ => rows::<8, 1>(lines, factors, x, products),
        }
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn round(row: &[f32], quads: &mut [i32], factors: &mut [f32], offsets: &mut [i32]) {
        let parts = quads.as_chunks_mut::<LANES>().0.iter_mut().zip(factors.iter_mut().zip(offsets));
        for (group, (quads, (factor, offset))) in row.chunks(GROUP).zip(parts) {
            let values: [__m512; 4] = std::array::from_fn(|at| {
                let part = group.get(LANES * at..).unwrap_or_default();
                let mask = ((1u32 << part.len().min(LANES)) - 1) as __mmask16;
                // SAFETY: the mask has no more numbers than there are; the others are zero.
                unsafe { _mm512_maskz_loadu_ps(mask, part.as_ptr()) }
            });
            // By their bits, as in `largest_magnitude`.
            let [a, b, c, d] = values.map(|it| _mm512_castps_si512(_mm512_abs_ps(it)));
            let most = _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_max_epi32(a, b), _mm512_max_epi32(c, d)));
            let (up, down) = factor_of(f32::from_bits(most as u32));
            *factor = up;
            let down = _mm512_set1_ps(down);
            let whole = values.map(|it| _mm512_cvtps_epi32(_mm512_mul_ps(it, down)));
            for (four, whole) in quads.as_chunks_mut::<4>().0.iter_mut().zip(whole) {
                // SAFETY: four words have room for sixteen bytes.
                unsafe { _mm_storeu_si128(four.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(whole)) };
            }
            let [a, b, c, d] = whole;
            let sum = _mm512_add_epi32(_mm512_add_epi32(a, b), _mm512_add_epi32(c, d));
            // What is no number becomes the least whole one, whose byte is zero, and so is this multiple of it.
            *offset = _mm512_reduce_add_epi32(sum).wrapping_mul(-128);
        }
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    fn rows<const ROWS: usize, const CHAINS: usize>(
        lines: &[Bytes],
        factors: &[Floats],
        x: Rounded<'_>,
        products: &mut [[f32; LANES]; TILE],
    ) {
        let groups = factors.len();
        let (quads, _) = x.quads.as_chunks::<LANES>();
        // Of one length each, so that the loop below needs no checks.
        let quads: [&[[i32; LANES]]; ROWS] = std::array::from_fn(|row| &quads[row * groups..][..groups]);
        let scales: [&[f32]; ROWS] = std::array::from_fn(|row| &x.factors[row * groups..][..groups]);
        let offsets: [&[i32]; ROWS] = std::array::from_fn(|row| &x.offsets[row * groups..][..groups]);
        let mut sums = [_mm512_setzero_ps(); ROWS];
        let (lines, _) = lines.as_chunks::<LANES>();
        for (group, (lines, factors)) in lines.iter().zip(factors).enumerate() {
            let mut whole = [[_mm512_setzero_si512(); CHAINS]; ROWS];
            for row in 0..ROWS {
                whole[row][0] = _mm512_set1_epi32(offsets[row][group]);
            }
            for (at, line) in lines.iter().enumerate() {
                // SAFETY: a line has 64 bytes and is aligned to them.
                let line = unsafe { _mm512_load_si512(line.0.as_ptr().cast()) };
                for row in 0..ROWS {
                    let four = _mm512_set1_epi32(quads[row][group][at]);
                    whole[row][at % CHAINS] = _mm512_dpbusd_epi32(whole[row][at % CHAINS], line, four);
                }
            }
            // SAFETY: as above.
            let factors = unsafe { _mm512_load_ps(factors.0.as_ptr()) };
            for row in 0..ROWS {
                let sum = whole[row].into_iter().fold(_mm512_setzero_si512(), |sum, it| _mm512_add_epi32(sum, it));
                let factor = _mm512_mul_ps(factors, _mm512_set1_ps(scales[row][group]));
                sums[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), factor, sums[row]);
            }
        }
        for (products, sum) in products.iter_mut().zip(sums) {
            // SAFETY: the array has room for sixteen numbers.
            unsafe { _mm512_storeu_ps(products.as_mut_ptr(), sum) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::*;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn tile(lines: &[Bytes], factors: &[Floats], x: Rounded<'_>, products: &mut [[f32; LANES]; TILE]) {
        let groups = factors.len().max(1);
        let rows = x.quads.chunks(groups * LANES).zip(x.factors.chunks(groups));
        for ((quads, scales), products) in rows.zip(products) {
            row(lines, factors, quads, scales, products);
        }
    }

    #[target_feature(enable = "avx2,fma")]
    fn row(lines: &[Bytes], factors: &[Floats], quads: &[i32], scales: &[f32], products: &mut [f32; LANES]) {
        let mut sums = [_mm256_setzero_ps(); 2];
        let (bias, ones) = (_mm256_set1_epi8(-128), _mm256_set1_epi16(1));
        let groups = lines.chunks(LANES).zip(quads.chunks(LANES)).zip(factors.iter().zip(scales));
        for ((lines, quads), (factors, scale)) in groups {
            let mut whole = [_mm256_setzero_si256(); 2];
            for (line, four) in lines.iter().zip(quads) {
                let four = _mm256_set1_epi32(*four);
                let size = _mm256_abs_epi8(four);
                for (half, whole) in whole.iter_mut().enumerate() {
                    // SAFETY: a line has 64 bytes and is aligned to them.
                    let bytes = unsafe { _mm256_load_si256(line.0.as_ptr().add(32 * half).cast()) };
                    // The instruction wants one side unsigned, so the sign moves to the other; 2 · 127² fits 16 bits.
                    let signed = _mm256_sign_epi8(_mm256_xor_si256(bytes, bias), four);
                    let pairs = _mm256_maddubs_epi16(size, signed);
                    *whole = _mm256_add_epi32(*whole, _mm256_madd_epi16(pairs, ones));
                }
            }
            for half in 0..2 {
                // SAFETY: as above.
                let factors = unsafe { _mm256_load_ps(factors.0.as_ptr().add(8 * half)) };
                let factor = _mm256_mul_ps(factors, _mm256_set1_ps(*scale));
                sums[half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole[half]), factor, sums[half]);
            }
        }
        for (products, sum) in products.chunks_exact_mut(8).zip(sums) {
            // SAFETY: the chunk has room for eight numbers.
            unsafe { _mm256_storeu_ps(products.as_mut_ptr(), sum) };
        }
    }
}

fn anywhere(lines: &[Bytes], factors: &[Floats], x: Rounded<'_>, products: &mut [[f32; LANES]; TILE]) {
    let groups = factors.len().max(1);
    let rows = x.quads.chunks(groups * LANES).zip(x.factors.chunks(groups)).zip(x.offsets.chunks(groups));
    for (((quads, scales), offsets), products) in rows.zip(products) {
        *products = [0.0; LANES];
        let groups = lines.chunks(LANES).zip(quads.chunks(LANES)).zip(factors.iter().zip(scales.iter().zip(offsets)));
        for ((lines, quads), (factors, (scale, offset))) in groups {
            let mut whole = [*offset; LANES];
            for (line, four) in lines.iter().zip(quads) {
                let four = four.to_le_bytes().map(|it| i32::from(it as i8));
                for (sum, weights) in whole.iter_mut().zip(line.0.as_chunks::<QUAD>().0) {
                    *sum += weights.iter().zip(four).map(|(weight, it)| i32::from(*weight) * it).sum::<i32>();
                }
            }
            for ((product, whole), factor) in products.iter_mut().zip(whole).zip(factors.0) {
                *product = (whole as f32).mul_add(factor * scale, *product);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_num::Random;

    #[test]
    fn weights_are_rounded_to_the_nearest_and_ties_to_even() {
        let mut weights = lemon_num::Random::new(9).normals(50 * GROUP, 1.0);
        for (at, group) in weights.chunks_mut(GROUP).enumerate().filter(|(at, _)| at % 2 == 0) {
            // With 127 in it, the factor is one: every number is a tie.
            group.iter_mut().enumerate().for_each(|(place, weight)| *weight = (place + at) as f32 - 63.5);
            group[5] = 127.0;
        }
        let (mut lines, mut factors) = (vec![Bytes::ZERO; 50 * LANES], vec![Floats([0.0; LANES]); 50]);
        pack(&weights, 3, &mut lines, &mut factors);
        for (at, weight) in weights.iter().enumerate() {
            let (_, inverse) = factor_of(elementwise::largest_magnitude(&weights[at / GROUP * GROUP..][..GROUP]));
            let expected = ((weight * inverse).round_ties_even() as i8).wrapping_add(-128) as u8;
            assert_eq!(lines[at / QUAD].0[3 * QUAD + at % QUAD], expected, "{at}: {weight}");
        }
    }

    /// The products of rows with a panel, `rows` at a time.
    fn products(kernel: Tile, weights: &[f32], x: &[f32], ins: usize, rows: usize) -> Vec<[f32; LANES]> {
        let groups = ins.div_ceil(GROUP);
        let (mut lines, mut factors) = (vec![Bytes::ZERO; groups * LANES], vec![Floats([0.0; LANES]); groups]);
        for (lane, weights) in weights.chunks(ins).enumerate() {
            pack(weights, lane, &mut lines, &mut factors);
        }
        let mut all = Vec::new();
        for x in x.chunks(rows * ins) {
            let count = x.len() / ins;
            let (mut quads, mut scales, mut offsets) =
                (vec![0; count * groups * LANES], vec![0.0; count * groups], vec![0; count * groups]);
            for (row, x) in x.chunks(ins).enumerate() {
                let part = row * groups..(row + 1) * groups;
                let quads = &mut quads[part.start * LANES..part.end * LANES];
                round(x, quads, &mut scales[part.clone()], &mut offsets[part]);
            }
            let mut products = [[f32::NAN; LANES]; TILE];
            kernel(&lines, &factors, Rounded { quads: &quads, factors: &scales, offsets: &offsets }, &mut products);
            all.extend_from_slice(&products[..count]);
        }
        all
    }

    #[test]
    fn every_kernel_and_every_number_of_rows_gives_the_same_bits() {
        for ins in [1, 4, 63, 64, 65, 192, 300] {
            let (weights, mut x) = (Random::new(3).normals(LANES * ins, 0.1), Random::new(4).normals(8 * ins, 2.0));
            x[0] = -50.0;
            let expected = products(anywhere, &weights, &x, ins, 1);
            for rows in [1, 2, 4, 8] {
                assert_eq!(products(kernel(), &weights, &x, ins, rows), expected, "{rows} rows of {ins}");
                assert_eq!(products(anywhere, &weights, &x, ins, rows), expected, "{rows} rows of {ins}, anywhere");
                #[cfg(target_arch = "x86_64")]
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the processor has been asked.
                    let avx2: Tile = |lines, factors, x, products| unsafe { avx2::tile(lines, factors, x, products) };
                    assert_eq!(products(avx2, &weights, &x, ins, rows), expected, "{rows} rows of {ins}, AVX2");
                }
            }
        }
    }

    type Round = fn(&[f32], &mut [i32], &mut [f32], &mut [i32]);

    #[test]
    fn rows_are_rounded_alike_everywhere() {
        for groups in 1..6 {
            let mut row = Random::new(groups as u64).normals(groups * GROUP, 3.0);
            row[..GROUP].fill(if groups == 1 { 0.0 } else { -0.5 });
            let rounded = |round: Round| {
                let (mut quads, mut factors, mut offsets) =
                    (vec![7; groups * LANES], vec![7.0; groups], vec![7; groups]);
                round(&row, &mut quads, &mut factors, &mut offsets);
                (quads, factors, offsets)
            };
            assert_eq!(rounded(round), rounded(round_anywhere));
        }
    }

    #[test]
    fn what_is_no_number_shows_in_every_product() {
        for ins in [64, 100, 192] {
            for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in [0, 17, 63, ins - 1] {
                    let (mut weights, mut x) = (vec![0.5; LANES * ins], vec![2.0; ins]);
                    weights[3 * ins + at] = bad;
                    for kernel in [kernel(), anywhere] {
                        let found = products(kernel, &weights, &x, ins, 1)[0];
                        let wrong: Vec<usize> = (0..LANES).filter(|lane| !found[*lane].is_finite()).collect();
                        assert_eq!(wrong, [3], "a weight of {bad} at {at} of {ins}");
                    }
                    weights.fill(0.5);
                    x[at] = bad;
                    for kernel in [kernel(), anywhere] {
                        let found = products(kernel, &weights, &x, ins, 1)[0];
                        assert!(found.iter().all(|it| !it.is_finite()), "an input of {bad} at {at} of {ins}");
                    }
                    for round in [round as Round, round_anywhere] {
                        let groups = ins.div_ceil(GROUP);
                        let (mut quads, mut factors, mut offsets) =
                            (vec![7; groups * LANES], vec![7.0; groups], vec![7; groups]);
                        round(&x, &mut quads, &mut factors, &mut offsets);
                        assert!(!factors[at / GROUP].is_finite(), "{bad} at {at} of {ins}");
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_next_to_nothing_are_zeros_everywhere() {
        // 127 divided by them is no number any more.
        for size in [1e-45f32, 1e-43, 1e-38, 3e-37] {
            let ins = 128;
            let tiny: Vec<f32> = (0..ins).map(|at| [size, 0.0, -size, size / 2.0][at % 4]).collect();
            let ones = vec![1.0; LANES * ins];
            for kernel in [kernel(), anywhere] {
                assert_eq!(products(kernel, &ones, &tiny, ins, 1)[0], [0.0; LANES], "inputs of {size}");
                assert_eq!(products(kernel, &tiny.repeat(LANES), &ones[..ins], ins, 1)[0], [0.0; LANES], "{size}");
            }
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let ins = 256;
        for sign in [1.0, -1.0] {
            let (weights, x) = (vec![3.0; LANES * ins], vec![sign * 2.0; ins]);
            for kernel in [kernel(), anywhere] {
                for product in products(kernel, &weights, &x, ins, 1)[0] {
                    assert!((product - sign * 6.0 * ins as f32).abs() < 0.01, "{product}");
                }
            }
        }
    }
}
