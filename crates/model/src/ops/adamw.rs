//! The optimiser's step and the norm of a gradient, in place and in one pass over each tensor.

use super::{elements, elements_mut};
use candle_core::{CpuStorage, CustomOp1, InplaceOp2, InplaceOp3, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

/// Adam with decoupled weight decay, with bias correction as PyTorch's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdamW {
    pub(crate) beta1: f64,
    pub(crate) beta2: f64,
    pub(crate) epsilon: f64,
    pub(crate) weight_decay: f64,
}

impl AdamW {
    /// Takes step number `step` (from 1) of `var` along `grad · grad_scale`, and updates the moments `m` and `v`, all
    /// `f32`, in place. The gradient may be `bf16` on a GPU. The tensors keep their identity, so that a `Var` changes too.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn step(
        &self,
        var: &Tensor,
        grad: &Tensor,
        m: &Tensor,
        v: &Tensor,
        learning_rate: f64,
        step: u64,
        grad_scale: f64,
    ) -> Result<()> {
        if [grad, m, v].iter().any(|tensor| tensor.shape() != var.shape()) || step == 0 {
            bail!("adamw: step {step} of {:?} by {:?} is not possible", var.shape(), grad.shape());
        }
        let grad = grad.contiguous()?;
        m.inplace_op2(&grad, &Moment::new(self.beta1, grad_scale, false))?;
        v.inplace_op2(&grad, &Moment::new(self.beta2, grad_scale, true))?;
        var.inplace_op3(
            m,
            v,
            &Update {
                keep: (1.0 - learning_rate * self.weight_decay) as f32,
                rate: (learning_rate / (1.0 - self.beta1.powf(step as f64))) as f32,
                inverse_root: (1.0 / (1.0 - self.beta2.powf(step as f64)).sqrt()) as f32,
                epsilon: self.epsilon as f32,
            },
        )
    }
}

/// `sum = keep · sum + share · term`, in place.
pub(crate) fn scaled_add(sum: &Tensor, keep: f64, term: &Tensor, share: f64) -> Result<()> {
    if term.shape() != sum.shape() {
        bail!("scaled_add: {:?} to {:?} is not possible", term.shape(), sum.shape());
    }
    let (keep, share) = (keep as f32, share as f32);
    sum.inplace_op2(term, &Moment { keep, share, grad_scale: 1.0, squared: false })
}

/// The sum of the squares of a gradient, as an `f32` scalar on its device.
pub(crate) fn squared_norm(grad: &Tensor) -> Result<Tensor> {
    grad.contiguous()?.apply_op1_no_bwd(&SquaredNorm)
}

/// Elements that a thread takes at a time. Part of the norm, since each piece is summed by itself.
const PIECE: usize = 8_192;

/// `moment = keep · moment + share · grad`, or of its square.
struct Moment {
    keep: f32,
    share: f32,
    grad_scale: f32,
    squared: bool,
}

impl Moment {
    fn new(beta: f64, grad_scale: f64, squared: bool) -> Self {
        Moment { keep: beta as f32, share: (1.0 - beta) as f32, grad_scale: grad_scale as f32, squared }
    }
}

impl InplaceOp2 for Moment {
    fn name(&self) -> &'static str {
        "adamw_moment"
    }

    fn cpu_fwd(
        &self,
        moment: &mut CpuStorage,
        moment_layout: &Layout,
        grad: &CpuStorage,
        grad_layout: &Layout,
    ) -> Result<()> {
        let (moment, grad) = (elements_mut(moment, moment_layout)?, elements::<f32>(grad, grad_layout)?);
        moment.par_chunks_mut(PIECE).zip(grad.par_chunks(PIECE)).for_each(|(moment, grad)| {
            for (moment, grad) in moment.iter_mut().zip(grad) {
                let grad = grad * self.grad_scale;
                let term = if self.squared { grad * grad } else { grad };
                *moment = self.keep * *moment + self.share * term;
            }
        });
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        moment: &mut candle_core::CudaStorage,
        moment_layout: &Layout,
        grad: &candle_core::CudaStorage,
        grad_layout: &Layout,
    ) -> Result<()> {
        use super::cuda::{Arg, Launch};
        use candle_core::{DType, backend::BackendStorage};
        let (dtype, count) = (grad.dtype(), grad_layout.shape().elem_count());
        let args = [
            Arg::read((moment, moment_layout), DType::F32)?,
            Arg::read((grad, grad_layout), dtype)?,
            Arg::U64(count as u64),
            Arg::F32(self.keep),
            Arg::F32(self.share),
            Arg::F32(self.grad_scale),
            Arg::U32(self.squared.into()),
        ];
        Launch::elements(count, dtype)?.run("adamw_moment", dtype, &moment.device, &args)
    }
}

/// `var = keep · var - rate · m / (√v · inverse_root + epsilon)`.
struct Update {
    keep: f32,
    rate: f32,
    inverse_root: f32,
    epsilon: f32,
}

impl InplaceOp3 for Update {
    fn name(&self) -> &'static str {
        "adamw_update"
    }

    fn cpu_fwd(
        &self,
        var: &mut CpuStorage,
        var_layout: &Layout,
        m: &CpuStorage,
        m_layout: &Layout,
        v: &CpuStorage,
        v_layout: &Layout,
    ) -> Result<()> {
        let var = elements_mut(var, var_layout)?;
        let (m, v) = (elements::<f32>(m, m_layout)?, elements::<f32>(v, v_layout)?);
        var.par_chunks_mut(PIECE).zip(m.par_chunks(PIECE).zip(v.par_chunks(PIECE))).for_each(|(var, (m, v))| {
            for (var, (m, v)) in var.iter_mut().zip(m.iter().zip(v)) {
                *var = self.keep * *var - self.rate * m / (v.sqrt() * self.inverse_root + self.epsilon);
            }
        });
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        var: &mut candle_core::CudaStorage,
        var_layout: &Layout,
        m: &candle_core::CudaStorage,
        m_layout: &Layout,
        v: &candle_core::CudaStorage,
        v_layout: &Layout,
    ) -> Result<()> {
        use super::cuda::{Arg, Launch};
        use candle_core::DType;
        let count = var_layout.shape().elem_count();
        let args = [
            Arg::read((var, var_layout), DType::F32)?,
            Arg::read((m, m_layout), DType::F32)?,
            Arg::read((v, v_layout), DType::F32)?,
            Arg::U64(count as u64),
            Arg::F32(self.keep),
            Arg::F32(self.rate),
            Arg::F32(self.inverse_root),
            Arg::F32(self.epsilon),
        ];
        Launch::elements(count, DType::F32)?.run("adamw_update", DType::F32, &var.device, &args)
    }
}

struct SquaredNorm;

impl CustomOp1 for SquaredNorm {
    fn name(&self) -> &'static str {
        "squared_norm"
    }

    fn cpu_fwd(&self, grad: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let grad = elements::<f32>(grad, layout)?;
        let mut shares = vec![0f64; grad.len().div_ceil(PIECE)];
        shares.par_iter_mut().zip(grad.par_chunks(PIECE)).for_each(|(share, grad)| {
            let (chunks, rest) = grad.as_chunks::<8>();
            let mut lanes = [0f64; 8];
            for chunk in chunks.iter().map(<[f32; 8]>::as_slice).chain([rest]) {
                for (lane, &grad) in lanes.iter_mut().zip(chunk) {
                    *lane += f64::from(grad) * f64::from(grad);
                }
            }
            *share = lanes.iter().sum();
        });
        Ok((CpuStorage::F32(vec![shares.iter().sum::<f64>() as f32]), Shape::from(())))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, grad: &candle_core::CudaStorage, layout: &Layout) -> Result<(candle_core::CudaStorage, Shape)> {
        use super::cuda::{Arg, Launch, output, size};
        use candle_core::{DType, backend::BackendStorage};
        // Blocks that add up a share each; a number of this file and not of the device, since it is part of the result.
        const BLOCKS: usize = 1_024;
        let (device, dtype, count) = (&grad.device, grad.dtype(), layout.shape().elem_count());
        let shares = output(device, BLOCKS, DType::F32)?;
        let args = [Arg::read((grad, layout), dtype)?, Arg::Write(&shares), Arg::U64(count as u64)];
        let launch = Launch { grid: (size(BLOCKS)?, 1), threads: 256, shared_bytes: 0 };
        launch.run("squared_norm", dtype, device, &args)?;
        let norm = output(device, 1, DType::F32)?;
        let args = [Arg::Write(&shares), Arg::Write(&norm), Arg::U32(size(BLOCKS)?), Arg::U32(1)];
        Launch { grid: (1, 1), threads: 1_024, shared_bytes: 0 }.run("column_sums", DType::F32, device, &args)?;
        Ok((norm, Shape::from(())))
    }
}
