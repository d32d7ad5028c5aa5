//! Fused tensor operations with hand-written gradients.
//!
//! Each replaces a chain of small operations and reads and writes every large tensor once in each direction.
//! On the CPU they work on `f32`, on NVIDIA GPUs (`kernels.cu`, `packed.cu`) on `f32` and `bf16` with all sums in `f32`. On the CPU a
//! row's result depends on that row alone, and sums over rows are taken in blocks of a fixed size: neither the number of
//! threads nor what else is in the batch changes a bit.
//!
//! [`composed`] computes the same with plain operations; the tests and [`selfcheck()`] compare with it.

mod adamw;
mod attention;
mod cache;
mod choice;
pub(crate) mod composed;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
mod gather;
mod linear;
mod logprob;
mod packed;
mod rms_norm;
mod rotary;
mod selfcheck;
mod softmax;
mod swap;
mod swiglu;
#[cfg(test)]
mod tests;

pub(crate) use adamw::{AdamW, scaled_add, squared_norm};
pub(crate) use attention::attention;
pub(crate) use cache::write_rows;
pub(crate) use choice::Ops;
pub(crate) use gather::gather_rows;
pub(crate) use logprob::entropy;
pub(crate) use packed::{packed_attention, packed_attention_takes};
pub(crate) use selfcheck::selfcheck;
pub(crate) use swap::swap_axes;

use linear::linear;
use logprob::gathered_logprob;
use rms_norm::rms_norm;
use rotary::rotary;
#[cfg(test)]
use selfcheck::Check;
use softmax::masked_softmax;
use swiglu::swiglu;

use candle_core::{CpuStorage, Layout, Result, WithDType, bail};

/// How many rows of this width make a piece of work worth handing to another thread. Fewer stay on the calling thread.
fn rows_per_piece(width: usize) -> usize {
    const ELEMENTS: usize = 8_192;
    (ELEMENTS / width.max(1)).max(1)
}

/// The elements of a contiguous tensor on the CPU.
fn elements<'a, T: WithDType>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [T]> {
    let all = storage.as_slice::<T>()?;
    match layout.contiguous_offsets().and_then(|(start, end)| all.get(start..end)) {
        Some(elements) => Ok(elements),
        None => bail!("the tensor is not contiguous: {layout:?}"),
    }
}

/// As [`elements`], mutable.
fn elements_mut<'a>(storage: &'a mut CpuStorage, layout: &Layout) -> Result<&'a mut [f32]> {
    let CpuStorage::F32(all) = storage else { bail!("only f32 tensors are changed in place") };
    match layout.contiguous_offsets().and_then(|(start, end)| all.get_mut(start..end)) {
        Some(elements) => Ok(elements),
        None => bail!("the tensor is not contiguous: {layout:?}"),
    }
}
