//! Selects the operations of a model: the fused ones, or their composed counterparts for comparison.

use super::{composed, gather_rows, gathered_logprob, linear, masked_softmax, rms_norm, rotary, swap_axes, swiglu};
use candle_core::{Result, Tensor};

/// Which operations a model is computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ops {
    /// One pass over memory each, with a backward pass of their own.
    Fused,
    /// Composed of plain operations: the reference of the benchmark.
    Composed,
}

impl Ops {
    pub(crate) fn linear(self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, frozen: bool) -> Result<Tensor> {
        match self {
            Ops::Fused => linear(x, weight, bias, frozen),
            Ops::Composed => match bias {
                None => x.matmul(&weight.t()?),
                Some(bias) => x.matmul(&weight.t()?)?.broadcast_add(bias),
            },
        }
    }

    pub(crate) fn gather_rows(self, table: &Tensor, ids: &[u32]) -> Result<Tensor> {
        match self {
            Ops::Fused => gather_rows(table, ids),
            Ops::Composed => table.index_select(&Tensor::from_slice(ids, ids.len(), table.device())?, 0),
        }
    }

    pub(crate) fn rms_norm(self, x: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor> {
        match self {
            Ops::Fused => rms_norm(x, weight, epsilon),
            Ops::Composed => composed::rms_norm(x, weight, epsilon),
        }
    }

    /// (A, B, C, D) → (A, C, B, D)
    pub(crate) fn swap_axes(self, x: &Tensor) -> Result<Tensor> {
        match self {
            Ops::Fused => swap_axes(x),
            Ops::Composed => x.transpose(1, 2)?.contiguous(),
        }
    }

    pub(crate) fn swiglu(self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        match self {
            Ops::Fused => swiglu(gate, up),
            Ops::Composed => composed::swiglu(gate, up),
        }
    }

    pub(crate) fn rotary(self, x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
        match self {
            Ops::Fused => rotary(x, cos, sin),
            Ops::Composed => composed::rotary(x, cos, sin),
        }
    }

    pub(crate) fn masked_softmax(self, scores: &Tensor, visible: &Tensor, scale: f64) -> Result<Tensor> {
        match self {
            Ops::Fused => masked_softmax(scores, visible, scale),
            Ops::Composed => composed::masked_softmax(scores, visible, scale),
        }
    }

    pub(crate) fn gathered_logprob(
        self,
        logits: &Tensor,
        targets: &Tensor,
        allowed: Option<&Tensor>,
        temperature: f64,
    ) -> Result<Tensor> {
        match self {
            Ops::Fused => gathered_logprob(logits, targets, allowed, temperature),
            Ops::Composed => composed::gathered_logprob(logits, targets, allowed, temperature),
        }
    }
}
