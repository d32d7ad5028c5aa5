//! Compares the fused operations on a device with [`composed`] in `f64` on the CPU.

use super::{
    AdamW, composed, entropy, gather_rows, gathered_logprob, linear, masked_softmax, packed_attention, rms_norm,
    rotary, squared_norm, swap_axes, swiglu,
};
use candle_core::{DType, Device, Result, Tensor, Var, backprop::GradStore};
use lemon_num::Random;

/// How far one result is from the truth.
#[derive(Debug, Clone)]
pub(crate) struct Check {
    /// The operation, the shape, and which of its results.
    pub(crate) name: String,
    /// The norm of the difference over the norm of the truth; infinite where one is no number and the other is. Up to 1e-5
    /// in `f32` and 1e-2 in `bf16` is rounding.
    pub(crate) error: f64,
}

/// Runs every operation, forward and backward, on drawn inputs of many shapes, with elements of `dtype`.
pub(crate) fn selfcheck(device: &Device, dtype: DType) -> Result<Vec<Check>> {
    let mut comparison = Comparison { device, dtype, random: Random::new(1), checks: Vec::new() };
    comparison.rms_norm()?;
    comparison.swiglu()?;
    comparison.rotary()?;
    comparison.masked_softmax()?;
    comparison.packed_attention()?;
    comparison.tokens()?;
    comparison.linear()?;
    comparison.rows()?;
    comparison.optimiser()?;
    Ok(comparison.checks)
}

struct Comparison<'a> {
    device: &'a Device,
    dtype: DType,
    random: Random,
    checks: Vec<Check>,
}

impl Comparison<'_> {
    fn rms_norm(&mut self) -> Result<()> {
        let shapes: [&[usize]; 7] = [&[1, 3], &[1, 8], &[3, 5, 33], &[7, 512], &[2, 3, 896], &[2, 4_096], &[2_100, 40]];
        for shape in shapes {
            let width = shape.last().copied().unwrap_or(1);
            let inputs = [self.draw(shape)?, self.draw(&[width])?];
            let fused = |[x, weight]: [&Tensor; 2]| rms_norm(x, weight, 1e-6);
            let truth = |[x, weight]: [&Tensor; 2]| composed::rms_norm(x, weight, 1e-6);
            self.compare(&format!("rms_norm {shape:?}"), inputs, fused, truth)?;
        }
        Ok(())
    }

    fn swiglu(&mut self) -> Result<()> {
        let shapes: [&[usize]; 5] = [&[1], &[3, 7], &[5, 4_864], &[2, 3, 4, 8], &[100_003]];
        for shape in shapes {
            let inputs = [(self.draw(shape)? * 4.0)?, self.draw(shape)?];
            let fused = |[gate, up]: [&Tensor; 2]| swiglu(gate, up);
            let truth = |[gate, up]: [&Tensor; 2]| composed::swiglu(gate, up);
            self.compare(&format!("swiglu {shape:?}"), inputs, fused, truth)?;
        }
        Ok(())
    }

    fn rotary(&mut self) -> Result<()> {
        for (batch, tokens, heads, width) in [(1, 1, 1, 2), (2, 3, 5, 64), (1, 7, 2, 20), (3, 4, 14, 128)] {
            let shape = [batch, tokens, heads, width];
            let angles = self.draw(&[batch * tokens, width / 2])?.to_dtype(DType::F32)?;
            let angles = [angles.cos()?, angles.sin()?];
            let [cos, sin] = [angles[0].to_device(self.device)?, angles[1].to_device(self.device)?];
            let inputs = [self.draw(&shape)?];
            let fused = |[x]: [&Tensor; 1]| rotary(x, &cos, &sin);
            let truth = |[x]: [&Tensor; 1]| composed::rotary(x, &angles[0], &angles[1]);
            self.compare(&format!("rotary {shape:?}"), inputs, fused, truth)?;
        }
        Ok(())
    }

    fn masked_softmax(&mut self) -> Result<()> {
        let shapes = [(1, 1, 1, 1), (2, 3, 5, 33), (1, 2, 16, 512), (2, 2, 3, 1_000), (1, 1, 6, 40), (2, 1, 2, 7)];
        for (batch, heads, queries, keys) in shapes {
            let shape = [batch, heads, queries, keys];
            let visible = visible(&mut self.random, batch * queries, keys);
            let visible = Tensor::from_vec(visible, (batch, queries, 2), &Device::Cpu)?;
            let on_device = visible.to_device(self.device)?;
            let inputs = [(self.draw(&shape)? * 8.0)?];
            let fused = |[scores]: [&Tensor; 1]| masked_softmax(scores, &on_device, 0.125);
            let truth = |[scores]: [&Tensor; 1]| composed::masked_softmax(scores, &visible, 0.125);
            self.compare(&format!("masked_softmax {shape:?}"), inputs, fused, truth)?;
        }
        Ok(())
    }

    /// On a GPU alone: elsewhere there is another.
    fn packed_attention(&mut self) -> Result<()> {
        if !self.device.is_cuda() {
            return Ok(());
        }
        let sizes = [(1, 1, 32), (4, 2, 32), (10, 5, 32), (3, 1, 64), (4, 4, 128)];
        for (heads, kv_heads, width) in sizes {
            for texts in [&[1usize] as &[usize], &[2, 1, 5], &[33, 64, 3, 150], &[300, 1, 1, 40, 129]] {
                let ends: Vec<usize> = texts.iter().scan(0, |end, text| (*end += text, Some(*end)).1).collect();
                let rows = texts.iter().sum::<usize>();
                let spans = ends.iter().zip(texts).flat_map(|(end, text)| vec![(end - text, *end); *text]);
                let spans: Vec<(usize, usize)> = spans.collect();
                let pairs = |pair: &dyn Fn(usize, (usize, usize)) -> [usize; 2]| {
                    let numbers = spans.iter().enumerate().flat_map(|(row, span)| pair(row, *span));
                    Tensor::from_vec(numbers.map(|it| it as u32).collect::<Vec<_>>(), (rows, 2), &Device::Cpu)
                };
                let bounds = pairs(&|_, (start, end)| [start, end])?.to_device(self.device)?;
                let visible = pairs(&|row, (start, _)| [start, row + 1])?.unsqueeze(0)?;
                let inputs = [
                    self.draw(&[rows, heads, width])?,
                    self.draw(&[rows, kv_heads, width])?,
                    self.draw(&[rows, kv_heads, width])?,
                ];
                let scale = 1.0 / (width as f64).sqrt();
                let fused = |[q, k, v]: [&Tensor; 3]| packed_attention(q, k, v, &bounds, scale as f32);
                let truth = |[q, k, v]: [&Tensor; 3]| {
                    // (R, heads, D) -> (heads, R, D), with a key for every query.
                    let by_head = |it: &Tensor| it.transpose(0, 1)?.contiguous();
                    let for_all = |it: &Tensor| {
                        let shape = (rows, kv_heads, heads / kv_heads, width);
                        by_head(&it.unsqueeze(2)?.broadcast_as(shape)?.reshape((rows, heads, width))?)
                    };
                    let scores = by_head(q)?.matmul(&for_all(k)?.transpose(1, 2)?.contiguous()?)?.unsqueeze(0)?;
                    let shares = composed::masked_softmax(&scores, &visible, scale)?.squeeze(0)?;
                    by_head(&shares.matmul(&for_all(v)?)?)
                };
                let name = format!("packed_attention [{heads}, {kv_heads}, {width}] {texts:?}");
                self.compare(&name, inputs, fused, truth)?;
            }
        }
        Ok(())
    }

    fn tokens(&mut self) -> Result<()> {
        let shapes = [(1, 1), (1, 5), (3, 33), (6, 1_000), (2, 32_000), (1, 50_257), (4, 151_936)];
        for (rows, vocabulary) in shapes {
            for (masked, temperature) in [(false, 1.0), (true, 0.7)] {
                let (targets, mask) = targets_and_mask(&mut self.random, rows, vocabulary);
                let targets = Tensor::from_vec(targets, rows, &Device::Cpu)?;
                let mask = Tensor::from_vec(mask, (rows, vocabulary.div_ceil(32)), &Device::Cpu)?;
                let mask = masked.then_some(mask);
                let targets_there = targets.to_device(self.device)?;
                let mask_there = mask.as_ref().map(|mask| mask.to_device(self.device)).transpose()?;
                let logits = (self.draw(&[rows, vocabulary])? * 3.0)?;
                let name = format!("[{rows}, {vocabulary}]{}", if masked { " masked" } else { "" });

                let fused = |[x]: [&Tensor; 1]| gathered_logprob(x, &targets_there, mask_there.as_ref(), temperature);
                let truth = |[x]: [&Tensor; 1]| composed::gathered_logprob(x, &targets, mask.as_ref(), temperature);
                self.compare(&format!("gathered_logprob {name}"), [logits.clone()], fused, truth)?;

                let there = logits.to_dtype(self.dtype)?;
                let found = entropy(&there.to_device(self.device)?, mask_there.as_ref(), temperature)?;
                let truth = composed::entropy(&there.to_dtype(DType::F64)?, mask.as_ref(), temperature)?;
                self.push(format!("entropy {name}"), &found, &truth)?;
            }
        }
        Ok(())
    }

    fn linear(&mut self) -> Result<()> {
        for (rows, outs, k) in [(1, 1, 1), (3, 7, 33), (40, 64, 128), (5, 100, 24)] {
            let inputs = [self.draw(&[rows, k])?, self.draw(&[outs, k])?, self.draw(&[outs])?];
            let fused = |[x, weight, bias]: [&Tensor; 3]| linear(x, weight, Some(bias), false);
            let truth = |[x, weight, bias]: [&Tensor; 3]| x.matmul(&weight.t()?)?.broadcast_add(bias);
            self.compare(&format!("linear [{rows}, {outs}, {k}]"), inputs, fused, truth)?;
        }
        Ok(())
    }

    /// Picking rows, and swapping axes.
    fn rows(&mut self) -> Result<()> {
        for (rows, width, picked) in [(1, 1, 1), (12, 33, 40), (50, 128, 7), (3, 96, 5_000)] {
            let ids: Vec<u32> = (0..picked).map(|at| (at * at * 7 + at) % rows).collect();
            let inputs = [self.draw(&[rows as usize, width])?];
            let truth_ids = Tensor::new(ids.as_slice(), &Device::Cpu)?;
            let fused = |[x]: [&Tensor; 1]| gather_rows(x, &ids);
            let truth = |[x]: [&Tensor; 1]| x.index_select(&truth_ids, 0);
            self.compare(&format!("gather_rows [{rows}, {width}]"), inputs, fused, truth)?;
        }
        for shape in [[1, 1, 1, 1], [2, 3, 5, 64], [3, 7, 2, 20], [1, 16, 4, 7]] {
            let inputs = [self.draw(&shape)?];
            let truth = |[x]: [&Tensor; 1]| x.transpose(1, 2)?.contiguous();
            self.compare(&format!("swap_axes {shape:?}"), inputs, |[x]: [&Tensor; 1]| swap_axes(x), truth)?;
        }
        Ok(())
    }

    fn optimiser(&mut self) -> Result<()> {
        let optimiser = AdamW { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.1 };
        for count in [1, 1_000, 70_001] {
            let mut truth = ScalarAdamW::new(optimiser, self.draw(&[count])?.to_dtype(DType::F64)?.to_vec1()?);
            let var = Tensor::from_vec(truth.var.clone(), count, &Device::Cpu)?;
            let var = var.to_dtype(DType::F32)?.to_device(self.device)?;
            let (m, v) = (var.zeros_like()?, var.zeros_like()?);
            for step in 1..=5 {
                let grad = self.draw(&[count])?.to_dtype(self.dtype)?;
                optimiser.step(&var, &grad.to_device(self.device)?, &m, &v, 0.01, step, 0.5)?;
                truth.step(&grad.to_dtype(DType::F64)?.to_vec1()?, 0.01, step, 0.5);
            }
            let truth = Tensor::from_vec(truth.var, count, &Device::Cpu)?;
            self.push(format!("adamw [{count}]"), &var, &truth)?;

            let grad = self.draw(&[count])?.to_dtype(self.dtype)?;
            let found = squared_norm(&grad.to_device(self.device)?)?;
            self.push(format!("squared_norm [{count}]"), &found, &grad.to_dtype(DType::F64)?.sqr()?.sum_all()?)?;
        }
        Ok(())
    }

    /// Compares results, gradients, and results on tensors that begin in the middle of their memory.
    fn compare<const N: usize>(
        &mut self,
        name: &str,
        inputs: [Tensor; N],
        fused: impl Fn([&Tensor; N]) -> Result<Tensor>,
        truth: impl Fn([&Tensor; N]) -> Result<Tensor>,
    ) -> Result<()> {
        let mut there = Vec::with_capacity(N);
        let mut here = Vec::with_capacity(N);
        let mut shifted = Vec::with_capacity(N);
        for input in &inputs {
            let rounded = input.to_dtype(self.dtype)?;
            there.push(Var::from_tensor(&rounded.to_device(self.device)?)?);
            here.push(Var::from_tensor(&rounded.to_dtype(DType::F64)?)?);
            let longer = Tensor::cat(&[&rounded.flatten_all()?.narrow(0, 0, 1)?, &rounded.flatten_all()?], 0)?;
            let longer = longer.to_device(self.device)?;
            shifted.push(longer.narrow(0, 1, rounded.elem_count())?.reshape(rounded.shape())?);
        }
        let found = fused(std::array::from_fn(|i| there[i].as_tensor()))?;
        let expected = truth(std::array::from_fn(|i| here[i].as_tensor()))?;
        self.push(format!("{name} forward"), &found, &expected)?;
        let found_shifted = fused(std::array::from_fn(|i| &shifted[i]))?;
        self.push(format!("{name} forward at an offset"), &found_shifted, &expected)?;

        let cotangent = self.draw(expected.dims())?.to_dtype(found.dtype())?;
        let found = backward(&found, &cotangent.to_device(self.device)?)?;
        let expected = backward(&expected, &cotangent.to_dtype(DType::F64)?)?;
        for (index, (there, here)) in there.iter().zip(&here).enumerate() {
            let (Some(found), Some(expected)) = (found.get(there), expected.get(here)) else {
                self.checks.push(Check { name: format!("{name} gradient {index}"), error: f64::INFINITY });
                continue;
            };
            self.push(format!("{name} gradient {index}"), found, expected)?;
        }
        Ok(())
    }

    fn push(&mut self, name: String, found: &Tensor, truth: &Tensor) -> Result<()> {
        let values =
            |tensor: &Tensor| tensor.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>();
        let same_shape = found.shape() == truth.shape();
        let error = if same_shape { relative_error(&values(found)?, &values(truth)?) } else { f64::INFINITY };
        self.checks.push(Check { name, error });
        Ok(())
    }

    /// Normally distributed values, as `f32` on the CPU.
    fn draw(&mut self, shape: &[usize]) -> Result<Tensor> {
        let values = (0..shape.iter().product()).map(|_| self.random.normal() as f32).collect::<Vec<_>>();
        Tensor::from_vec(values, shape, &Device::Cpu)
    }
}

/// The gradients where that of `result` is the cotangent.
fn backward(result: &Tensor, cotangent: &Tensor) -> Result<GradStore> {
    (result * cotangent)?.sum_all()?.backward()
}

/// The norm of the difference over that of the truth, or the norm of what was found where the truth is zero.
pub(super) fn relative_error(found: &[f64], truth: &[f64]) -> f64 {
    let (mut difference, mut norm) = (0.0, 0.0);
    for (&found, &truth) in found.iter().zip(truth) {
        // Infinities of the same sign are equal, and their difference is no number.
        if found != truth {
            difference += (found - truth) * (found - truth);
        }
        if truth.is_finite() {
            norm += truth * truth;
        }
    }
    let error = f64::sqrt(difference / if norm == 0.0 { 1.0 } else { norm });
    if error.is_finite() { error } else { f64::INFINITY }
}

/// The optimiser, one number at a time.
pub(super) struct ScalarAdamW {
    optimiser: AdamW,
    pub(super) var: Vec<f64>,
    moments: Vec<(f64, f64)>,
}

impl ScalarAdamW {
    pub(super) fn new(optimiser: AdamW, var: Vec<f64>) -> Self {
        let moments = vec![(0.0, 0.0); var.len()];
        ScalarAdamW { optimiser, var, moments }
    }

    pub(super) fn step(&mut self, grad: &[f64], learning_rate: f64, step: u64, grad_scale: f64) {
        let AdamW { beta1, beta2, epsilon, weight_decay } = self.optimiser;
        for ((var, (m, v)), grad) in self.var.iter_mut().zip(&mut self.moments).zip(grad) {
            let grad = grad * grad_scale;
            *m = beta1 * *m + (1.0 - beta1) * grad;
            *v = beta2 * *v + (1.0 - beta2) * grad * grad;
            let (m_hat, v_hat) = (*m / (1.0 - beta1.powf(step as f64)), *v / (1.0 - beta2.powf(step as f64)));
            *var -= learning_rate * (weight_decay * *var + m_hat / (v_hat.sqrt() + epsilon));
        }
    }
}

/// Ranges of keys: some empty, some all, some that end beyond the last key.
pub(super) fn visible(random: &mut Random, queries: usize, keys: usize) -> Vec<u32> {
    let mut ranges = Vec::with_capacity(2 * queries);
    for query in 0..queries {
        let (one, other) = (random.below(keys + 1), random.below(keys + 1));
        let (first, end) = match query % 4 {
            0 => (one.min(other), one.max(other)),
            1 => (0, keys),
            2 => (one, one),
            _ => (one.min(keys - 1), keys + 3),
        };
        ranges.extend([first as u32, end as u32]);
    }
    ranges
}

/// Targets, and masks that allow about half of the tokens; the target alone in every fourth row, all but the target
/// in every fourth.
pub(super) fn targets_and_mask(random: &mut Random, rows: usize, vocabulary: usize) -> (Vec<u32>, Vec<u32>) {
    let words = vocabulary.div_ceil(32);
    let (mut targets, mut mask) = (Vec::with_capacity(rows), Vec::with_capacity(rows * words));
    for row in 0..rows {
        let target = random.below(vocabulary);
        targets.push(target as u32);
        for word in 0..words {
            let bit = if word == target / 32 { 1u32 << (target % 32) } else { 0 };
            let drawn = if random.below(4) == 0 { 0 } else { random.next_u64() as u32 };
            mask.push(match row % 4 {
                1 => bit,
                2 => !bit,
                _ => drawn | bit,
            });
        }
    }
    (targets, mask)
}
