//! The kernels of training.

use crate::device::Device;
use crate::error::GpuError;
use crate::kernels::{Numbers, compile};
use crate::shape::ModelShape;
use cudarc::driver::CudaFunction;

/// All kernels of training, in one translation unit.
pub(crate) const SOURCE: &str = concat!(
    include_str!("../kernels/ptx.cu"),
    "\n",
    include_str!("../kernels/common.cu"),
    "\n",
    include_str!("../kernels/elementwise.cu"),
    "\n",
    include_str!("../kernels/train.cu"),
    "\n",
    include_str!("../kernels/train_attention.cu"),
);

/// Threads of the kernels for losses.
pub(crate) const LOSS_THREADS: u32 = 512;

/// The compiled kernels.
pub(crate) struct TrainKernels {
    pub(crate) embed: CudaFunction,
    pub(crate) embed_back: CudaFunction,
    pub(crate) norm: CudaFunction,
    pub(crate) norm_back: CudaFunction,
    pub(crate) add_partial: CudaFunction,
    pub(crate) column_sums: CudaFunction,
    pub(crate) rope: CudaFunction,
    pub(crate) swiglu: CudaFunction,
    pub(crate) swiglu_back: CudaFunction,
    pub(crate) attend: CudaFunction,
    pub(crate) attend_delta: CudaFunction,
    pub(crate) attend_back_queries: CudaFunction,
    pub(crate) attend_back_keys: CudaFunction,
    pub(crate) score: CudaFunction,
    pub(crate) slope: CudaFunction,
    pub(crate) squares: CudaFunction,
    pub(crate) adam: CudaFunction,
    pub(crate) place: CudaFunction,
    pub(crate) round: CudaFunction,
    pub(crate) widen: CudaFunction,
    pub(crate) fill_random: CudaFunction,
}

impl TrainKernels {
    pub(crate) fn new(device: &Device, shape: &ModelShape) -> Result<TrainKernels, GpuError> {
        let module = device.load(compile(SOURCE, shape, device.info().capability, Numbers::Bf16)?)?;
        let kernel = |name| module.load_function(name);
        let kernels = TrainKernels {
            embed: kernel("embed")?,
            embed_back: kernel("train_embed_back")?,
            norm: kernel("train_norm")?,
            norm_back: kernel("train_norm_back")?,
            add_partial: kernel("train_add_partial")?,
            column_sums: kernel("train_column_sums")?,
            rope: kernel("train_rope")?,
            swiglu: kernel("train_swiglu")?,
            swiglu_back: kernel("train_swiglu_back")?,
            attend: kernel("train_attend")?,
            attend_delta: kernel("train_attend_delta")?,
            attend_back_queries: kernel("train_attend_back_queries")?,
            attend_back_keys: kernel("train_attend_back_keys")?,
            score: kernel("train_score")?,
            slope: kernel("train_slope")?,
            squares: kernel("train_squares")?,
            adam: kernel("train_adam")?,
            place: kernel("train_place")?,
            round: kernel("train_round")?,
            widen: kernel("train_widen")?,
            fill_random: kernel("fill_random")?,
        };
        device.allow_shared(&kernels.attend, attention_shared(shape, 5))?;
        device.allow_shared(&kernels.attend_back_queries, attention_shared(shape, 6))?;
        device.allow_shared(&kernels.attend_back_keys, attention_shared(shape, 6))?;
        Ok(kernels)
    }
}

/// Bytes of shared memory of attention with so many matrices of 64 rows.
pub(crate) fn attention_shared(shape: &ModelShape, matrices: usize) -> usize {
    matrices * 64 * (2 * shape.head_dim + 16)
}
