//! Sums, maxima and exponentials over slices, written so that compilers turn them into vector instructions. The order of
//! addition is fixed: every processor gives the same bits.

/// Accumulators of a sum: wide enough for the widest vectors, and part of the result, since they fix the order of addition.
const LANES: usize = 16;

/// The sum of `term(a)`.
#[inline(always)]
pub fn sum(values: &[f32], term: impl Fn(f32) -> f32) -> f32 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0f32; LANES];
    for chunk in chunks {
        for (lane, &a) in lanes.iter_mut().zip(chunk) {
            *lane += term(a);
        }
    }
    for (lane, &a) in lanes.iter_mut().zip(rest) {
        *lane += term(a);
    }
    total(lanes)
}

/// The sum of `term(a, b)`. The slices have the same length.
#[inline(always)]
pub(crate) fn sum2(first: &[f32], second: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let (chunks, rest) = first.as_chunks::<LANES>();
    let (chunks_b, rest_b) = second.as_chunks::<LANES>();
    let mut lanes = [0f32; LANES];
    for (chunk, chunk_b) in chunks.iter().zip(chunks_b) {
        for ((lane, &a), &b) in lanes.iter_mut().zip(chunk).zip(chunk_b) {
            *lane += term(a, b);
        }
    }
    for ((lane, &a), &b) in lanes.iter_mut().zip(rest).zip(rest_b) {
        *lane += term(a, b);
    }
    total(lanes)
}

/// The largest value; NaN is passed over (the sum that follows a maximum shows it), negative infinity if there is none.
#[inline(always)]
pub fn largest(values: &[f32]) -> f32 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (lane, &a) in lanes.iter_mut().zip(chunk) {
            *lane = greater(a, *lane);
        }
    }
    rest.iter().chain(&lanes).fold(f32::NEG_INFINITY, |most, &a| greater(a, most))
}

/// `f32::max` compiles to more than one instruction, because it treats NaN on either side alike.
#[inline(always)]
pub(crate) fn greater(a: f32, most: f32) -> f32 {
    if a > most { a } else { most }
}

/// Adds up the accumulators, halves onto halves.
#[inline(always)]
pub(crate) fn total<const N: usize>(mut lanes: [f32; N]) -> f32 {
    let mut width = N;
    while width > 1 {
        let (low, high) = lanes.split_at_mut(width / 2);
        for (a, b) in low.iter_mut().zip(high) {
            *a += *b;
        }
        width /= 2;
    }
    lanes[0]
}

/// The exponential, to about one unit in the last place: 0 below -87, saturated above 88, NaN for NaN. The standard
/// library's is a call for each element, which takes two to four times as long as this in a loop.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding this rounds to an integer and leaves it in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; the first has few enough digits that its product with an integer below 2^15 is exact.
    const LN_2_HIGH: f32 = 355.0 / 512.0;
    const LN_2_LOW: f32 = (std::f64::consts::LN_2 - 355.0 / 512.0) as f32;

    let bounded = if x > 88.0 { 88.0 } else { x };
    let rounded = bounded * std::f32::consts::LOG2_E + ROUND;
    let power = rounded - ROUND;
    // e^x = 2^power · e^rest with |rest| ≤ ln 2 / 2, where the series to the seventh power is exact to 5e-9.
    let rest = bounded - power * LN_2_HIGH - power * LN_2_LOW;
    let series = 1.0 / 5_040.0;
    let series = series * rest + 1.0 / 720.0;
    let series = series * rest + 1.0 / 120.0;
    let series = series * rest + 1.0 / 24.0;
    let series = series * rest + 1.0 / 6.0;
    let series = series * rest + 0.5;
    let series = series * (rest * rest) + rest + 1.0;
    let scale = f32::from_bits((rounded.to_bits() << 23).wrapping_add(1f32.to_bits()));
    if x < -87.0 { 0.0 } else { series * scale }
}
