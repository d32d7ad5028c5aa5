//! Attention on the CPU, without a matrix of scores: each query reads the keys it may see, and nothing else.
//!
//! What a query sees is a range of rows of the keys: that says causal order, padding, packed texts and caches alike. A row of
//! the result depends on that query and those keys alone, to the last bit.

// As in `linear.rs`: calls of functions that are compiled for wider registers, where the processor has them.
#![allow(unsafe_code)]

use super::elements;
use super::linear::product;
use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Attention of queries (R, H, D) to keys and values (KV, N, D); query r sees the rows `visible[r]` of them.
pub(crate) fn attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    visible: &Arc<Vec<Range<usize>>>,
    scale: f32,
) -> Result<Tensor> {
    let op = Attention { visible: visible.clone(), scale };
    q.contiguous()?.apply_op3(&k.contiguous()?, &v.contiguous()?, op)
}

struct Attention {
    visible: Arc<Vec<Range<usize>>>,
    scale: f32,
}

/// The sizes of one attention.
#[derive(Clone, Copy)]
struct Sizes {
    heads: usize,
    kv_heads: usize,
    /// Heads that share a key.
    group: usize,
    dim: usize,
    keys: usize,
}

impl Sizes {
    /// The keys or values that a range of rows has for one key head: (rows, D).
    fn rows<'v>(self, values: &'v [f32], kv_head: usize, rows: &Range<usize>) -> &'v [f32] {
        let start = kv_head * self.keys;
        &values[(start + rows.start) * self.dim..(start + rows.end) * self.dim]
    }

    /// The queries of one row that share a key head: (G, D).
    fn queries(self, values: &[f32], row: usize, kv_head: usize) -> &[f32] {
        &values[(row * self.heads + kv_head * self.group) * self.dim..][..self.group * self.dim]
    }
}

impl Attention {
    fn sizes(&self, q: &[usize], k: &[usize]) -> Result<Sizes> {
        let ([rows, heads, dim], [kv_heads, keys, key_dim]) = (q, k) else { candle_core::bail!("attention: ranks") };
        let fits = self.visible.iter().all(|visible| visible.start <= visible.end && visible.end <= *keys);
        if *rows != self.visible.len() || dim != key_dim || *kv_heads == 0 || heads % kv_heads != 0 || !fits {
            candle_core::bail!("attention: {q:?} to {k:?}");
        }
        Ok(Sizes { heads: *heads, kv_heads: *kv_heads, group: heads / kv_heads, dim: *dim, keys: *keys })
    }

    /// How each query of a group divides its attention among the keys it sees: (G, visible).
    fn shares(&self, queries: &[f32], keys: &[f32], dim: usize, shares: &mut Vec<f32>) {
        let count = keys.len() / dim;
        shares.clear();
        shares.resize(queries.len() / dim * count, 0.0);
        product(queries, keys, dim, None, shares);
        for shares in shares.chunks_mut(count.max(1)) {
            let most = shares.iter().fold(f32::NEG_INFINITY, |most, score| most.max(*score));
            let mut sum = 0f32;
            for share in shares.iter_mut() {
                *share = ((*share - most) * self.scale).exp();
                sum += *share;
            }
            for share in shares.iter_mut() {
                *share /= sum;
            }
        }
    }
}

impl CustomOp3 for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_at: &Layout,
        k: &CpuStorage,
        k_at: &Layout,
        v: &CpuStorage,
        v_at: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let sizes = self.sizes(q_at.dims(), k_at.dims())?;
        let (q, k, v) = (elements(q, q_at)?, elements(k, k_at)?, elements(v, v_at)?);
        let mut out = vec![0f32; q.len()];
        let add_rows = kernels().add_rows;
        let one_row = |(row, out): (usize, &mut [f32])| {
            let (visible, mut shares) = (&self.visible[row], Vec::new());
            for (kv_head, out) in out.chunks_mut(sizes.group * sizes.dim).enumerate() {
                let (keys, values) = (sizes.rows(k, kv_head, visible), sizes.rows(v, kv_head, visible));
                self.shares(sizes.queries(q, row, kv_head), keys, sizes.dim, &mut shares);
                for (out, shares) in out.chunks_mut(sizes.dim).zip(shares.chunks(visible.len().max(1))) {
                    add_rows(out, shares, values);
                }
            }
        };
        let rows = sizes.heads * sizes.dim;
        // One thread for a few rows: a text that is being written has only one.
        out.par_chunks_mut(rows).with_min_len(4).enumerate().for_each(one_row);
        Ok((CpuStorage::F32(out), q_at.shape().clone()))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        out: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let sizes = self.sizes(q.dims(), k.dims())?;
        let read = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f32>();
        let values = [read(q)?, read(k)?, read(v)?, read(out)?, read(grad)?];
        let [q_values, k_values, v_values, out_values, grad_values] = &values;
        let all = Values { q: q_values, k: k_values, v: v_values, out: out_values, grad: grad_values };
        // One task for each key head: it alone writes the gradients of that head's keys and values.
        let one_head = |kv_head: usize| self.head_gradients(&all, kv_head, sizes);
        let parts: Vec<[Vec<f32>; 3]> = (0..sizes.kv_heads).into_par_iter().map(one_head).collect();
        let mut grad_q = vec![0f32; q_values.len()];
        let (mut grad_k, mut grad_v) = (Vec::with_capacity(k_values.len()), Vec::with_capacity(v_values.len()));
        let width = sizes.group * sizes.dim;
        for (kv_head, [part_q, part_k, part_v]) in parts.iter().enumerate() {
            for (all, part) in grad_q.chunks_mut(width * sizes.kv_heads).zip(part_q.chunks(width)) {
                all[kv_head * width..][..width].copy_from_slice(part);
            }
            grad_k.extend_from_slice(part_k);
            grad_v.extend_from_slice(part_v);
        }
        let tensor = |values: Vec<f32>, like: &Tensor| Tensor::from_vec(values, like.shape(), like.device()).map(Some);
        Ok((tensor(grad_q, q)?, tensor(grad_k, k)?, tensor(grad_v, v)?))
    }
}

struct Values<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    out: &'a [f32],
    grad: &'a [f32],
}

impl Attention {
    /// The gradients of the queries, keys and values that belong to one key head.
    fn head_gradients(&self, all: &Values<'_>, kv_head: usize, sizes: Sizes) -> [Vec<f32>; 3] {
        let (dim, group) = (sizes.dim, sizes.group);
        let mut grad_q = vec![0f32; self.visible.len() * group * dim];
        let mut grad_k = vec![0f32; sizes.keys * dim];
        let mut grad_v = vec![0f32; sizes.keys * dim];
        let (mut shares, mut grad_shares) = (Vec::new(), Vec::new());
        let Kernels { add_rows, add_to_rows } = *kernels();
        for (row, visible) in self.visible.iter().enumerate() {
            let (keys, values) = (sizes.rows(all.k, kv_head, visible), sizes.rows(all.v, kv_head, visible));
            let queries = sizes.queries(all.q, row, kv_head);
            let (outs, grads) = (sizes.queries(all.out, row, kv_head), sizes.queries(all.grad, row, kv_head));
            self.shares(queries, keys, dim, &mut shares);
            grad_shares.clear();
            grad_shares.resize(shares.len(), 0.0);
            product(grads, values, dim, None, &mut grad_shares);
            let count = visible.len().max(1);
            for (at, (shares, grad_scores)) in shares.chunks(count).zip(grad_shares.chunks_mut(count)).enumerate() {
                let of = |values: &'_ [f32]| -> Range<usize> { at * dim..((at + 1) * dim).min(values.len()) };
                let (query, out, grad) = (&queries[of(queries)], &outs[of(outs)], &grads[of(grads)]);
                // Σ_j share_j · (grad · v_j) is grad · out.
                let mean: f32 = grad.iter().zip(out).map(|(grad, out)| grad * out).sum();
                for (grad_score, share) in grad_scores.iter_mut().zip(shares) {
                    *grad_score = share * (*grad_score - mean) * self.scale;
                }
                add_rows(&mut grad_q[(row * group + at) * dim..][..dim], grad_scores, keys);
                add_to_rows(&mut grad_k[visible.start * dim..visible.end * dim], grad_scores, query);
                add_to_rows(&mut grad_v[visible.start * dim..visible.end * dim], shares, grad);
            }
        }
        [grad_q, grad_k, grad_v]
    }
}

#[derive(Clone, Copy)]
struct Kernels {
    /// `sum += Σ_j factors[j] · rows[j]`.
    add_rows: fn(&mut [f32], &[f32], &[f32]),
    /// `rows[j] += factors[j] · values`.
    add_to_rows: fn(&mut [f32], &[f32], &[f32]),
}

/// The kernels for this processor.
fn kernels() -> &'static Kernels {
    static KERNELS: OnceLock<Kernels> = OnceLock::new();
    KERNELS.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return Kernels {
                // SAFETY: the processor has been asked.
                add_rows: |sum, factors, rows| unsafe { add_rows_avx2(sum, factors, rows) },
                // SAFETY: as above.
                add_to_rows: |rows, factors, values| unsafe { add_to_rows_avx2(rows, factors, values) },
            };
        }
        Kernels { add_rows, add_to_rows }
    })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn add_rows_avx2(sum: &mut [f32], factors: &[f32], rows: &[f32]) {
    add_rows(sum, factors, rows);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn add_to_rows_avx2(rows: &mut [f32], factors: &[f32], values: &[f32]) {
    add_to_rows(rows, factors, values);
}

#[inline(always)]
fn add_rows(sum: &mut [f32], factors: &[f32], rows: &[f32]) {
    for (factor, row) in factors.iter().zip(rows.chunks_exact(sum.len().max(1))) {
        add_scaled(sum, *factor, row);
    }
}

#[inline(always)]
fn add_to_rows(rows: &mut [f32], factors: &[f32], values: &[f32]) {
    for (factor, row) in factors.iter().zip(rows.chunks_exact_mut(values.len().max(1))) {
        add_scaled(row, *factor, values);
    }
}

#[inline(always)]
fn add_scaled(sum: &mut [f32], factor: f32, values: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += factor * value;
    }
}
