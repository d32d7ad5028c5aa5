//! Adam, with its usual constants.

use super::NetWeights;
use candle_core::backprop::GradStore;
use candle_core::{DType, Result, Tensor, Var, WithDType};
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
        for (name, var) in weights.trained() {
            let Some(gradient) = gradients.get(var.as_tensor()) else { continue };
            let moments = self.moments.entry(name.clone()).or_insert_with(|| vec![[0.0; 2]; gradient.elem_count()]);
            let (first, second) = (1.0 - FIRST_DECAY.powi(self.steps), 1.0 - SECOND_DECAY.powi(self.steps));
            let change =
                Change { scale: scale as f32, rate: self.rate as f32, first: first as f32, second: second as f32 };
            match var.dtype() {
                DType::F32 => change.apply::<f32>(var, gradient, moments)?,
                _ => change.apply::<f64>(var, gradient, moments)?,
            }
        }
        Ok(())
    }

    /// What gradients are multiplied by so that their norm keeps the bound.
    fn scale(&self, weights: &NetWeights, gradients: &GradStore) -> Result<f64> {
        let Some(clip) = self.clip else { return Ok(1.0) };
        let mut squares = 0.0;
        for var in weights.trained().values() {
            if let Some(gradient) = gradients.get(var.as_tensor()) {
                squares += gradient.sqr()?.sum_all()?.to_dtype(DType::F64)?.to_scalar::<f64>()?;
            }
        }
        Ok((clip / squares.sqrt().max(1e-12)).min(1.0))
    }
}

/// One step for one weight, in one pass over its numbers: a chain of tensor operations would write a tensor for each.
struct Change {
    scale: f32,
    rate: f32,
    first: f32,
    second: f32,
}

impl Change {
    fn apply<T: WithDType>(&self, var: &Var, gradient: &Tensor, moments: &mut [[f32; 2]]) -> Result<()> {
        let mut numbers: Vec<T> = var.as_tensor().flatten_all()?.to_vec1()?;
        let slopes: Vec<T> = gradient.flatten_all()?.to_vec1()?;
        let (keep_first, keep_second) = (FIRST_DECAY as f32, SECOND_DECAY as f32);
        for ((number, slope), [mean, square]) in numbers.iter_mut().zip(&slopes).zip(moments) {
            let slope = slope.to_f64() as f32 * self.scale;
            *mean = keep_first * *mean + (1.0 - keep_first) * slope;
            *square = keep_second * *square + (1.0 - keep_second) * slope * slope;
            let step = self.rate * (*mean / self.first) / ((*square / self.second).sqrt() + EPSILON);
            *number = T::from_f64(number.to_f64() - f64::from(step));
        }
        var.set(&Tensor::from_vec(numbers, var.shape(), var.device())?)
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
