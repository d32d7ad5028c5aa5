//! Attention on an NVIDIA GPU for texts that stand one after another, without a matrix of scores: a position sees those of
//! its own text up to itself.
//!
//! Texts of a batch are of very different lengths, so a matrix of scores is mostly nothing; and the library would fill
//! and add one for every step of the gradient. A thread takes a query with 32 numbers of its head and goes through the keys
//! in shared memory; backwards a second kernel takes a key and goes through the queries that saw it.

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, bail};

/// Whether there is a kernel for heads of this width: a power of two of threads with 32 numbers each.
pub(crate) fn packed_attention_takes(head_dim: usize) -> bool {
    matches!(head_dim, 32 | 64 | 128)
}

/// Attention of queries (R, H, D) to keys and values (R, KV, D). `bounds` (R, 2) says where each row's text begins, and before
/// which row it ends.
pub(crate) fn packed_attention(q: &Tensor, k: &Tensor, v: &Tensor, bounds: &Tensor, scale: f32) -> Result<Tensor> {
    let op = PackedAttention { bounds: bounds.contiguous()?, scale };
    aligned(q)?.apply_op3(&aligned(k)?, &aligned(v)?, op)
}

/// The kernels load 16 bytes at a time; all but the first address of a head follow from its width.
fn aligned(tensor: &Tensor) -> Result<Tensor> {
    let tensor = tensor.contiguous()?;
    let offset = tensor.layout().start_offset() * tensor.dtype().size_in_bytes();
    if offset.is_multiple_of(16) { Ok(tensor) } else { tensor.force_contiguous() }
}

#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "read by the kernels' launches alone"))]
struct PackedAttention {
    bounds: Tensor,
    scale: f32,
}

/// From queries, what came of them, and its gradient: those of queries, keys and values, one after another.
#[cfg(feature = "cuda")]
struct PackedAttentionGrad<'a> {
    k: &'a Tensor,
    v: &'a Tensor,
    bounds: &'a Tensor,
    scale: f32,
}

/// The name of an operation, and that it cannot run on the CPU.
macro_rules! for_cuda_only {
    ($name:literal) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn cpu_fwd(
            &self,
            _: &CpuStorage,
            _: &Layout,
            _: &CpuStorage,
            _: &Layout,
            _: &CpuStorage,
            _: &Layout,
        ) -> Result<(CpuStorage, Shape)> {
            bail!("{} is for CUDA", $name)
        }
    };
}

impl CustomOp3 for PackedAttention {
    for_cuda_only!("packed_attention");

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        q: &candle_core::CudaStorage,
        q_at: &Layout,
        k: &candle_core::CudaStorage,
        k_at: &Layout,
        v: &candle_core::CudaStorage,
        v_at: &Layout,
    ) -> Result<(candle_core::CudaStorage, Shape)> {
        use super::cuda::{Arg, output};
        use candle_core::backend::BackendStorage;
        let sizes = on_cuda::Sizes::of(q_at.dims(), k_at.dims(), v_at.dims(), self.bounds.dims())?;
        let (device, dtype) = (&q.device, q.dtype());
        let out = output(device, q_at.shape().elem_count(), dtype)?;
        on_cuda::with(&self.bounds, candle_core::DType::U32, |bounds| {
            let tensors = [
                Arg::read((q, q_at), dtype)?,
                Arg::read((k, k_at), dtype)?,
                Arg::read((v, v_at), dtype)?,
                bounds,
                Arg::Write(&out),
            ];
            sizes.launch("packed_attention", sizes.heads, self.scale, (device, dtype), tensors)
        })?;
        Ok((out, q_at.shape().clone()))
    }

    #[cfg(feature = "cuda")]
    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        out: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let op = PackedAttentionGrad { k, v, bounds: &self.bounds, scale: self.scale };
        let all = q.apply_op3_no_bwd(out, &aligned(grad)?, &op)?;
        let (of_q, of_k) = (q.elem_count(), k.elem_count());
        let part = |start, like: &Tensor| all.narrow(0, start, like.elem_count())?.reshape(like.shape()).map(Some);
        Ok((part(0, q)?, part(of_q, k)?, part(of_q + of_k, v)?))
    }
}

#[cfg(feature = "cuda")]
impl CustomOp3 for PackedAttentionGrad<'_> {
    for_cuda_only!("packed_attention_grad");

    fn cuda_fwd(
        &self,
        q: &candle_core::CudaStorage,
        q_at: &Layout,
        out: &candle_core::CudaStorage,
        out_at: &Layout,
        grad: &candle_core::CudaStorage,
        grad_at: &Layout,
    ) -> Result<(candle_core::CudaStorage, Shape)> {
        use super::cuda::{Arg, output};
        use candle_core::{DType, backend::BackendStorage};
        let sizes = on_cuda::Sizes::of(q_at.dims(), self.k.dims(), self.v.dims(), self.bounds.dims())?;
        let (device, dtype) = (&q.device, q.dtype());
        let count = q_at.shape().elem_count() + 2 * self.k.elem_count();
        let all = output(device, count, dtype)?;
        // For each query the logarithm of its sum of powers, and how much of the gradient lies along what came of it.
        let of_queries = output(device, sizes.rows * sizes.heads * 2, DType::F32)?;
        on_cuda::with(self.bounds, DType::U32, |bounds| {
            on_cuda::with(self.k, dtype, |k| {
                on_cuda::with(self.v, dtype, |v| {
                    let grad = Arg::read((grad, grad_at), dtype)?;
                    let q = Arg::read((q, q_at), dtype)?;
                    let out = Arg::read((out, out_at), dtype)?;
                    let (saved, all) = (Arg::Write(&of_queries), Arg::Write(&all));
                    let on = (device, dtype);
                    let tensors = [q, k, v, bounds, out, grad, saved, all];
                    sizes.launch("packed_attention_grad_q", sizes.heads, self.scale, on, tensors)?;
                    let tensors = [q, k, v, bounds, grad, saved, all];
                    sizes.launch("packed_attention_grad_kv", sizes.kv_heads, self.scale, on, tensors)
                })
            })
        })?;
        Ok((all, Shape::from(count)))
    }
}

#[cfg(feature = "cuda")]
mod on_cuda {
    use super::packed_attention_takes;
    use crate::ops::cuda::{Arg, Launch, size};
    use candle_core::{CudaDevice, DType, Result, Storage, Tensor, bail};

    /// The sizes of one attention.
    pub(super) struct Sizes {
        pub(super) rows: usize,
        pub(super) heads: usize,
        pub(super) kv_heads: usize,
        head_dim: usize,
    }

    impl Sizes {
        pub(super) fn of(q: &[usize], k: &[usize], v: &[usize], bounds: &[usize]) -> Result<Sizes> {
            let ([rows, heads, head_dim], [keys, kv_heads, key_dim]) = (q, k) else { bail!("packed_attention: ranks") };
            let fits = rows == keys && head_dim == key_dim && k == v && bounds == [*rows, 2];
            if !fits || *kv_heads == 0 || heads % kv_heads != 0 || !packed_attention_takes(*head_dim) {
                bail!("packed_attention: {q:?} to {k:?} and {v:?}, bounds {bounds:?}");
            }
            Ok(Sizes { rows: *rows, heads: *heads, kv_heads: *kv_heads, head_dim: *head_dim })
        }

        /// Blocks of 128 threads, of which one row has as many as its head has 32 numbers; one line of blocks for each head.
        pub(super) fn launch<const N: usize>(
            &self,
            kernel: &str,
            heads: usize,
            scale: f32,
            (device, dtype): (&CudaDevice, DType),
            tensors: [Arg<'_>; N],
        ) -> Result<()> {
            let parts = self.head_dim / 32;
            let mut args = Vec::from(tensors);
            for number in [self.rows, self.heads, self.kv_heads] {
                args.push(Arg::U32(size(number)?));
            }
            args.push(Arg::F32(scale));
            let blocks = self.rows.div_ceil(128 / parts);
            let launch = Launch { grid: (size(blocks)?, size(heads)?), threads: 128, shared_bytes: 0 };
            launch.run(&format!("{kernel}_{parts}"), dtype, device, &args)
        }
    }

    /// Calls `work` with a tensor as an argument of a kernel.
    pub(super) fn with<R>(tensor: &Tensor, dtype: DType, work: impl FnOnce(Arg<'_>) -> Result<R>) -> Result<R> {
        let (storage, layout) = tensor.storage_and_layout();
        let Storage::Cuda(storage) = &*storage else { bail!("packed_attention: tensors on different devices") };
        work(Arg::read((storage, layout), dtype)?)
    }
}
