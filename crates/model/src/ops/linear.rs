//! `y = x·Wᵀ (+ b)`, the product that takes almost all of the time.
//!
//! On the CPU it has a kernel of its own, because of one property: **a row of the result depends on that row of `x` alone**,
//! to the last bit. Every element is a sum over `k` in sixteen lanes and a fixed order, whatever the shape of the tile it is
//! computed in. Libraries choose their order by the size of the whole product, so that a text sampled alone, in a batch, with
//! a cache, or scored at once in training would get four slightly different probabilities. Here all four are equal, so the
//! ratio of new to old is exactly one before the first update. It is no slower: `x` and `W` are both read along `k`.

// Functions compiled for wider registers may be called only where the processor has them; that is checked at run time, and
// it is the only thing this module does that the compiler cannot check.
#![allow(unsafe_code)]

use super::elements;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CudaStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
use std::sync::OnceLock;

/// `x·Wᵀ` for x (R, K) and W (N, K); a frozen W gets no gradient, and none is computed.
pub(crate) fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, frozen: bool) -> Result<Tensor> {
    let (x, weight) = (x.contiguous()?, weight.contiguous()?);
    match bias {
        None => x.apply_op2(&weight, Linear { frozen }),
        Some(bias) if x.device().is_cuda() => {
            x.apply_op2(&weight, Linear { frozen })?.apply_op2(&bias.contiguous()?, AddBias)
        }
        Some(bias) => x.apply_op3(&weight, &bias.contiguous()?, Linear { frozen }),
    }
}

struct Linear {
    frozen: bool,
}

impl Linear {
    fn gradients(&self, x: &Tensor, weight: &Tensor, grad: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
        // (R, N)·(N, K) and (N, R)·(R, K); the transposed side is a view.
        let grad_x = grad.matmul(weight)?;
        let grad_weight = if self.frozen { None } else { Some(grad.t()?.matmul(x)?) };
        Ok((grad_x, grad_weight))
    }
}

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, x_at: &Layout, w: &CpuStorage, w_at: &Layout) -> Result<(CpuStorage, Shape)> {
        forward(elements(x, x_at)?, x_at, elements(w, w_at)?, w_at, None)
    }

    fn cuda_fwd(&self, x: &CudaStorage, x_at: &Layout, w: &CudaStorage, w_at: &Layout) -> Result<(CudaStorage, Shape)> {
        let ((rows, k), (outs, _)) = (x_at.shape().dims2()?, w_at.shape().dims2()?);
        let product = x.matmul(w, (1, rows, outs, k), x_at, &w_at.transpose(0, 1)?)?;
        Ok((product, Shape::from((rows, outs))))
    }

    fn bwd(&self, x: &Tensor, w: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (grad_x, grad_w) = self.gradients(x, w, grad)?;
        Ok((Some(grad_x), grad_w))
    }
}

impl CustomOp3 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_at: &Layout,
        w: &CpuStorage,
        w_at: &Layout,
        b: &CpuStorage,
        b_at: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        forward(elements(x, x_at)?, x_at, elements(w, w_at)?, w_at, Some(elements(b, b_at)?))
    }

    fn bwd(
        &self,
        x: &Tensor,
        w: &Tensor,
        _: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (grad_x, grad_w) = self.gradients(x, w, grad)?;
        let grad_b = if self.frozen { None } else { Some(grad.sum(0)?) };
        Ok((Some(grad_x), grad_w, grad_b))
    }
}

/// `x + b` on CUDA: there the gradient of a bias is a product with ones, which is far quicker than a sum over rows.
struct AddBias;

impl CustomOp2 for AddBias {
    fn name(&self) -> &'static str {
        "add-bias"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        candle_core::bail!("add-bias is for CUDA")
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, x_at: &Layout, b: &CudaStorage, b_at: &Layout) -> Result<(CudaStorage, Shape)> {
        use super::cuda::{Arg, Launch, output, size};
        let (rows, width) = x_at.shape().dims2()?;
        let (device, dtype, count) = (&x.device, x.dtype(), rows * width);
        let y = output(device, count, dtype)?;
        let args = [
            Arg::read((x, x_at), dtype)?,
            Arg::read((b, b_at), dtype)?,
            Arg::Write(&y),
            Arg::U32(size(count)?),
            Arg::U32(size(width)?),
        ];
        Launch::elements(count, dtype)?.run("add_bias", dtype, device, &args)?;
        Ok((y, x_at.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, _: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let ones = Tensor::ones((1, x.dim(0)?), grad.dtype(), grad.device())?;
        Ok((Some(grad.clone()), Some(ones.matmul(grad)?.squeeze(0)?)))
    }
}

fn forward(x: &[f32], x_at: &Layout, w: &[f32], w_at: &Layout, bias: Option<&[f32]>) -> Result<(CpuStorage, Shape)> {
    let ((rows, k), (outs, wide)) = (x_at.shape().dims2()?, w_at.shape().dims2()?);
    if k != wide {
        candle_core::bail!("linear: {rows}×{k} by a weight of {outs}×{wide}");
    }
    let mut y = vec![0f32; rows * outs];
    product(x, w, k, bias, &mut y);
    Ok((CpuStorage::F32(y), Shape::from((rows, outs))))
}

/// Products that take less than this many multiplications are not worth a second thread.
const WORTH_A_THREAD: usize = 1 << 17;
/// Rows that one thread works on at a time.
const ROW_BLOCK: usize = 32;

/// `y[r][o] = Σ_k x[r][k]·w[o][k] + b[o]`.
pub(crate) fn product(x: &[f32], w: &[f32], k: usize, bias: Option<&[f32]>, y: &mut [f32]) {
    if k == 0 || x.is_empty() || w.is_empty() {
        return;
    }
    let (rows, outs) = (x.len() / k, w.len() / k);
    let dots = dots();
    if rows * outs * k < WORTH_A_THREAD {
        dots(x, w, k, bias, y);
    } else if rows >= 2 * ROW_BLOCK {
        let blocks = y.par_chunks_mut(ROW_BLOCK * outs).zip(x.par_chunks(ROW_BLOCK * k));
        blocks.for_each(|(y, x)| dots(x, w, k, bias, y));
    } else {
        // Few rows: the outputs are shared out, and put into their places afterwards.
        let block = outs.div_ceil(4 * rayon::current_num_threads()).next_multiple_of(16);
        let parts: Vec<Vec<f32>> = w
            .par_chunks(block * k)
            .enumerate()
            .map(|(part, w)| {
                let outs = w.len() / k;
                let bias = bias.and_then(|bias| bias.get(part * block..part * block + outs));
                let mut y = vec![0f32; rows * outs];
                dots(x, w, k, bias, &mut y);
                y
            })
            .collect();
        for (part, values) in parts.iter().enumerate() {
            let width = values.len() / rows;
            for (y, values) in y.chunks_mut(outs).zip(values.chunks(width)) {
                y[part * block..part * block + width].copy_from_slice(values); // Blocks lie inside a row.
            }
        }
    }
}

type Dots = fn(&[f32], &[f32], usize, Option<&[f32]>, &mut [f32]);

/// The kernel for this processor.
fn dots() -> Dots {
    static KERNEL: OnceLock<Dots> = OnceLock::new();
    *KERNEL.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the processor has been asked.
                return |x, w, k, bias, y| unsafe { avx512::dots(x, w, k, bias, y) };
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                // SAFETY: as above.
                return |x, w, k, bias, y| unsafe { avx2::dots(x, w, k, bias, y) };
            }
        }
        anywhere::dots
    })
}

/// A kernel: all products in tiles of rows by outputs, what is left at the edges in smaller tiles. In each, the products of
/// one row with one output are summed in the same lanes and the same order.
macro_rules! kernel {
    (
        $(#[$feature:meta])? $name:ident: $lanes:literal lanes, $rows:literal by $outs:literal;
        $vector:ty, $zero:expr, $load:expr, $fused:expr, $sum:expr
    ) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $(#[$feature])?
            pub(super) fn dots(x: &[f32], w: &[f32], k: usize, bias: Option<&[f32]>, y: &mut [f32]) {
                let (rows, outs) = (x.len() / k, w.len() / k);
                let mut out = 0;
                while out < outs {
                    let wide = out + $outs <= outs;
                    let mut row = 0;
                    while row < rows {
                        let tall = row + $rows <= rows;
                        match (tall, wide) {
                            (true, true) => tile::<$rows, $outs>(x, w, k, bias, y, row, out, outs),
                            (false, true) => tile::<1, $outs>(x, w, k, bias, y, row, out, outs),
                            (true, false) => tile::<$rows, 1>(x, w, k, bias, y, row, out, outs),
                            (false, false) => tile::<1, 1>(x, w, k, bias, y, row, out, outs),
                        }
                        row += if tall { $rows } else { 1 };
                    }
                    out += if wide { $outs } else { 1 };
                }
            }

            $(#[$feature])?
            #[allow(clippy::too_many_arguments)]
            fn tile<const ROWS: usize, const OUTS: usize>(
                x: &[f32],
                w: &[f32],
                k: usize,
                bias: Option<&[f32]>,
                y: &mut [f32],
                row: usize,
                out: usize,
                outs: usize,
            ) {
                // These prove to the loads below that they stay inside.
                let (x, w) = (&x[row * k..(row + ROWS) * k], &w[out * k..(out + OUTS) * k]);
                let mut sums: [[$vector; OUTS]; ROWS] = [[$zero; OUTS]; ROWS];
                let whole = k / $lanes * $lanes;
                let mut at = 0;
                while at < whole {
                    let mut xs: [$vector; ROWS] = [$zero; ROWS];
                    for r in 0..ROWS {
                        xs[r] = $load(&x[r * k + at..]);
                    }
                    for o in 0..OUTS {
                        let w = $load(&w[o * k + at..]);
                        for r in 0..ROWS {
                            sums[r][o] = $fused(xs[r], w, sums[r][o]);
                        }
                    }
                    at += $lanes;
                }
                for r in 0..ROWS {
                    for o in 0..OUTS {
                        let rest: f32 = (whole..k).map(|at| x[r * k + at] * w[o * k + at]).sum();
                        let bias = bias.map_or(0.0, |bias| bias[out + o]);
                        y[(row + r) * outs + out + o] = $sum(sums[r][o]) + rest + bias;
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

// SAFETY of the loads: the slice holds at least one whole vector; `whole` is the last place where one begins.
#[cfg(target_arch = "x86_64")]
kernel!(
    #[target_feature(enable = "avx512f")] avx512: 16 lanes, 4 by 6;
    __m512,
    _mm512_setzero_ps(),
    |values: &[f32]| unsafe { _mm512_loadu_ps(values.as_ptr()) },
    _mm512_fmadd_ps,
    _mm512_reduce_add_ps
);

#[cfg(target_arch = "x86_64")]
kernel!(
    #[target_feature(enable = "avx2,fma")] avx2: 8 lanes, 3 by 4;
    __m256,
    _mm256_setzero_ps(),
    |values: &[f32]| unsafe { _mm256_loadu_ps(values.as_ptr()) },
    _mm256_fmadd_ps,
    |sum: __m256| {
        let mut lanes = [0f32; 8];
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sum) };
        sum_of(lanes)
    }
);

kernel!(
    anywhere: 8 lanes, 2 by 2;
    [f32; 8],
    [0f32; 8],
    |values: &[f32]| -> [f32; 8] { std::array::from_fn(|lane| values[lane]) },
    |a: [f32; 8], b: [f32; 8], sum: [f32; 8]| -> [f32; 8] { std::array::from_fn(|lane| sum[lane] + a[lane] * b[lane]) },
    sum_of
);

/// The sum of the lanes, in halves.
fn sum_of(mut lanes: [f32; 8]) -> f32 {
    for half in [4, 2, 1] {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    fn check(kernel: Dots, rows: usize, outs: usize, k: usize, with_bias: bool) {
        let (x, w, b) = (values(rows * k, 1), values(outs * k, 2), values(outs, 3));
        let bias = with_bias.then_some(b.as_slice());
        let mut y = vec![f32::NAN; rows * outs];
        kernel(&x, &w, k, bias, &mut y);
        for row in 0..rows {
            for out in 0..outs {
                let pairs = x[row * k..][..k].iter().zip(&w[out * k..][..k]);
                let exact: f64 = pairs.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                let exact = exact + bias.map_or(0.0, |bias| f64::from(bias[out]));
                assert!((f64::from(y[row * outs + out]) - exact).abs() < 1e-4, "{rows}×{outs}×{k} at {row}, {out}");
            }
        }
    }

    #[test]
    fn every_kernel_multiplies() {
        for (rows, outs, k) in [(1, 1, 1), (1, 7, 16), (5, 13, 33), (9, 6, 64), (4, 24, 100), (70, 50, 48)] {
            for with_bias in [false, true] {
                check(dots(), rows, outs, k, with_bias);
                check(anywhere::dots, rows, outs, k, with_bias);
                check(product, rows, outs, k, with_bias);
                #[cfg(target_arch = "x86_64")]
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the processor has been asked.
                    check(|x, w, k, bias, y| unsafe { avx2::dots(x, w, k, bias, y) }, rows, outs, k, with_bias);
                }
            }
        }
    }

    #[test]
    fn a_row_does_not_know_what_is_beside_it() {
        let (k, outs) = (67, 301);
        let (x, w, b) = (values(130 * k, 4), values(outs * k, 5), values(outs, 6));
        let mut together = vec![0f32; 130 * outs];
        product(&x, &w, k, Some(&b), &mut together);
        for rows in [1, 2, 3, 7, 40, 129] {
            let mut some = vec![0f32; rows * outs];
            product(&x[k..(rows + 1) * k], &w, k, Some(&b), &mut some);
            assert_eq!(some, together[outs..(rows + 1) * outs], "{rows} rows");
        }
        let mut few_outputs = vec![0f32; 130 * 5];
        product(&x, &w[10 * k..15 * k], k, Some(&b[10..15]), &mut few_outputs);
        for row in 0..130 {
            assert_eq!(few_outputs[row * 5..][..5], together[row * outs + 10..][..5]);
        }
    }
}
