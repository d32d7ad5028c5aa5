//! Swapping the two middle axes of a tensor, as attention does with positions and heads: a copy that moves whole rows.

use super::elements;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

/// (A, B, C, D) → (A, C, B, D), contiguous.
pub(crate) fn swap_axes(x: &Tensor) -> Result<Tensor> {
    x.contiguous()?.apply_op1(SwapAxes)
}

struct SwapAxes;

impl CustomOp1 for SwapAxes {
    fn name(&self) -> &'static str {
        "swap-axes"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (a, b, c, d) = layout.shape().dims4()?;
        let x = elements::<f32>(x, layout)?;
        let mut y = vec![0f32; x.len()];
        y.par_chunks_mut((b * d).max(1)).enumerate().for_each(|(at, y)| {
            let (outer, column) = (at / c, at % c);
            for (row, y) in y.chunks_mut(d.max(1)).enumerate() {
                y.copy_from_slice(&x[((outer * b + row) * c + column) * d..][..d]);
            }
        });
        Ok((CpuStorage::F32(y), Shape::from((a, c, b, d))))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &candle_core::CudaStorage, layout: &Layout) -> Result<(candle_core::CudaStorage, Shape)> {
        use super::cuda::{Arg, Launch, output, size};
        use candle_core::backend::BackendStorage;
        let (a, b, c, d) = layout.shape().dims4()?;
        let (device, dtype, count) = (&x.device, x.dtype(), a * b * c * d);
        let y = output(device, count, dtype)?;
        let args = [
            Arg::read((x, layout), dtype)?,
            Arg::Write(&y),
            Arg::U32(size(count)?),
            Arg::U32(size(b)?),
            Arg::U32(size(c)?),
            Arg::U32(size(d)?),
        ];
        Launch::elements(count, dtype)?.run("swap_axes", dtype, device, &args)?;
        Ok((y, Shape::from((a, c, b, d))))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        grad.contiguous()?.apply_op1_no_bwd(&SwapAxes).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};

    #[test]
    fn axes_are_swapped_and_gradients_swapped_back() {
        for (a, b, c, d) in [(1, 1, 1, 1), (2, 3, 4, 5), (3, 1, 7, 2), (1, 6, 2, 8)] {
            let values: Vec<f32> = (0..a * b * c * d).map(|it| (it as f32).sin()).collect();
            let x = Var::from_tensor(&Tensor::from_vec(values, (a, b, c, d), &Device::Cpu).unwrap()).unwrap();
            let (found, expected) = (swap_axes(&x).unwrap(), x.transpose(1, 2).unwrap().contiguous().unwrap());
            let flat = |it: &Tensor| it.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert_eq!((found.dims(), flat(&found)), (expected.dims(), flat(&expected)));
            let weights =
                Tensor::arange(0f32, (a * b * c * d) as f32, &Device::Cpu).unwrap().reshape((a, c, b, d)).unwrap();
            let gradient =
                |y: &Tensor| flat((y * &weights).unwrap().sum_all().unwrap().backward().unwrap().get(&x).unwrap());
            assert_eq!(gradient(&found), gradient(&expected));
        }
    }
}
