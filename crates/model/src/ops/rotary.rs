//! Rotary position embedding: turns pairs of a head's dimensions by angles that grow with the position.

use super::{elements, rows_per_piece};
use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

/// Turns the heads of `x [B, T, H, D]` by the angles whose `cos` and `sin` (`f32 [B·T, D/2]`, without gradient) are given.
/// Dimension `i` of the first half makes a pair with dimension `i` of the second.
pub(crate) fn rotary(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let (batch, tokens, heads, width) = x.dims4()?;
    let angles = (batch * tokens, width / 2);
    if width % 2 != 0 || width == 0 || heads == 0 || cos.dims2()? != angles || sin.dims2()? != angles {
        bail!("rotary: {:?} cannot be turned by {:?} and {:?}", x.shape(), cos.shape(), sin.shape());
    }
    // Detached, because a gradient that is wanted but not given stops the whole backward pass.
    let (cos, sin) = (cos.contiguous()?.detach(), sin.contiguous()?.detach());
    x.contiguous()?.apply_op3(&cos, &sin, Rotary { direction: 1.0 })
}

/// By the angles (1) or back by them (-1), which is the gradient.
struct Rotary {
    direction: f32,
}

impl CustomOp3 for Rotary {
    fn name(&self) -> &'static str {
        "rotary"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        cos: &CpuStorage,
        cos_layout: &Layout,
        sin: &CpuStorage,
        sin_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (_, _, heads, width) = x_layout.shape().dims4()?;
        let x = elements::<f32>(x, x_layout)?;
        let (cos, sin) = (elements::<f32>(cos, cos_layout)?, elements::<f32>(sin, sin_layout)?);
        let (token, half) = (heads * width, width / 2);
        let mut y = vec![0f32; x.len()];
        y.par_chunks_mut(token)
            .zip(x.par_chunks(token))
            .zip(cos.par_chunks(half).zip(sin.par_chunks(half)))
            .with_min_len(rows_per_piece(token))
            .for_each(|((y, x), (cos, sin))| {
                for (y, x) in y.chunks_mut(width).zip(x.chunks(width)) {
                    self.turn(x, cos, sin, y);
                }
            });
        Ok((CpuStorage::F32(y), x_layout.shape().clone()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        x: &candle_core::CudaStorage,
        x_layout: &Layout,
        cos: &candle_core::CudaStorage,
        cos_layout: &Layout,
        sin: &candle_core::CudaStorage,
        sin_layout: &Layout,
    ) -> Result<(candle_core::CudaStorage, Shape)> {
        use super::cuda::{Arg, Launch, output, size};
        use candle_core::{DType, backend::BackendStorage};
        let (batch, tokens, heads, width) = x_layout.shape().dims4()?;
        let (device, dtype, pairs) = (&x.device, x.dtype(), batch * tokens * heads * width / 2);
        let y = output(device, 2 * pairs, dtype)?;
        let args = [
            Arg::read((x, x_layout), dtype)?,
            Arg::read((cos, cos_layout), DType::F32)?,
            Arg::read((sin, sin_layout), DType::F32)?,
            Arg::Write(&y),
            Arg::U32(size(pairs)?),
            Arg::U32(size(heads)?),
            Arg::U32(size(width / 2)?),
            Arg::F32(self.direction),
        ];
        Launch::elements(pairs, dtype)?.run("rotary", dtype, device, &args)?;
        Ok((y, x_layout.shape().clone()))
    }

    fn bwd(
        &self,
        _: &Tensor,
        cos: &Tensor,
        sin: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let back = Rotary { direction: -self.direction };
        Ok((Some(grad.contiguous()?.apply_op3_no_bwd(cos, sin, &back)?), None, None))
    }
}

impl Rotary {
    fn turn(&self, x: &[f32], cos: &[f32], sin: &[f32], y: &mut [f32]) {
        let (x1, x2) = x.split_at(x.len() / 2);
        let (y1, y2) = y.split_at_mut(x.len() / 2);
        for (((y1, y2), (x1, x2)), (cos, sin)) in y1.iter_mut().zip(y2).zip(x1.iter().zip(x2)).zip(cos.iter().zip(sin))
        {
            let sin = sin * self.direction;
            *y1 = x1 * cos - x2 * sin;
            *y2 = x2 * cos + x1 * sin;
        }
    }
}
