//! `x / rms(x) · weight`, as Qwen and Llama normalise.

use super::{elements, rows_per_piece};
use crate::simd;
use candle_core::{CpuStorage, CustomOp2, D, Layout, Result, Shape, Storage, Tensor, bail};
use rayon::prelude::*;

/// Normalises the rows of `x [.., D]` to a root mean square of one and multiplies them by `weight [D]`.
pub(crate) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let width = weight.dims1()?;
    if x.dim(D::Minus1)? != width || width == 0 {
        bail!("rms_norm: rows of {:?} do not fit a weight of {width}", x.shape());
    }
    x.contiguous()?.apply_op2(&weight.contiguous()?, RmsNorm { eps: eps as f32 })
}

struct RmsNorm {
    eps: f32,
}

/// Rows whose shares of the weight's gradient are added up before those of others. Part of the result.
const BLOCK: usize = 32;

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, weight) = (elements::<f32>(x, x_layout)?, elements::<f32>(weight, weight_layout)?);
        let width = weight.len();
        let mut y = vec![0f32; x.len()];
        y.par_chunks_mut(width)
            .zip(x.par_chunks(width))
            .with_min_len(rows_per_piece(width))
            .for_each(|(y, x)| self.forward_row(x, weight, y));
        Ok((CpuStorage::F32(y), x_layout.shape().clone()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        x: &candle_core::CudaStorage,
        x_layout: &Layout,
        weight: &candle_core::CudaStorage,
        weight_layout: &Layout,
    ) -> Result<(candle_core::CudaStorage, Shape)> {
        on_cuda::forward(self.eps, (x, x_layout), (weight, weight_layout))
    }

    fn bwd(&self, x: &Tensor, weight: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        let (x_storage, x_layout) = x.storage_and_layout();
        let (weight_storage, weight_layout) = weight.storage_and_layout();
        let (grad_storage, grad_layout) = grad.storage_and_layout();
        let (grad_x, grad_weight) = match (&*x_storage, &*weight_storage, &*grad_storage) {
            (Storage::Cpu(x), Storage::Cpu(weight), Storage::Cpu(grad)) => {
                let (grad_x, grad_weight) = self.backward(
                    elements(x, x_layout)?,
                    elements(weight, weight_layout)?,
                    elements(grad, grad_layout)?,
                );
                (Storage::Cpu(CpuStorage::F32(grad_x)), Storage::Cpu(CpuStorage::F32(grad_weight)))
            }
            #[cfg(feature = "cuda")]
            (Storage::Cuda(x), Storage::Cuda(weight), Storage::Cuda(grad)) => {
                let (grad_x, grad_weight) =
                    on_cuda::backward(self.eps, (x, x_layout), (weight, weight_layout), (grad, grad_layout))?;
                (Storage::Cuda(grad_x), Storage::Cuda(grad_weight))
            }
            _ => bail!("rms_norm: no gradient on this device"),
        };
        let tensor = |storage, like: &Tensor| {
            Tensor::from_storage(storage, like.shape(), candle_core::op::BackpropOp::none(), false)
        };
        Ok((Some(tensor(grad_x, x)), Some(tensor(grad_weight, weight))))
    }
}

impl RmsNorm {
    fn forward_row(&self, x: &[f32], weight: &[f32], y: &mut [f32]) {
        let inverse = self.inverse(x);
        for ((y, x), weight) in y.iter_mut().zip(x).zip(weight) {
            *y = x * inverse * weight;
        }
    }

    /// One over the root mean square of a row.
    fn inverse(&self, x: &[f32]) -> f32 {
        1.0 / (simd::sum(x, |x| x * x) / x.len() as f32 + self.eps).sqrt()
    }

    /// The gradients of x and of the weight.
    fn backward(&self, x: &[f32], weight: &[f32], grad: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let width = weight.len();
        let block = BLOCK * width;
        let mut grad_x = vec![0f32; x.len()];
        let mut shares = vec![0f32; x.len().div_ceil(block) * width];
        grad_x
            .par_chunks_mut(block)
            .zip(shares.par_chunks_mut(width))
            .zip(x.par_chunks(block).zip(grad.par_chunks(block)))
            .with_min_len(rows_per_piece(block))
            .for_each(|((grad_x, share), (x, grad))| {
                let rows = x.chunks(width).zip(grad.chunks(width));
                for (grad_x, (x, grad)) in grad_x.chunks_mut(width).zip(rows) {
                    self.backward_row(x, weight, grad, grad_x, share);
                }
            });
        let mut grad_weight = vec![0f32; width];
        for share in shares.chunks(width) {
            for (sum, share) in grad_weight.iter_mut().zip(share) {
                *sum += share;
            }
        }
        (grad_x, grad_weight)
    }

    fn backward_row(&self, x: &[f32], weight: &[f32], grad: &[f32], grad_x: &mut [f32], share: &mut [f32]) {
        let inverse = self.inverse(x);
        // What reaches the normalised row; its part along x is taken out, since scaling x changes nothing.
        for ((inner, grad), weight) in grad_x.iter_mut().zip(grad).zip(weight) {
            *inner = grad * weight;
        }
        let along = simd::sum2(grad_x, x, |inner, x| inner * x) / x.len() as f32 * inverse * inverse;
        for ((grad_x, share), (x, grad)) in grad_x.iter_mut().zip(share).zip(x.iter().zip(grad)) {
            *grad_x = inverse * (*grad_x - x * along);
            *share += grad * x * inverse;
        }
    }
}

#[cfg(feature = "cuda")]
mod on_cuda {
    use crate::ops::cuda::{Arg, Launch, Operand, output, size};
    use candle_core::{CudaStorage, DType, Result, Shape, backend::BackendStorage, bail};

    /// Rows of partial sums of the weight's gradient. Part of the result, so no property of the device.
    const BLOCKS: usize = 1_024;
    /// The widest row whose share of the weight's gradient fits the shared memory that every device has.
    const WIDEST: usize = 8_192;

    pub(super) fn forward(eps: f32, x: Operand<'_>, weight: Operand<'_>) -> Result<(CudaStorage, Shape)> {
        let (dtype, shape, width) = (x.0.dtype(), x.1.shape(), weight.1.shape().elem_count());
        let y = output(&x.0.device, shape.elem_count(), dtype)?;
        Launch::rows(shape.elem_count() / width, width, dtype)?.run(
            "rms_norm",
            dtype,
            &x.0.device,
            &[Arg::read(x, dtype)?, Arg::read(weight, dtype)?, Arg::Write(&y), Arg::U32(size(width)?), Arg::F32(eps)],
        )?;
        Ok((y, shape.clone()))
    }

    pub(super) fn backward(
        eps: f32,
        x: Operand<'_>,
        weight: Operand<'_>,
        grad: Operand<'_>,
    ) -> Result<(CudaStorage, CudaStorage)> {
        let (device, dtype) = (&x.0.device, x.0.dtype());
        let (count, width) = (x.1.shape().elem_count(), weight.1.shape().elem_count());
        if width > WIDEST {
            bail!("rms_norm: rows of {width} have no gradient on CUDA; {WIDEST} is the most");
        }
        let rows = count / width;
        let blocks = rows.min(BLOCKS);
        let grad_x = output(device, count, dtype)?;
        let shares = output(device, blocks * width, DType::F32)?;
        Launch { shared_bytes: size(4 * width)?, ..Launch::rows(blocks, width, dtype)? }.run(
            "rms_norm_grad",
            dtype,
            device,
            &[
                Arg::read(x, dtype)?,
                Arg::read(weight, dtype)?,
                Arg::read(grad, dtype)?,
                Arg::Write(&grad_x),
                Arg::Write(&shares),
                Arg::U32(size(rows)?),
                Arg::U32(size(width)?),
                Arg::F32(eps),
            ],
        )?;
        let grad_weight = output(device, width, dtype)?;
        Launch { grid: (size(width.div_ceil(32))?, 1), threads: 1_024, shared_bytes: 0 }.run(
            "column_sums",
            dtype,
            device,
            &[Arg::Write(&shares), Arg::Write(&grad_weight), Arg::U32(size(blocks)?), Arg::U32(size(width)?)],
        )?;
        Ok((grad_x, grad_weight))
    }
}
