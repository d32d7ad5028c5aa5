//! Muon: orthogonalised momentum. K. Jordan and others, "Muon: an optimizer for hidden layers in neural
//! networks" (2024).
//!
//! A gradient of a matrix is mostly a few strong directions, and steps along it leave the weak ones behind. So the momentum is
//! replaced by the nearest matrix whose singular values are all one, found by an iteration of products alone
//! (Newton-Schulz). Matrices of one shape are stacked, so that an iteration takes three products, however many layers there
//! are.

use crate::ops::scaled_add;
use candle_core::{D, DType, Result, Tensor, Var};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MuonSettings {
    /// Decay of the mean of gradients.
    pub momentum: f64,
    /// Factor on the learning rate: its step length differs from AdamW's.
    pub rate: f64,
}

impl Default for MuonSettings {
    fn default() -> Self {
        MuonSettings { momentum: 0.95, rate: 8.0 }
    }
}

/// A matrix, its gradient, and the mean of gradients before.
pub(crate) struct Matrix<'a> {
    pub(crate) var: &'a Var,
    pub(crate) gradient: &'a Tensor,
    pub(crate) momentum: &'a Tensor,
}

/// Whether a parameter is a matrix inside of a model. Embeddings and heads are no maps between directions: each of their rows
/// is by itself.
pub(crate) fn is_inside(name: &str, var: &Var) -> bool {
    var.rank() == 2 && name.contains(".layers.") && !name.contains(".lora_")
}

impl MuonSettings {
    /// Takes a step along gradients that are scaled by `scale`. Weights shrink by its own rate, which is higher than AdamW's.
    pub(crate) fn step(
        &self,
        matrices: &[Matrix<'_>],
        learning_rate: f64,
        weight_decay: f64,
        scale: f64,
    ) -> Result<()> {
        let mut by_shape: BTreeMap<(usize, usize), Vec<&Matrix<'_>>> = BTreeMap::new();
        for matrix in matrices {
            by_shape.entry(matrix.var.dims2()?).or_default().push(matrix);
        }
        for ((rows, columns), matrices) in by_shape {
            let mut ahead = Vec::with_capacity(matrices.len());
            for Matrix { gradient, momentum, .. } in &matrices {
                let gradient = gradient.to_dtype(DType::F32)?.contiguous()?;
                scaled_add(momentum, self.momentum, &gradient, (1.0 - self.momentum) * scale)?;
                // Nesterov's: where the momentum will be if the gradient stays.
                let next = (gradient * ((1.0 - self.momentum) * scale))?;
                ahead.push((next + (*momentum * self.momentum)?)?);
            }
            let directions = orthogonalised(&Tensor::stack(&ahead, 0)?)?;
            // All singular values are one, so that an output moves by the rate whatever the width; one of more outputs than
            // inputs has its step spread over more numbers, and is given more.
            let rate = learning_rate * self.rate * (rows as f64 / columns as f64).max(1.0).sqrt();
            for (number, matrix) in matrices.iter().enumerate() {
                let keep = 1.0 - learning_rate * self.rate * weight_decay;
                scaled_add(matrix.var.as_tensor(), keep, &directions.get(number)?.contiguous()?, -rate)?;
            }
        }
        Ok(())
    }
}

/// For each of several matrices (N, rows, columns) the nearest with singular values of one, about: they come out between 0.7
/// and 1.2, which is near enough and takes few iterations.
fn orthogonalised(matrices: &Tensor) -> Result<Tensor> {
    // The coefficients of the paper: steepest at zero, where most singular values begin.
    const A: f64 = 3.4445;
    const B: f64 = -4.7750;
    const C: f64 = 2.0315;
    const ITERATIONS: usize = 5;
    let (_, rows, columns) = matrices.dims3()?;
    // Products are smaller on the short side.
    let lying = if rows > columns { matrices.transpose(1, 2)?.contiguous()? } else { matrices.contiguous()? };
    // No singular value is larger than the root of the sum of all squares.
    let norms = (lying.sqr()?.sum_keepdim((D::Minus1, D::Minus2))?.sqrt()? + 1e-7)?;
    let mut x = lying.broadcast_div(&norms)?;
    for _ in 0..ITERATIONS {
        let square = x.matmul(&x.transpose(1, 2)?)?; // (N, r, c) · (N, c, r) -> (N, r, r)
        let mixed = ((&square * B)? + (square.matmul(&square)? * C)?)?;
        x = ((&x * A)? + mixed.matmul(&x)?)?;
    }
    if rows > columns { x.transpose(1, 2)?.contiguous() } else { Ok(x) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        DeviceChoice, Example, LanguagePolicy, Learning, ModelConfig, Objective, OptimiserSettings, Policy, Sequence,
        StepSettings, Tokenizer,
    };
    use candle_core::Device;
    use lemon_num::Random;
    use proptest::prelude::*;

    /// The square roots of the eigenvalues of a symmetric matrix, by Jacobi's rotations.
    fn roots(mut a: Vec<Vec<f32>>) -> Vec<f32> {
        let n = a.len();
        for _ in 0..30 {
            for p in 0..n {
                for q in p + 1..n {
                    if a[p][q].abs() < 1e-9 {
                        continue;
                    }
                    let angle = 0.5 * (2.0 * a[p][q]).atan2(a[q][q] - a[p][p]);
                    let (sin, cos) = angle.sin_cos();
                    for row in &mut a {
                        (row[p], row[q]) = (cos * row[p] - sin * row[q], sin * row[p] + cos * row[q]);
                    }
                    let (of_p, of_q) = (a[p].clone(), a[q].clone());
                    let mixed = |a: f32, b: f32| of_p.iter().zip(&of_q).map(|(p, q)| a * p + b * q).collect();
                    (a[p], a[q]) = (mixed(cos, -sin), mixed(sin, cos));
                }
            }
        }
        (0..n).map(|it| a[it][it].max(0.0).sqrt()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn singular_values_come_near_one(seed: u64, short in 1usize..7, more in 1usize..20, stands: bool, spread in 1e-4f32..1e3) {
            let long = 2 * short + more; // So that none of them is nearly zero.
            let shape = if stands { (2, long, short) } else { (2, short, long) };
            let values = Random::named(seed, "matrices").normals(2 * short * long, spread);
            let stacked = Tensor::from_vec(values, shape, &Device::Cpu).unwrap();
            let found = orthogonalised(&stacked).unwrap();
            for number in 0..2 {
                let one = found.get(number).unwrap();
                let other = if stands { one.t().unwrap().matmul(&one) } else { one.matmul(&one.t().unwrap()) };
                let values = roots(other.unwrap().to_vec2().unwrap());
                prop_assert!(values.iter().all(|it| (0.6..1.3).contains(it)), "{values:?}");
                let alone = orthogonalised(&stacked.get(number).unwrap().unsqueeze(0).unwrap()).unwrap();
                let gap = (alone.get(0).unwrap() - one).unwrap().abs().unwrap().max_all().unwrap();
                prop_assert!(gap.to_scalar::<f32>().unwrap() < 1e-5);
            }
        }
    }

    #[test]
    fn nothing_comes_of_nothing() {
        let found = orthogonalised(&Tensor::zeros((1, 3, 4), DType::F32, &Device::Cpu).unwrap()).unwrap();
        assert_eq!(found.flatten_all().unwrap().to_vec1::<f32>().unwrap(), [0.0; 12]);
    }

    fn policy(muon: Option<MuonSettings>) -> LanguagePolicy {
        let tokenizer = Tokenizer::train(std::iter::empty(), 257, &["<|end|>"]).unwrap();
        let config = ModelConfig { positions: 64, ..ModelConfig::small(257, 32, 2, tokenizer.end()) };
        let mut policy = LanguagePolicy::fresh(config, tokenizer, 1, DeviceChoice::Cpu, Learning::Everything).unwrap();
        policy.set_optimiser(OptimiserSettings { muon, ..OptimiserSettings::default() });
        policy
    }

    /// Steps on the task to say a word backwards, and the loss of each.
    fn learn(policy: &mut LanguagePolicy, steps: std::ops::Range<u64>) -> Vec<f64> {
        let step = |step: u64| {
            let mut random = Random::new(step);
            let example = |_: usize| {
                let prompt: Vec<u32> = (0..6).map(|_| 97 + (random.uniform() * 4.0) as u32).collect();
                let tokens: Vec<u32> = prompt.iter().rev().copied().collect();
                let weights = vec![1.0 / 96.0; 6];
                let sequence = Sequence { prompt, tokens, grammar: None };
                Example { sequence, objective: Objective::Likelihood { weights } }
            };
            let examples: Vec<Example> = (0..16).map(example).collect();
            let settings = StepSettings { learning_rate: 2.5e-3, temperature: 1.0, clip_norm: 1.0, micro_batch: 0 };
            policy.update(&examples, &settings).unwrap().loss
        };
        steps.map(step).collect()
    }

    #[test]
    fn it_learns_faster() {
        let last = |muon| {
            let losses = learn(&mut policy(muon), 0..120);
            losses[100..].iter().sum::<f64>() / 20.0
        };
        let (muon, adamw) = (last(Some(MuonSettings::default())), last(None));
        assert!(muon < adamw, "{muon} against {adamw}");
    }

    #[test]
    fn it_goes_on_as_if_it_had_never_stopped() {
        let settings = Some(MuonSettings::default());
        let (mut whole, mut parts) = (policy(settings), policy(settings));
        let losses = learn(&mut whole, 0..8);
        assert_eq!(learn(&mut parts, 0..5), losses[..5]);
        let folder = tempfile::tempdir().unwrap();
        parts.save_state(folder.path()).unwrap();
        let mut again = policy(None);
        again.load_state(folder.path()).unwrap();
        assert_eq!(learn(&mut again, 5..8), losses[5..]);
        let files = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        whole.save_state(files[0].path()).unwrap();
        again.save_state(files[1].path()).unwrap();
        let [one, other] = files.each_ref().map(|it| std::fs::read(it.path().join("model.safetensors")).unwrap());
        assert!(one == other);
    }
}
