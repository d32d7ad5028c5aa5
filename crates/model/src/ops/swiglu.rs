//! `silu(gate) · up`, the middle of a gated feed-forward layer.

use super::elements;
use crate::simd;
use candle_core::{CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

/// `silu(gate) · up`, element by element.
pub(crate) fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if gate.shape() != up.shape() {
        bail!("swiglu: {:?} and {:?} are not of one shape", gate.shape(), up.shape());
    }
    gate.contiguous()?.apply_op2(&up.contiguous()?, SwiGlu)
}

struct SwiGlu;

/// From the gate, up and the gradient of the result: the gradient of the gate, then that of up, in one tensor, because
/// both need the same factors and an operation has one result.
struct SwiGluGrad;

/// Elements that a thread takes at a time.
const PIECE: usize = 4_096;

impl CustomOp2 for SwiGlu {
    fn name(&self) -> &'static str {
        "swiglu"
    }

    fn cpu_fwd(
        &self,
        gate: &CpuStorage,
        gate_layout: &Layout,
        up: &CpuStorage,
        up_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (gate, up) = (elements::<f32>(gate, gate_layout)?, elements::<f32>(up, up_layout)?);
        let mut y = vec![0f32; gate.len()];
        y.par_chunks_mut(PIECE).zip(gate.par_chunks(PIECE).zip(up.par_chunks(PIECE))).for_each(|(y, (gate, up))| {
            for ((y, &gate), up) in y.iter_mut().zip(gate).zip(up) {
                *y = gate * sigmoid(gate) * up;
            }
        });
        Ok((CpuStorage::F32(y), gate_layout.shape().clone()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        gate: &candle_core::CudaStorage,
        gate_layout: &Layout,
        up: &candle_core::CudaStorage,
        up_layout: &Layout,
    ) -> Result<(candle_core::CudaStorage, Shape)> {
        use super::cuda::{Arg, Launch, output};
        use candle_core::backend::BackendStorage;
        let (device, dtype, shape) = (&gate.device, gate.dtype(), gate_layout.shape());
        let count = shape.elem_count();
        let y = output(device, count, dtype)?;
        let args = [
            Arg::read((gate, gate_layout), dtype)?,
            Arg::read((up, up_layout), dtype)?,
            Arg::Write(&y),
            Arg::U64(count as u64),
        ];
        Launch::elements(count, dtype)?.run("swiglu", dtype, device, &args)?;
        Ok((y, shape.clone()))
    }

    fn bwd(&self, gate: &Tensor, up: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let both = gate.apply_op3_no_bwd(up, &grad.contiguous()?, &SwiGluGrad)?;
        Ok((Some(both.get(0)?), Some(both.get(1)?)))
    }
}

impl CustomOp3 for SwiGluGrad {
    fn name(&self) -> &'static str {
        "swiglu_grad"
    }

    fn cpu_fwd(
        &self,
        gate: &CpuStorage,
        gate_layout: &Layout,
        up: &CpuStorage,
        up_layout: &Layout,
        grad: &CpuStorage,
        grad_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let gate = elements::<f32>(gate, gate_layout)?;
        let up = elements::<f32>(up, up_layout)?;
        let grad = elements::<f32>(grad, grad_layout)?;
        let mut both = vec![0f32; 2 * gate.len()];
        let (grad_gate, grad_up) = both.split_at_mut(gate.len());
        let inputs = gate.par_chunks(PIECE).zip(up.par_chunks(PIECE)).zip(grad.par_chunks(PIECE));
        grad_gate.par_chunks_mut(PIECE).zip(grad_up.par_chunks_mut(PIECE)).zip(inputs).for_each(
            |((grad_gate, grad_up), ((gate, up), grad))| {
                let inputs = gate.iter().zip(up).zip(grad);
                for ((grad_gate, grad_up), ((&gate, up), grad)) in grad_gate.iter_mut().zip(grad_up).zip(inputs) {
                    let sigmoid = sigmoid(gate);
                    *grad_gate = grad * up * sigmoid * (1.0 + gate * (1.0 - sigmoid));
                    *grad_up = grad * gate * sigmoid;
                }
            },
        );
        Ok((CpuStorage::F32(both), pair(gate_layout)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        gate: &candle_core::CudaStorage,
        gate_layout: &Layout,
        up: &candle_core::CudaStorage,
        up_layout: &Layout,
        grad: &candle_core::CudaStorage,
        grad_layout: &Layout,
    ) -> Result<(candle_core::CudaStorage, Shape)> {
        use super::cuda::{Arg, Launch, output};
        use candle_core::backend::BackendStorage;
        let (device, dtype, count) = (&gate.device, gate.dtype(), gate_layout.shape().elem_count());
        let both = output(device, 2 * count, dtype)?;
        let args = [
            Arg::read((gate, gate_layout), dtype)?,
            Arg::read((up, up_layout), dtype)?,
            Arg::read((grad, grad_layout), dtype)?,
            Arg::Write(&both),
            Arg::U64(count as u64),
        ];
        Launch::elements(count, dtype)?.run("swiglu_grad", dtype, device, &args)?;
        Ok((both, pair(gate_layout)))
    }
}

/// The shape of two tensors of this layout, one after the other.
fn pair(layout: &Layout) -> Shape {
    let mut dims = vec![2];
    dims.extend(layout.dims());
    Shape::from(dims)
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + simd::exp(-x))
}
