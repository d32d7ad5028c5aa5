//! The softmax of attention: over the keys a query may see.

use super::{elements, rows_per_piece};
use crate::simd;
use candle_core::{CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;
use std::ops::Range;

/// `softmax(scale · scores)` over the visible keys of `scores [B, H, T, S]`. Query `(b, t)` sees the keys from
/// `visible[b, t, 0]` until before `visible[b, t, 1]` (`u32 [B, T, 2]`, without gradient); all others get a probability of
/// exactly 0. A query that sees none gets zeros.
pub(crate) fn masked_softmax(scores: &Tensor, visible: &Tensor, scale: f64) -> Result<Tensor> {
    let (batch, _, queries, _) = scores.dims4()?;
    if visible.dims3()? != (batch, queries, 2) {
        bail!("masked_softmax: {:?} does not say what the queries of {:?} see", visible.shape(), scores.shape());
    }
    scores.contiguous()?.apply_op2(&visible.contiguous()?, MaskedSoftmax { scale: scale as f32 })
}

struct MaskedSoftmax {
    scale: f32,
}

/// From the probabilities, the gradient and what is visible: the gradient of the scores.
struct MaskedSoftmaxGrad {
    scale: f32,
}

impl CustomOp2 for MaskedSoftmax {
    fn name(&self) -> &'static str {
        "masked_softmax"
    }

    fn cpu_fwd(
        &self,
        scores: &CpuStorage,
        scores_layout: &Layout,
        visible: &CpuStorage,
        visible_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (scores, visible) = (elements::<f32>(scores, scores_layout)?, elements::<u32>(visible, visible_layout)?);
        let visible_keys = VisibleKeys::new(visible, scores_layout.shape())?;
        let mut probabilities = vec![0f32; scores.len()];
        let width = visible_keys.keys.max(1);
        probabilities
            .par_chunks_mut(width)
            .zip(scores.par_chunks(width))
            .enumerate()
            .with_min_len(rows_per_piece(width))
            .for_each(|(row, (probabilities, scores))| {
                let seen = visible_keys.of(row);
                if let (Some(probabilities), Some(scores)) = (probabilities.get_mut(seen.clone()), scores.get(seen)) {
                    self.forward_row(scores, probabilities);
                }
            });
        Ok((CpuStorage::F32(probabilities), scores_layout.shape().clone()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        scores: &candle_core::CudaStorage,
        scores_layout: &Layout,
        visible: &candle_core::CudaStorage,
        visible_layout: &Layout,
    ) -> Result<(candle_core::CudaStorage, Shape)> {
        use super::cuda::{Arg, output};
        use candle_core::{DType, backend::BackendStorage};
        let (device, dtype, shape) = (&scores.device, scores.dtype(), scores_layout.shape());
        let probabilities = output(device, shape.elem_count(), dtype)?;
        let args = [
            Arg::read((scores, scores_layout), dtype)?,
            Arg::read((visible, visible_layout), DType::U32)?,
            Arg::Write(&probabilities),
        ];
        launch_rows("masked_softmax", device, dtype, shape, self.scale, args)?;
        Ok((probabilities, shape.clone()))
    }

    fn bwd(
        &self,
        _: &Tensor,
        visible: &Tensor,
        probabilities: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let op = MaskedSoftmaxGrad { scale: self.scale };
        Ok((Some(probabilities.apply_op3_no_bwd(&grad.contiguous()?, visible, &op)?), None))
    }
}

impl MaskedSoftmax {
    /// On the visible part of a row.
    fn forward_row(&self, scores: &[f32], probabilities: &mut [f32]) {
        for (scaled, score) in probabilities.iter_mut().zip(scores) {
            *scaled = score * self.scale;
        }
        let largest = simd::largest(probabilities);
        for scaled in probabilities.iter_mut() {
            *scaled = simd::exp(*scaled - largest);
        }
        let inverse = 1.0 / simd::sum(probabilities, |power| power);
        for probability in probabilities.iter_mut() {
            *probability *= inverse;
        }
    }
}

impl CustomOp3 for MaskedSoftmaxGrad {
    fn name(&self) -> &'static str {
        "masked_softmax_grad"
    }

    fn cpu_fwd(
        &self,
        probabilities: &CpuStorage,
        layout: &Layout,
        grad: &CpuStorage,
        grad_layout: &Layout,
        visible: &CpuStorage,
        visible_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (probabilities, grad) = (elements::<f32>(probabilities, layout)?, elements::<f32>(grad, grad_layout)?);
        let visible_keys = VisibleKeys::new(elements(visible, visible_layout)?, layout.shape())?;
        let mut grad_scores = vec![0f32; grad.len()];
        let width = visible_keys.keys.max(1);
        grad_scores
            .par_chunks_mut(width)
            .zip(probabilities.par_chunks(width).zip(grad.par_chunks(width)))
            .enumerate()
            .with_min_len(rows_per_piece(width))
            .for_each(|(row, (grad_scores, (probabilities, grad)))| {
                let seen = visible_keys.of(row);
                let inputs = probabilities.get(seen.clone()).zip(grad.get(seen.clone()));
                if let (Some(grad_scores), Some((probabilities, grad))) = (grad_scores.get_mut(seen), inputs) {
                    self.row(probabilities, grad, grad_scores);
                }
            });
        Ok((CpuStorage::F32(grad_scores), layout.shape().clone()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        probabilities: &candle_core::CudaStorage,
        layout: &Layout,
        grad: &candle_core::CudaStorage,
        grad_layout: &Layout,
        visible: &candle_core::CudaStorage,
        visible_layout: &Layout,
    ) -> Result<(candle_core::CudaStorage, Shape)> {
        use super::cuda::{Arg, output};
        use candle_core::{DType, backend::BackendStorage};
        let (device, dtype, shape) = (&probabilities.device, probabilities.dtype(), layout.shape());
        let grad_scores = output(device, shape.elem_count(), dtype)?;
        let args = [
            Arg::read((probabilities, layout), dtype)?,
            Arg::read((grad, grad_layout), dtype)?,
            Arg::read((visible, visible_layout), DType::U32)?,
            Arg::Write(&grad_scores),
        ];
        launch_rows("masked_softmax_grad", device, dtype, shape, self.scale, args)?;
        Ok((grad_scores, shape.clone()))
    }
}

impl MaskedSoftmaxGrad {
    /// On the visible part of a row.
    fn row(&self, probabilities: &[f32], grad: &[f32], grad_scores: &mut [f32]) {
        let mean = simd::sum2(probabilities, grad, |probability, grad| probability * grad);
        for ((grad_score, probability), grad) in grad_scores.iter_mut().zip(probabilities).zip(grad) {
            *grad_score = self.scale * probability * (grad - mean);
        }
    }
}

/// Which keys each row of scores sees.
struct VisibleKeys<'a> {
    ranges: &'a [[u32; 2]],
    heads: usize,
    queries: usize,
    keys: usize,
}

impl<'a> VisibleKeys<'a> {
    fn new(visible: &'a [u32], scores: &Shape) -> Result<Self> {
        let (_, heads, queries, keys) = scores.dims4()?;
        Ok(VisibleKeys { ranges: visible.as_chunks().0, heads, queries, keys })
    }

    /// The keys that a row of `[B·H·T, S]` sees.
    fn of(&self, row: usize) -> Range<usize> {
        // There is a row, so there are heads and queries to divide by.
        let query = row / (self.heads * self.queries) * self.queries + row % self.queries;
        let [first, end] = self.ranges.get(query).copied().unwrap_or([0, 0]);
        let end = self.keys.min(end as usize);
        end.min(first as usize)..end
    }
}

/// One warp for each row, four to a block.
#[cfg(feature = "cuda")]
fn launch_rows<const N: usize>(
    kernel: &str,
    device: &candle_core::CudaDevice,
    dtype: candle_core::DType,
    scores: &Shape,
    scale: f32,
    tensors: [super::cuda::Arg<'_>; N],
) -> Result<()> {
    use super::cuda::{Arg, Launch, size};
    let (batch, heads, queries, keys) = scores.dims4()?;
    let rows = batch * heads * queries;
    let mut args = Vec::from(tensors);
    args.extend([rows, heads, queries, keys].iter().map(|&n| size(n).map(Arg::U32)).collect::<Result<Vec<_>>>()?);
    args.push(Arg::F32(scale));
    Launch { grid: (size(rows.div_ceil(4))?, 1), threads: 128, shared_bytes: 0 }.run(kernel, dtype, device, &args)
}
