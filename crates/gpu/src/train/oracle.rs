//! The gradient of a model in plain arithmetic on the CPU: what training on the device is checked against.

use crate::host::HostModel;
use crate::shape::{ModelShape, Part, Tensor};
use std::collections::HashMap;

/// A model on the host and the gradients found so far.
pub(crate) struct Oracle<'m> {
    host: &'m HostModel,
    /// Tensors that differ from the host's.
    pub(crate) changed: HashMap<Tensor, Vec<f32>>,
    pub(crate) gradients: HashMap<Tensor, Vec<f32>>,
}

/// What is kept of a layer on the way forwards.
struct Kept {
    x: [Vec<f32>; 2],
    normed: [Vec<f32>; 2],
    qkv: Vec<f32>,
    shares: Vec<Vec<f32>>,
    attended: Vec<f32>,
    gate_up: Vec<f32>,
    gated: Vec<f32>,
}

/// A token that was chosen after a position, and what the loss changes by with its log-probability.
pub(crate) struct HostChoice<'c> {
    pub(crate) after: usize,
    pub(crate) token: usize,
    pub(crate) mask: Option<&'c [u32]>,
    pub(crate) slope: f32,
}

impl<'m> Oracle<'m> {
    pub(crate) fn new(host: &'m HostModel) -> Self {
        Oracle { host, changed: HashMap::new(), gradients: HashMap::new() }
    }

    fn tensor(&self, tensor: Tensor) -> &[f32] {
        self.changed.get(&tensor).map_or_else(|| self.host.tensor(tensor), Vec::as_slice)
    }

    /// The gradient of a tensor, to be added to.
    fn gradient(&mut self, tensor: Tensor) -> &mut [f32] {
        let size = self.tensor(tensor).len();
        self.gradients.entry(tensor).or_insert_with(|| vec![0.0; size])
    }

    /// Adds the gradient of a text; the log-probability and the entropy of each choice.
    pub(crate) fn add(&mut self, tokens: &[u32], choices: &[HostChoice<'_>], temperature: f32) -> Vec<(f32, f32)> {
        let ModelShape { hidden, layers, vocabulary, tied, .. } = *self.host.shape();
        let table = self.tensor(Tensor::Embedding);
        let mut x: Vec<f32> =
            tokens.iter().flat_map(|token| &table[*token as usize * hidden..][..hidden]).copied().collect();
        let mut kept = Vec::new();
        for layer in 0..layers {
            kept.push(self.forwards(layer, &mut x));
        }
        let last = x;
        let normed = self.normed(&last, Tensor::Norm);
        let head = if tied { Tensor::Embedding } else { Tensor::Head };
        let mut of_normed = vec![0.0; normed.len()];
        let mut scores = Vec::new();
        for choice in choices {
            let row = &normed[choice.after * hidden..][..hidden];
            let scaled: Vec<f32> = times_transposed(row, self.tensor(head), hidden)
                .into_iter()
                .enumerate()
                .map(|(token, logit)| match choice.mask {
                    Some(mask) if mask[token / 32] >> (token % 32) & 1 == 0 => f32::NEG_INFINITY,
                    _ => logit / temperature,
                })
                .collect();
            let most = scaled.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let total: f32 = scaled.iter().map(|it| (it - most).exp()).sum();
            let shares: Vec<f32> = scaled.iter().map(|it| (it - most).exp() / total).collect();
            let entropy: f32 = shares.iter().filter(|share| **share > 0.0).map(|share| -share * share.ln()).sum();
            scores.push((scaled[choice.token] - most - total.ln(), entropy));
            let slopes: Vec<f32> = (0..vocabulary)
                .map(|token| {
                    let hit = if token == choice.token { 1.0 } else { 0.0 };
                    choice.slope * (hit - shares[token]) / temperature
                })
                .collect();
            let of_row = times(&slopes, self.tensor(head), vocabulary);
            add_to(&mut of_normed[choice.after * hidden..][..hidden], &of_row);
            let row = row.to_vec();
            add_outer(self.gradient(head), &slopes, &row, vocabulary, hidden);
        }
        let mut dx = self.norm_back(&last, &of_normed, Tensor::Norm);
        for layer in (0..layers).rev() {
            dx = self.backwards(layer, &kept[layer], &dx);
        }
        for (token, slope) in tokens.iter().zip(dx.chunks(hidden)) {
            add_to(&mut self.gradient(Tensor::Embedding)[*token as usize * hidden..][..hidden], slope);
        }
        scores
    }

    fn forwards(&self, layer: usize, x: &mut [f32]) -> Kept {
        let ModelShape { hidden, intermediate, heads, kv_heads, head_dim: dim, .. } = *self.host.shape();
        let of = |part| Tensor::Layer(layer, part);
        let before = x.to_vec();
        let first = self.normed(&before, of(Part::InputNorm));
        let mut qkv = times_transposed(&first, self.tensor(of(Part::Qkv)), hidden);
        let width = (heads + 2 * kv_heads) * dim;
        let bias = self.tensor(of(Part::QkvBias));
        for (position, row) in qkv.chunks_mut(width).enumerate() {
            if !bias.is_empty() {
                add_to(row, bias);
            }
            for head in row.chunks_mut(dim).take(heads + kv_heads) {
                self.rotate(head, position, 1.0);
            }
        }
        let rows = x.len() / hidden;
        let (mut shares, mut attended) = (Vec::new(), vec![0.0; rows * heads * dim]);
        for head in 0..heads {
            let kv = heads + head * kv_heads / heads;
            let part = |row: usize, place: usize| &qkv[row * width + place * dim..][..dim];
            for row in 0..rows {
                let scores: Vec<f32> =
                    (0..=row).map(|key| dot(part(row, head), part(key, kv)) / (dim as f32).sqrt()).collect();
                let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let total: f32 = scores.iter().map(|it| (it - most).exp()).sum();
                let of_row: Vec<f32> = scores.iter().map(|it| (it - most).exp() / total).collect();
                let out = &mut attended[(row * heads + head) * dim..][..dim];
                for (key, share) in of_row.iter().enumerate() {
                    let value = part(key, kv + kv_heads);
                    out.iter_mut().zip(value).for_each(|(out, value)| *out += share * value);
                }
                shares.push(of_row);
            }
        }
        add_to(x, &times_transposed(&attended, self.tensor(of(Part::O)), heads * dim));
        let between = x.to_vec();
        let second = self.normed(&between, of(Part::PostNorm));
        let gate_up = times_transposed(&second, self.tensor(of(Part::GateUp)), hidden);
        let gated: Vec<f32> = gate_up
            .chunks(2 * intermediate)
            .flat_map(|row| {
                let (gate, up) = row.split_at(intermediate);
                gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up)
            })
            .collect();
        add_to(x, &times_transposed(&gated, self.tensor(of(Part::Down)), intermediate));
        Kept { x: [before, between], normed: [first, second], qkv, shares, attended, gate_up, gated }
    }

    /// The gradient before a layer, from the one after it.
    fn backwards(&mut self, layer: usize, kept: &Kept, dx: &[f32]) -> Vec<f32> {
        let ModelShape { hidden, intermediate, heads, kv_heads, head_dim: dim, .. } = *self.host.shape();
        let of = |part| Tensor::Layer(layer, part);
        let mut dx = dx.to_vec();
        let of_gated = self.linear_back(of(Part::Down), &dx, &kept.gated, hidden, intermediate);
        let mut of_gate_up = vec![0.0; kept.gate_up.len()];
        for ((slopes, both), to) in of_gated
            .chunks(intermediate)
            .zip(kept.gate_up.chunks(2 * intermediate))
            .zip(of_gate_up.chunks_mut(2 * intermediate))
        {
            for at in 0..intermediate {
                let (gate, up) = (both[at], both[at + intermediate]);
                let share = 1.0 / (1.0 + (-gate).exp());
                to[at] = slopes[at] * up * share * (1.0 + gate * (1.0 - share));
                to[at + intermediate] = slopes[at] * gate * share;
            }
        }
        let of_second = self.linear_back(of(Part::GateUp), &of_gate_up, &kept.normed[1], 2 * intermediate, hidden);
        add_to(&mut dx, &self.norm_back(&kept.x[1], &of_second, of(Part::PostNorm)));
        let of_attended = self.linear_back(of(Part::O), &dx, &kept.attended, hidden, heads * dim);
        let width = (heads + 2 * kv_heads) * dim;
        let mut of_qkv = vec![0.0; kept.qkv.len()];
        let rows = dx.len() / hidden;
        let scale = 1.0 / (dim as f32).sqrt();
        for head in 0..heads {
            let kv = heads + head * kv_heads / heads;
            let place = |row: usize, place: usize| row * width + place * dim;
            for row in 0..rows {
                let slope = &of_attended[(row * heads + head) * dim..][..dim];
                let delta = dot(slope, &kept.attended[(row * heads + head) * dim..][..dim]);
                for (key, share) in kept.shares[head * rows + row].iter().enumerate() {
                    let value = place(key, kv + kv_heads);
                    let of_score = share * (dot(slope, &kept.qkv[value..][..dim]) - delta) * scale;
                    for at in 0..dim {
                        of_qkv[value + at] += share * slope[at];
                        of_qkv[place(row, head) + at] += of_score * kept.qkv[place(key, kv) + at];
                        of_qkv[place(key, kv) + at] += of_score * kept.qkv[place(row, head) + at];
                    }
                }
            }
        }
        for (position, row) in of_qkv.chunks_mut(width).enumerate() {
            for head in row.chunks_mut(dim).take(heads + kv_heads) {
                self.rotate(head, position, -1.0);
            }
            if self.host.shape().qkv_bias {
                add_to(self.gradient(of(Part::QkvBias)), row);
            }
        }
        let of_first = self.linear_back(of(Part::Qkv), &of_qkv, &kept.normed[0], width, hidden);
        add_to(&mut dx, &self.norm_back(&kept.x[0], &of_first, of(Part::InputNorm)));
        dx
    }

    /// The gradient of a product's input; that of its weight is added up.
    fn linear_back(&mut self, weight: Tensor, slopes: &[f32], x: &[f32], outs: usize, ins: usize) -> Vec<f32> {
        let of_input = times(slopes, self.tensor(weight), outs);
        add_outer(self.gradient(weight), slopes, x, outs, ins);
        of_input
    }

    fn rotate(&self, head: &mut [f32], position: usize, direction: f32) {
        let half = head.len() / 2;
        for (at, frequency) in self.host.shape().frequencies.iter().enumerate() {
            let (sin, cos) = (position as f32 * frequency).sin_cos();
            let (a, b) = (head[at], head[at + half]);
            (head[at], head[at + half]) = (a * cos - direction * b * sin, b * cos + direction * a * sin);
        }
    }

    fn normed(&self, x: &[f32], weight: Tensor) -> Vec<f32> {
        let weight = self.tensor(weight);
        let row = |row: &[f32]| {
            let factor = self.factor(row);
            row.iter().zip(weight).map(|(x, weight)| x * factor * weight).collect::<Vec<f32>>()
        };
        x.chunks(weight.len()).flat_map(row).collect()
    }

    fn factor(&self, row: &[f32]) -> f32 {
        1.0 / (dot(row, row) / row.len() as f32 + self.host.shape().epsilon).sqrt()
    }

    fn norm_back(&mut self, x: &[f32], slopes: &[f32], tensor: Tensor) -> Vec<f32> {
        let weight = self.tensor(tensor).to_vec();
        let mut back = Vec::with_capacity(x.len());
        for (row, slope) in x.chunks(weight.len()).zip(slopes.chunks(weight.len())) {
            let factor = self.factor(row);
            let gradient = self.gradient(tensor);
            for at in 0..weight.len() {
                gradient[at] += slope[at] * row[at] * factor;
            }
            let grown: Vec<f32> = slope.iter().zip(&weight).map(|(slope, weight)| slope * weight).collect();
            let mean = dot(&grown, row) * factor / weight.len() as f32;
            back.extend(grown.iter().zip(row).map(|(grown, x)| factor * (grown - x * factor * mean)));
        }
        back
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add_to(to: &mut [f32], what: &[f32]) {
    to.iter_mut().zip(what).for_each(|(to, what)| *to += what);
}

/// Rows of `width` numbers times a transposed matrix.
pub(crate) fn times_transposed(x: &[f32], matrix: &[f32], width: usize) -> Vec<f32> {
    x.chunks(width).flat_map(|row| matrix.chunks(width).map(move |other| dot(row, other))).collect()
}

/// Rows of `rows` numbers times a matrix of so many rows.
pub(crate) fn times(x: &[f32], matrix: &[f32], rows: usize) -> Vec<f32> {
    let width = matrix.len() / rows;
    let row = |row: &[f32]| {
        let mut out = vec![0.0; width];
        for (factor, other) in row.iter().zip(matrix.chunks(width)).filter(|(factor, _)| **factor != 0.0) {
            out.iter_mut().zip(other).for_each(|(out, other)| *out += factor * other);
        }
        out
    };
    x.chunks(rows).flat_map(row).collect()
}

/// gradient (outs × ins) += slopes, transposed, times x.
fn add_outer(gradient: &mut [f32], slopes: &[f32], x: &[f32], outs: usize, ins: usize) {
    for (slopes, x) in slopes.chunks(outs).zip(x.chunks(ins)) {
        for (slope, row) in slopes.iter().zip(gradient.chunks_mut(ins)).filter(|(slope, _)| **slope != 0.0) {
            row.iter_mut().zip(x).for_each(|(to, x)| *to += slope * x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loss falls and rises as the gradient says, for a step in every tensor.
    #[test]
    fn gradients_are_differences_of_the_loss() {
        let shape = ModelShape {
            vocabulary: 23,
            hidden: 16,
            intermediate: 24,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            qkv_bias: true,
            frequencies: crate::shape::frequencies(1e4, 16),
            ..ModelShape::smol_135m()
        };
        let host = HostModel::random(shape, 5);
        let choices = || {
            [(1, 4, 0.7f32), (3, 9, -1.2)].map(|(after, token, slope)| HostChoice { after, token, mask: None, slope })
        };
        let tokens = [3, 8, 3, 11, 20];
        let loss = |oracle: &mut Oracle<'_>| -> f64 {
            let scores = oracle.add(&tokens, &choices(), 0.8);
            scores.iter().zip(choices()).map(|((logprob, _), choice)| f64::from(logprob * choice.slope)).sum()
        };
        let mut oracle = Oracle::new(&host);
        loss(&mut oracle);
        let gradients = std::mem::take(&mut oracle.gradients);
        for (tensor, gradient) in gradients {
            let norm = dot(&gradient, &gradient).sqrt();
            let mut moved = |step: f32| {
                let values = host.tensor(tensor).iter().zip(&gradient);
                oracle.changed.insert(tensor, values.map(|(value, slope)| value + step * slope / norm).collect());
                let loss = loss(&mut oracle);
                oracle.changed.clear();
                loss
            };
            let rise = (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert!((rise / f64::from(norm) - 1.0).abs() < 2e-2, "{tensor:?}: {rise} for {norm}");
        }
    }
}
