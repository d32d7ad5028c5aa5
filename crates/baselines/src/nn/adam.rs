//! Adam, with its usual constants.

use super::NetWeights;
use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, DType, InplaceOp1, Layout, Result, Storage, Tensor, WithDType};
use std::cell::RefCell;
use std::collections::BTreeMap;

const FIRST_DECAY: f64 = 0.9;
const SECOND_DECAY: f64 = 0.999;
const EPSILON: f32 = 1e-8;

/// Adam. Gradients may be clipped by their joint norm.
pub struct Adam {
    /// The learning rate.
    pub rate: f64,
    clip: Option<f64>,
    steps: i32,
    /// By weight: the running means of the gradient and of its square.
    moments: BTreeMap<String, Vec<[f32; 2]>>,
}

impl Adam {
    /// Adam at this rate.
    pub fn new(rate: f64) -> Self {
        Adam { rate, clip: None, steps: 0, moments: BTreeMap::new() }
    }

    /// The same with gradients of at most this norm.
    #[must_use]
    pub fn clipped(self, norm: f64) -> Self {
        Adam { clip: Some(norm), ..self }
    }

    /// One step down the gradient of this loss.
    ///
    /// # Errors
    /// The loss is not one number, or a tensor operation failed.
    pub fn step(&mut self, weights: &NetWeights, loss: &Tensor) -> Result<()> {
        let gradients = loss.backward()?;
        self.steps += 1;
        let scale = self.scale(weights, &gradients)?;
        let (first, second) = (1.0 - FIRST_DECAY.powi(self.steps), 1.0 - SECOND_DECAY.powi(self.steps));
        for (name, var) in weights.trained() {
            let Some(gradient) = gradients.get(var.as_tensor()) else { continue };
            let moments = self.moments.entry(name.clone()).or_insert_with(|| vec![[0.0; 2]; gradient.elem_count()]);
            let change = Change {
                gradient: gradient.contiguous()?,
                moments: RefCell::new(moments),
                scale: scale as f32,
                rate: self.rate as f32,
                first: first as f32,
                second: second as f32,
            };
            var.as_tensor().inplace_op1(&change)?;
        }
        Ok(())
    }

    /// What gradients are multiplied by so that their norm keeps the bound.
    fn scale(&self, weights: &NetWeights, gradients: &GradStore) -> Result<f64> {
        let Some(clip) = self.clip else { return Ok(1.0) };
        let mut squares = 0.0;
        for var in weights.trained().values() {
            if let Some(gradient) = gradients.get(var.as_tensor()) {
                squares += match gradient.dtype() {
                    DType::F32 => sum_of_squares::<f32>(&gradient.contiguous()?)?,
                    _ => sum_of_squares::<f64>(&gradient.contiguous()?)?,
                };
            }
        }
        Ok((clip / squares.sqrt().max(1e-12)).min(1.0))
    }
}

fn sum_of_squares<T: WithDType>(gradient: &Tensor) -> Result<f64> {
    let (storage, layout) = gradient.storage_and_layout();
    // In eight sums: one would wait for each addition.
    let mut sums = [0.0_f64; 8];
    for slopes in numbers::<T>(&storage, layout)?.chunks(sums.len()) {
        sums.iter_mut().zip(slopes).for_each(|(sum, slope)| *sum += slope.to_f64() * slope.to_f64());
    }
    Ok(sums.iter().sum())
}

/// The numbers of a contiguous tensor, without a copy.
fn numbers<'a, T: WithDType>(storage: &'a Storage, layout: &Layout) -> Result<&'a [T]> {
    match (storage, layout.contiguous_offsets()) {
        (Storage::Cpu(storage), Some((start, end))) => within(storage.as_slice::<T>()?.get(start..end)),
        _ => candle_core::bail!("expected a contiguous tensor on the CPU"),
    }
}

fn within<T>(found: Option<T>) -> Result<T> {
    match found {
        Some(found) => Ok(found),
        None => candle_core::bail!("a tensor is shorter than its layout says"),
    }
}

/// One step for one weight, in one pass over its numbers and in place: a chain of tensor operations would write a tensor for
/// each.
struct Change<'a> {
    gradient: Tensor,
    moments: RefCell<&'a mut Vec<[f32; 2]>>,
    scale: f32,
    rate: f32,
    first: f32,
    second: f32,
}

impl InplaceOp1 for Change<'_> {
    fn name(&self) -> &'static str {
        "adam"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let Some((start, end)) = layout.contiguous_offsets() else {
            candle_core::bail!("expected a contiguous weight");
        };
        match storage {
            CpuStorage::F32(weights) => self.apply(within(weights.get_mut(start..end))?),
            CpuStorage::F64(weights) => self.apply(within(weights.get_mut(start..end))?),
            _ => candle_core::bail!("expected a weight of 32 or 64 bits"),
        }
    }
}

impl Change<'_> {
    fn apply<T: WithDType>(&self, weights: &mut [T]) -> Result<()> {
        let (storage, layout) = self.gradient.storage_and_layout();
        let slopes = numbers::<T>(&storage, layout)?;
        let (keep_first, keep_second) = (FIRST_DECAY as f32, SECOND_DECAY as f32);
        let mut moments = self.moments.borrow_mut();
        for ((weight, slope), [mean, square]) in weights.iter_mut().zip(slopes).zip(moments.iter_mut()) {
            let slope = slope.to_f64() as f32 * self.scale;
            *mean = keep_first * *mean + (1.0 - keep_first) * slope;
            *square = keep_second * *square + (1.0 - keep_second) * slope * slope;
            let step = self.rate * (*mean / self.first) / ((*square / self.second).sqrt() + EPSILON);
            *weight = T::from_f64(weight.to_f64() - f64::from(step));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::tensor;

    #[test]
    fn the_first_step_is_as_long_as_the_rate_and_the_minimum_is_found() {
        let mut weights = NetWeights::new(0, DType::F64);
        let x = weights.constant("x", &[2], 1.0).unwrap();
        let goal = tensor(&[3.0, -2.0], 2, DType::F64).unwrap();
        let loss = || (&x - &goal).unwrap().sqr().unwrap().sum_all().unwrap();
        let mut adam = Adam::new(0.1);
        adam.step(&weights, &loss()).unwrap();
        let after: Vec<f64> = x.to_vec1().unwrap();
        assert!((after[0] - 1.1).abs() < 1e-6 && (after[1] - 0.9).abs() < 1e-6, "{after:?}");
        for _ in 0..500 {
            adam.step(&weights, &loss()).unwrap();
        }
        assert!(loss().to_scalar::<f64>().unwrap() < 1e-4);
    }

    #[test]
    fn clipping_bounds_the_norm() {
        let mut weights = NetWeights::new(0, DType::F64);
        let x = weights.constant("x", &[2], 1.0).unwrap();
        let loss = (&x * 30.0).unwrap().sum_all().unwrap();
        let gradients = loss.backward().unwrap();
        let scale = Adam::new(0.1).clipped(1.0).scale(&weights, &gradients).unwrap();
        assert!((scale - 1.0 / (30.0 * 2_f64.sqrt())).abs() < 1e-12, "{scale}");
    }
}
