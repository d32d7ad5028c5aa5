//! Holds gradients against difference quotients.

use super::NetWeights;
use candle_core::{Result, Tensor};

const STEP: f64 = 1e-6;

/// That the gradient of this loss is its difference quotient, in up to eight entries of every trained weight, two where the
/// weights are many. The weights are
/// numbers of 64 bits.
#[track_caller]
pub fn check_gradient(weights: &NetWeights, loss: impl Fn() -> Result<Tensor>) {
    let value = || loss().unwrap().to_scalar::<f64>().unwrap();
    let gradients = loss().unwrap().backward().unwrap();
    let mut nonzero = 0;
    for (name, var) in weights.trained() {
        let whole = var.as_tensor().detach().copy().unwrap();
        let gradient = match gradients.get(var.as_tensor()) {
            Some(gradient) => gradient.flatten_all().unwrap().to_vec1::<f64>().unwrap(),
            None => vec![0.0; whole.elem_count()],
        };
        let entries: Vec<f64> = whole.flatten_all().unwrap().to_vec1().unwrap();
        let stride = entries.len().div_ceil(if weights.trained().len() > 20 { 2 } else { 8 });
        for at in (0..entries.len()).step_by(stride) {
            let moved = |by: f64| {
                let mut entries = entries.clone();
                entries[at] += by;
                var.set(&Tensor::from_vec(entries, whole.shape(), whole.device()).unwrap()).unwrap();
                value()
            };
            let quotient = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
            var.set(&whole).unwrap();
            let bound = 1e-5 * (1.0 + quotient.abs().max(gradient[at].abs()));
            assert!((quotient - gradient[at]).abs() < bound, "{name}[{at}]: {} is not {quotient}", gradient[at]);
            nonzero += usize::from(quotient.abs() > 1e-9);
        }
    }
    assert!(nonzero > 0, "no entry changes the loss");
}
