//! Attention to keys and values in blocks. A sequence lists its blocks in order; sequences with the same prefix list the same
//! ones. The location of a block changes no bit.

use super::elementwise::{Element, add_scaled, multiversion};
use lemon_model::simd;

/// Positions of a block: as many as a register has lanes, because the scores of a block are computed side by side.
pub(crate) const BLOCK: usize = 16;

/// What one head of one position attends to: the head's parts of the blocks, in order.
pub(crate) struct Seen<'a, E> {
    /// Keys of each block: (D, 16).
    pub(crate) keys: &'a [&'a [E]],
    /// Values of each block: (16, D).
    pub(crate) values: &'a [&'a [E]],
    /// Positions that are seen: at least one, and the last is in the last block.
    pub(crate) count: usize,
    /// The width of a head.
    pub(crate) dim: usize,
}

multiversion! {
    /// Attention of queries (G, D) that share a key head; `scores` is scratch memory.
    pub(crate) fn attend_f32(queries: &[f32], seen: &Seen<'_, f32>, scores: &mut Vec<f32>, out: &mut [f32]) {
        attend(queries, seen, scores, out);
    }
}

multiversion! {
    /// The same for keys and values in bf16.
    pub(crate) fn attend_bf16(queries: &[f32], seen: &Seen<'_, u16>, scores: &mut Vec<f32>, out: &mut [f32]) {
        attend(queries, seen, scores, out);
    }
}

#[inline(always)]
fn attend<E: Element>(queries: &[f32], seen: &Seen<'_, E>, scores: &mut Vec<f32>, out: &mut [f32]) {
    let dim = seen.dim;
    let scale = 1.0 / (dim as f32).sqrt();
    let width = seen.keys.len() * BLOCK;
    scores.resize(queries.len() / dim * width, 0.0);
    for (at, keys) in seen.keys.iter().enumerate() {
        for (query, scores) in queries.chunks_exact(dim).zip(scores.chunks_exact_mut(width)) {
            scores[at * BLOCK..][..BLOCK].copy_from_slice(&dots(query, keys.as_chunks().0));
        }
    }
    for (out, scores) in out.chunks_exact_mut(dim).zip(scores.chunks_exact_mut(width)) {
        let shares = &mut scores[..seen.count];
        let most = simd::largest(shares);
        for share in shares.iter_mut() {
            *share = simd::exp((*share - most) * scale);
        }
        let inverse = 1.0 / simd::sum(shares, |share| share);
        let (wide, rest) = out.as_chunks_mut::<64>();
        for (at, out) in wide.iter_mut().enumerate() {
            mean_of_64(seen, shares, 64 * at, out);
        }
        let start = 64 * wide.len();
        let (narrow, rest) = rest.as_chunks_mut::<16>();
        for (at, out) in narrow.iter_mut().enumerate() {
            mean_of_16(seen, shares, start + 16 * at, out);
        }
        let start = start + 16 * narrow.len();
        for (at, out) in rest.iter_mut().enumerate() {
            let values = seen.values.iter().flat_map(|values| values.iter().skip(start + at).step_by(dim));
            *out = shares.iter().zip(values).fold(0.0, |sum, (share, value)| sum + share * value.value());
        }
        for out in out.iter_mut() {
            *out *= inverse;
        }
    }
}

/// The products of a query with the keys of a block, in four independent chains. Each chain is a variable of its own, because
/// compilers keep variables in registers and long arrays in memory.
#[inline(always)]
fn dots<E: Element>(query: &[f32], keys: &[[E; BLOCK]]) -> [f32; BLOCK] {
    let (mut a, mut b, mut c, mut d) = ([0f32; BLOCK], [0f32; BLOCK], [0f32; BLOCK], [0f32; BLOCK]);
    let ((queries, rest), (keys, keys_rest)) = (query.as_chunks::<4>(), keys.as_chunks::<4>());
    for (query, keys) in queries.iter().zip(keys) {
        a = add_scaled(a, query[0], &keys[0]);
        b = add_scaled(b, query[1], &keys[1]);
        c = add_scaled(c, query[2], &keys[2]);
        d = add_scaled(d, query[3], &keys[3]);
    }
    for (query, keys) in rest.iter().zip(keys_rest) {
        a = add_scaled(a, *query, keys);
    }
    std::array::from_fn(|lane| (a[lane] + b[lane]) + (c[lane] + d[lane]))
}

/// 64 dimensions of the sum of the values, weighted by `shares`.
#[inline(always)]
fn mean_of_64<E: Element>(seen: &Seen<'_, E>, shares: &[f32], start: usize, out: &mut [f32; 64]) {
    let (mut a, mut b, mut c, mut d) = ([0f32; 16], [0f32; 16], [0f32; 16], [0f32; 16]);
    for (values, shares) in seen.values.iter().zip(shares.chunks(BLOCK)) {
        for (values, share) in values.chunks_exact(seen.dim).zip(shares) {
            if let [v0, v1, v2, v3] = values[start..start + 64].as_chunks::<16>().0 {
                a = add_scaled(a, *share, v0);
                b = add_scaled(b, *share, v1);
                c = add_scaled(c, *share, v2);
                d = add_scaled(d, *share, v3);
            }
        }
    }
    for (out, sum) in out.as_chunks_mut().0.iter_mut().zip([a, b, c, d]) {
        *out = sum;
    }
}

/// As [`mean_of_64`], for 16 dimensions.
#[inline(always)]
fn mean_of_16<E: Element>(seen: &Seen<'_, E>, shares: &[f32], start: usize, out: &mut [f32; 16]) {
    *out = [0.0; 16];
    for (values, shares) in seen.values.iter().zip(shares.chunks(BLOCK)) {
        for (values, share) in values.chunks_exact(seen.dim).zip(shares) {
            if let Some(values) = values[start..].first_chunk() {
                *out = add_scaled(*out, *share, values);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_num::Random;

    type Attend<E> = fn(&[f32], &Seen<'_, E>, &mut Vec<f32>, &mut [f32]);

    /// Queries of one key head of two, to `count` positions in blocks of this order.
    fn check<E: Element>(attend: Attend<E>, dim: usize, count: usize, order: &[u32]) -> Vec<f32> {
        let positions = order.len() * BLOCK;
        let (heads, group) = (2, 3);
        let queries = Random::new(1).normals(group * dim, 1.0);
        let texts = [2, 3].map(|seed| Random::new(seed).normals(positions * dim, 1.0).into_iter().map(E::new));
        let texts = texts.map(Iterator::collect::<Vec<E>>);
        let mut stored = [vec![E::new(7.0); 8 * heads * dim * BLOCK], vec![E::new(7.0); 8 * heads * dim * BLOCK]];
        for (position, at) in (0..positions).flat_map(|position| (0..dim).map(move |at| (position, at))) {
            let part = (order[position / BLOCK] as usize * heads + 1) * dim * BLOCK;
            let lane = position % BLOCK;
            stored[0][part + at * BLOCK + lane] = texts[0][position * dim + at];
            stored[1][part + lane * dim + at] = texts[1][position * dim + at];
        }
        let part = |all: usize, block: &u32| &stored[all][(*block as usize * heads + 1) * dim * BLOCK..][..dim * BLOCK];
        let keys: Vec<&[E]> = order.iter().map(|block| part(0, block)).collect();
        let values: Vec<&[E]> = order.iter().map(|block| part(1, block)).collect();
        let seen = Seen { keys: &keys, values: &values, count, dim };
        let mut out = vec![f32::NAN; group * dim];
        attend(&queries, &seen, &mut vec![5.0; 3], &mut out);
        for (query, out) in queries.chunks(dim).zip(out.chunks(dim)) {
            let score = |position: usize| -> f64 {
                let key = &texts[0][position * dim..][..dim];
                query.iter().zip(key).map(|(a, b)| f64::from(a * b.value())).sum::<f64>() / (dim as f64).sqrt()
            };
            let weights: Vec<f64> = (0..count).map(|position| score(position).exp()).collect();
            for (at, found) in out.iter().enumerate() {
                let value = |position: usize| f64::from(texts[1][position * dim + at].value());
                let sum: f64 = weights.iter().enumerate().map(|(position, weight)| weight * value(position)).sum();
                let exact = sum / weights.iter().sum::<f64>();
                assert!((f64::from(*found) - exact).abs() < 1e-5, "{found}, not {exact}");
            }
        }
        out
    }

    #[test]
    fn attention_is_that_of_the_formula_wherever_blocks_lie() {
        for dim in [2, 16, 48, 64, 96, 128, 134] {
            for count in [1usize, 15, 16, 17, 40] {
                let [here, there] = [[0, 1, 2], [6, 3, 7]];
                let (here, there) = (&here[..count.div_ceil(BLOCK)], &there[..count.div_ceil(BLOCK)]);
                assert_eq!(check(attend_f32, dim, count, here), check(attend_f32, dim, count, there));
                assert_eq!(check(attend_bf16, dim, count, here), check(attend_bf16, dim, count, there));
            }
        }
    }
}
