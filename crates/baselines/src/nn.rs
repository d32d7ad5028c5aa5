//! The neural toolkit that all baselines share: named weights, layers, Adam. Tensors and gradients are those of `candle`.
//!
//! Layers take their weights from a [`NetWeights`] by name. What is loaded from a checkpoint is taken from there; what is not,
//! is drawn as PyTorch does by default: uniformly within `±1/√inputs`.

mod adam;
#[cfg(test)]
pub mod check;
mod layers;
mod weights;

pub use adam::Adam;
pub use layers::{GcnLayer, GruCell, LayerNorm, Linear, Mlp};
pub use weights::NetWeights;

use candle_core::{D, DType, Device, Result, Tensor};
use lemon_num::Random;

/// The logistic function.
pub fn sigmoid(x: &Tensor) -> Result<Tensor> {
    ((x * 0.5)?.tanh()? + 1.0)? * 0.5
}

/// The logarithm of the logistic function, exact far from 0.
pub fn log_sigmoid(x: &Tensor) -> Result<Tensor> {
    let below = (x.relu()? - x)?.neg()?;
    below - ((x.abs()?.neg()?.exp()? + 1.0)?).log()?
}

/// The logarithm of the softmax over the last dimension.
pub fn log_softmax(x: &Tensor) -> Result<Tensor> {
    let shifted = x.broadcast_sub(&x.max_keepdim(D::Minus1)?.detach())?;
    shifted.broadcast_sub(&shifted.exp()?.sum_keepdim(D::Minus1)?.log()?)
}

/// Numbers as a tensor of this shape.
pub fn tensor(values: &[f32], shape: impl Into<candle_core::Shape>, dtype: DType) -> Result<Tensor> {
    Tensor::from_slice(values, shape, &Device::Cpu)?.to_dtype(dtype)
}

/// Row `row` of the identity with `width` columns, for each of these.
pub fn one_hot(rows: &[usize], width: usize, dtype: DType) -> Result<Tensor> {
    let mut values = vec![0.0_f32; rows.len() * width];
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| **row < width) {
        // Within the vector, because `row` is below `width`.
        values[at * width + row] = 1.0;
    }
    tensor(&values, (rows.len(), width), dtype)
}

/// Multiplies every entry by 0 with this probability, and the others by what keeps the mean.
pub fn dropout(x: &Tensor, share: f64, random: &mut Random) -> Result<Tensor> {
    let kept = (1.0 / (1.0 - share)) as f32;
    let mask: Vec<f32> = (0..x.elem_count()).map(|_| if random.chance(share) { 0.0 } else { kept }).collect();
    x * tensor(&mask, x.shape(), x.dtype())?
}

/// The numbers of a tensor, in the order of rows.
pub fn values(x: &Tensor) -> Result<Vec<f32>> {
    x.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
}

/// A place drawn in proportion to these weights; the last where rounding leaves a rest.
pub fn draw(weights: &[f32], random: &mut Random) -> usize {
    let mut rest = random.uniform() * weights.iter().map(|weight| f64::from(*weight)).sum::<f64>();
    for (at, weight) in weights.iter().enumerate() {
        rest -= f64::from(*weight);
        if rest < 0.0 {
            return at;
        }
    }
    weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0)
}

/// The softmax of a few numbers.
pub fn softmax(logits: &[f32]) -> Vec<f32> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exps: Vec<f32> = logits.iter().map(|logit| (logit - most).exp()).collect();
    let sum: f32 = exps.iter().sum();
    exps.iter().map(|exp| exp / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_match_their_definitions() {
        let x = tensor(&[-40.0, -1.0, 0.0, 2.0, 40.0], (1, 5), DType::F64).unwrap();
        let close = |found: Tensor, expected: [f64; 5]| {
            for (found, expected) in found.flatten_all().unwrap().to_vec1::<f64>().unwrap().iter().zip(expected) {
                assert!((found - expected).abs() < 1e-12, "{found} {expected}");
            }
        };
        let s = |x: f64| 1.0 / (1.0 + (-x).exp());
        close(sigmoid(&x).unwrap(), [s(-40.0), s(-1.0), 0.5, s(2.0), 1.0]);
        close(log_sigmoid(&x).unwrap(), [-40.0, s(-1.0).ln(), 0.5_f64.ln(), s(2.0).ln(), 0.0]);
        let sum: f64 = [-40.0_f64, -1.0, 0.0, 2.0, 40.0].iter().map(|x| x.exp()).sum();
        close(log_softmax(&x).unwrap(), [-40.0, -1.0, 0.0, 2.0, 40.0].map(|x: f64| x - sum.ln()));
    }

    #[test]
    fn draws_follow_the_weights() {
        let mut random = Random::new(1);
        let counts = (0..4_000).fold([0; 3], |mut counts, _| {
            counts[draw(&[1.0, 0.0, 3.0], &mut random)] += 1;
            counts
        });
        assert!(counts[1] == 0 && (900..1_100).contains(&counts[0]), "{counts:?}");
        let softmax = softmax(&[0.0, 3_f32.ln()]);
        assert!((softmax[1] - 0.75).abs() < 1e-6);
    }

    #[test]
    fn dropout_keeps_the_mean() {
        let x = tensor(&[1.0; 2_000], 2_000, DType::F32).unwrap();
        let dropped = values(&dropout(&x, 0.5, &mut Random::new(2)).unwrap()).unwrap();
        assert!(dropped.iter().all(|x| *x == 0.0 || *x == 2.0));
        let mean = dropped.iter().sum::<f32>() / 2_000.0;
        assert!((mean - 1.0).abs() < 0.1, "{mean}");
    }
}
