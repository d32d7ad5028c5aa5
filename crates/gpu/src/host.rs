//! The same model in plain arithmetic on the CPU: what the kernels are checked against.

use crate::batch::Sampling;
use crate::shape::{ModelShape, Part, Tensor};
use std::collections::HashMap;

/// A model with its weights in memory, rounded as on the device.
pub struct HostModel {
    shape: ModelShape,
    weights: HashMap<Tensor, Vec<f32>>,
}

/// The keys and values of a sequence, by layer.
#[derive(Clone, Default)]
pub(crate) struct HostSequence {
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
    length: usize,
}

impl HostModel {
    /// A model with pseudo-random weights, norms and biases.
    pub fn random(shape: ModelShape, seed: u64) -> HostModel {
        let mut state = seed;
        let weights = shape.tensors().into_iter().map(|(tensor, rows, width)| {
            let matrix = rows > 1;
            let values = (0..rows * width).map(|_| {
                let uniform = uniform(&mut state);
                match tensor {
                    _ if matrix => rounded(uniform * (3.0 / width as f32).sqrt()),
                    Tensor::Layer(_, Part::QkvBias | Part::OBias) => uniform * 0.5,
                    _ => 1.0 + 0.3 * uniform,
                }
            });
            (tensor, values.collect())
        });
        HostModel { weights: weights.collect(), shape }
    }

    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The values of a tensor; none if the model has no such tensor.
    pub fn tensor(&self, tensor: Tensor) -> &[f32] {
        self.weights.get(&tensor).map_or(&[], Vec::as_slice)
    }

    /// Reads a token and returns the logits after it.
    pub(crate) fn advance(&self, sequence: &mut HostSequence, token: u32) -> Vec<f32> {
        let ModelShape { hidden, intermediate, heads, kv_heads, head_dim: dim, layers, .. } = self.shape;
        sequence.keys.resize(layers, Vec::new());
        sequence.values.resize(layers, Vec::new());
        let mut x = self.tensor(Tensor::Embedding)[token as usize * hidden..][..hidden].to_vec();
        for layer in 0..layers {
            let of = |part| self.tensor(Tensor::Layer(layer, part));
            let mut qkv = product(of(Part::Qkv), &self.normed(&x, of(Part::InputNorm)));
            add(&mut qkv, of(Part::QkvBias));
            for (head, part) in qkv.chunks_mut(dim).take(heads + kv_heads).enumerate() {
                if self.shape.qk_norm {
                    let normed = self.normed(part, of(if head < heads { Part::QNorm } else { Part::KNorm }));
                    part.copy_from_slice(&normed);
                }
                for (at, frequency) in self.shape.frequencies.iter().enumerate() {
                    let (sin, cos) = (sequence.length as f32 * frequency).sin_cos();
                    let (a, b) = (part[at], part[at + dim / 2]);
                    (part[at], part[at + dim / 2]) = (a * cos - b * sin, b * cos + a * sin);
                }
            }
            let (q, kv) = qkv.split_at(heads * dim);
            let (keys, values) = (&mut sequence.keys[layer], &mut sequence.values[layer]);
            keys.extend_from_slice(&kv[..kv_heads * dim]);
            values.extend_from_slice(&kv[kv_heads * dim..]);
            let attended: Vec<f32> = q
                .chunks(dim)
                .enumerate()
                .flat_map(|(head, query)| attend(query, keys, values, head * kv_heads / heads, kv_heads))
                .collect();
            add(&mut x, &product(of(Part::O), &attended));
            add(&mut x, of(Part::OBias));
            let gate_up = product(of(Part::GateUp), &self.normed(&x, of(Part::PostNorm)));
            let (gate, up) = gate_up.split_at(intermediate);
            let gated: Vec<f32> = gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
            add(&mut x, &product(of(Part::Down), &gated));
        }
        sequence.length += 1;
        let head = self.tensor(if self.shape.tied { Tensor::Embedding } else { Tensor::Head });
        product(head, &self.normed(&x, self.tensor(Tensor::Norm)))
    }

    fn normed(&self, x: &[f32], weight: &[f32]) -> Vec<f32> {
        let square: f32 = x.iter().map(|x| x * x).sum();
        let factor = 1.0 / (square / x.len() as f32 + self.shape.epsilon).sqrt();
        x.iter().zip(weight).map(|(x, weight)| x * factor * weight).collect()
    }
}

/// Attention of one query to all positions of its key head.
fn attend(query: &[f32], keys: &[f32], values: &[f32], head: usize, kv_heads: usize) -> Vec<f32> {
    let dim = query.len();
    let of_head = |all: &[f32]| -> Vec<Vec<f32>> {
        all.chunks(kv_heads * dim).map(|position| position[head * dim..][..dim].to_vec()).collect()
    };
    let scores: Vec<f32> = of_head(keys)
        .iter()
        .map(|key| key.iter().zip(query).map(|(a, b)| a * b).sum::<f32>() / (dim as f32).sqrt())
        .collect();
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shares: Vec<f32> = scores.iter().map(|score| (score - most).exp()).collect();
    let total: f32 = shares.iter().sum();
    let mut out = vec![0.0; dim];
    for (share, value) in shares.iter().zip(of_head(values)) {
        for (out, value) in out.iter_mut().zip(value) {
            *out += share / total * value;
        }
    }
    out
}

fn product(weight: &[f32], x: &[f32]) -> Vec<f32> {
    weight.chunks(x.len()).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

fn add(to: &mut [f32], what: &[f32]) {
    for (to, what) in to.iter_mut().zip(what) {
        *to += what;
    }
}

/// To the nearest bf16, ties to even.
pub(crate) fn rounded(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits(bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// SplitMix64.
fn splitmix(seed: u64) -> u64 {
    let bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// The next number between -1 and 1.
pub(crate) fn uniform(state: &mut u64) -> f32 {
    *state = state.wrapping_add(1);
    (splitmix(*state) >> 40) as f32 / 8_388_608.0 - 1.0
}

/// What the kernel `draw` draws: the value that each token competes with, or minus infinity, and the log-probability that it is
/// drawn with, before `top_p`.
pub(crate) fn competition(logits: &[f32], mask: Option<&[u32]>, how: &Sampling) -> Vec<(f64, f64)> {
    let allowed = |at: usize| mask.is_none_or(|mask| mask[at / 32] >> (at % 32) & 1 == 1);
    let greedy = how.temperature == 0.0;
    let inverse = if greedy { 1.0 } else { 1.0 / f64::from(how.temperature) };
    let scaled = |at: usize| if allowed(at) { f64::from(logits[at]) * inverse } else { f64::NEG_INFINITY };
    let most = (0..logits.len()).map(scaled).fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = (0..logits.len()).map(|at| (scaled(at) - most).exp()).sum();
    let logprob = |at: usize| scaled(at) - most - total.ln();
    // The likeliest tokens that together have top_p: all those at least as likely as the last one that is needed.
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| scaled(*b).total_cmp(&scaled(*a)));
    let mut sum = 0.0;
    let needed = order.iter().take_while(|at| {
        let more = sum < f64::from(how.top_p);
        sum += logprob(**at).exp();
        more
    });
    let count = needed.count().max(1);
    let least = order.get(count - 1).map_or(f64::NEG_INFINITY, |at| scaled(*at));
    let least = if greedy || how.top_p >= 1.0 { f64::NEG_INFINITY } else { least };
    let bits = splitmix(splitmix(how.seed) ^ how.index);
    let value = |at: usize| {
        if !allowed(at) || scaled(at) < least {
            return f64::NEG_INFINITY;
        }
        scaled(at) + if greedy { 0.0 } else { noise([bits as u32, (bits >> 32) as u32], at as u32) }
    };
    (0..logits.len()).map(|at| (value(at), logprob(at))).collect()
}

/// Gumbel noise, as the CPU's engine draws it.
fn noise(key: [u32; 2], token: u32) -> f64 {
    let mix = |bits: u32, factor: u32, shift: u32| (bits ^ (bits >> shift)).wrapping_mul(factor);
    let bits = mix(token.wrapping_mul(0x9e37_79b9).wrapping_add(key[0]), 0x21f0_aaad, 16);
    let bits = mix(bits ^ key[1], 0x735a_2d97, 15);
    let bits = mix(bits, 0x85eb_ca6b, 15);
    let bits = bits ^ (bits >> 16);
    let uniform = (f64::from(bits) + 0.5) / 4_294_967_296.0;
    -(-(-uniform).ln_1p()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_the_nearest_bf16() {
        for (value, nearest) in [(1.0, 1.0), (1.001, 1.0), (1.005, 1.007_812_5), (-3.01, -3.015_625), (0.0, 0.0)] {
            assert_eq!(rounded(value), nearest);
        }
    }

    #[test]
    fn top_p_and_masks_leave_the_right_tokens() {
        let logits = [0.1f32, 0.4, 0.2, 0.3].map(f32::ln);
        let kept = |top_p, mask: Option<&[u32]>| {
            let how = Sampling { temperature: 1.0, top_p, seed: 1, index: 2, mask: None };
            let all = competition(&logits, mask, &how);
            all.iter().map(|(value, _)| value.is_finite()).collect::<Vec<_>>()
        };
        assert_eq!(kept(1.0, None), [true; 4]);
        assert_eq!(kept(0.5, None), [false, true, false, true]);
        assert_eq!(kept(0.0, None), [false, true, false, false]);
        assert_eq!(kept(0.6, Some(&[0b1101])), [false, false, true, true]);
    }

    #[test]
    fn a_sequence_sees_its_past() {
        let shape = ModelShape {
            vocabulary: 11,
            hidden: 16,
            intermediate: 8,
            layers: 2,
            heads: 2,
            kv_heads: 1,
            head_dim: 16,
            frequencies: crate::shape::frequencies(1e4, 16),
            ..ModelShape::smol_135m()
        };
        let model = HostModel::random(shape, 3);
        let last = |tokens: &[u32]| {
            let mut sequence = HostSequence::default();
            tokens.iter().map(|token| model.advance(&mut sequence, *token)).last().unwrap_or_default()
        };
        assert_eq!(last(&[1, 2, 3]), last(&[1, 2, 3]));
        assert_ne!(last(&[1, 2, 3]), last(&[2, 1, 3]));
        assert_eq!(last(&[3]).len(), 11);
    }
}
