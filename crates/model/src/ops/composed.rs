//! The reference for the fused operations: each is a chain of plain ones with automatic gradients. Slower and simpler; tests
//! and benchmarks compare with it, also in `f64`.

use candle_core::{D, DType, Result, Tensor};

/// See [`super::rms_norm()`].
pub(crate) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let wide = x.to_dtype(wide(x.dtype()))?;
    let scale = (wide.sqr()?.mean_keepdim(D::Minus1)? + eps)?.sqrt()?;
    wide.broadcast_div(&scale)?.to_dtype(x.dtype())?.broadcast_mul(weight)
}

/// See [`super::swiglu()`].
pub(crate) fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    gate.silu()? * up
}

/// See [`super::rotary()`].
pub(crate) fn rotary(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let (batch, tokens, _, width) = x.dims4()?;
    let dtype = wide(x.dtype());
    let angles = |of: &Tensor| of.to_dtype(dtype)?.reshape((batch, tokens, 1, width / 2));
    let (cos, sin, x_wide) = (angles(cos)?, angles(sin)?, x.to_dtype(dtype)?);
    let (first, second) = (x_wide.narrow(3, 0, width / 2)?, x_wide.narrow(3, width / 2, width / 2)?);
    let turned = Tensor::cat(
        &[
            (first.broadcast_mul(&cos)? - second.broadcast_mul(&sin)?)?,
            (second.broadcast_mul(&cos)? + first.broadcast_mul(&sin)?)?,
        ],
        3,
    )?;
    turned.to_dtype(x.dtype())
}

/// See [`super::masked_softmax()`].
pub(crate) fn masked_softmax(scores: &Tensor, visible: &Tensor, scale: f64) -> Result<Tensor> {
    let (batch, _, queries, keys) = scores.dims4()?;
    let key = Tensor::arange(0, keys as u32, scores.device())?.reshape((1, 1, 1, keys))?;
    let bound = |which| visible.narrow(2, which, 1)?.reshape((batch, 1, queries, 1));
    let mask = key.broadcast_ge(&bound(0)?)?.mul(&key.broadcast_lt(&bound(1)?)?)?;
    let scaled = (scores.to_dtype(wide(scores.dtype()))? * scale)?;
    let mask = mask.broadcast_as(scaled.shape())?;
    exp_over_sum(&scaled, &mask)?.to_dtype(scores.dtype())
}

/// See [`super::gathered_logprob()`].
pub(crate) fn gathered_logprob(
    logits: &Tensor,
    targets: &Tensor,
    allowed: Option<&Tensor>,
    temperature: f64,
) -> Result<Tensor> {
    let (logprobs, mask) = logprobs(logits, allowed, temperature)?;
    let targets = targets.unsqueeze(1)?;
    let chosen = logprobs.gather(&targets, 1)?.squeeze(1)?;
    let nothing = chosen.detach().ones_like()?.affine(0.0, f64::NEG_INFINITY)?;
    mask.contiguous()?.gather(&targets, 1)?.squeeze(1)?.where_cond(&chosen, &nothing)
}

/// See [`super::entropy()`].
pub(crate) fn entropy(logits: &Tensor, allowed: Option<&Tensor>, temperature: f64) -> Result<Tensor> {
    let (logprobs, mask) = logprobs(&logits.detach(), allowed, temperature)?;
    let terms = (logprobs.exp()? * &logprobs)?;
    mask.where_cond(&terms, &terms.zeros_like()?)?.sum(1)?.neg()
}

/// The log-probability of every token, and which are allowed (`u8`). It is very low where they are not.
fn logprobs(logits: &Tensor, allowed: Option<&Tensor>, temperature: f64) -> Result<(Tensor, Tensor)> {
    let scaled = (logits.to_dtype(wide(logits.dtype()))? / temperature)?;
    let mask = match allowed {
        Some(allowed) => bits(allowed, logits.dim(1)?)?,
        None => Tensor::ones(logits.shape(), DType::U8, logits.device())?,
    };
    let masked = mask.where_cond(&scaled, &scaled.detach().zeros_like()?.affine(0.0, LOW)?)?;
    let shifted = masked.broadcast_sub(&masked.detach().max_keepdim(1)?)?;
    let logprobs = shifted.broadcast_sub(&shifted.exp()?.sum_keepdim(1)?.log()?)?;
    Ok((logprobs, mask))
}

/// The bits of words of 32, as one `u8` each. There are no operations on bits, but halves of words are exact in `f64`.
fn bits(words: &Tensor, count: usize) -> Result<Tensor> {
    let (rows, per_row) = words.dims2()?;
    let powers = (0..32).map(|bit| 2f64.powi(bit)).collect::<Vec<_>>();
    let powers = Tensor::from_vec(powers, (1, 1, 32), words.device())?;
    let words = words.to_dtype(DType::F64)?.unsqueeze(2)?;
    let above = words.broadcast_div(&powers)?.floor()?;
    let above_next = words.broadcast_div(&(powers * 2.0)?)?.floor()?;
    let bits = (above - (above_next * 2.0)?)?.to_dtype(DType::U8)?;
    bits.reshape((rows, per_row * 32))?.narrow(1, 0, count)?.contiguous()
}

/// Softmax over the last dimension where the mask is 1; zeros where it is 1 nowhere.
fn exp_over_sum(scaled: &Tensor, mask: &Tensor) -> Result<Tensor> {
    let masked = mask.where_cond(scaled, &scaled.detach().zeros_like()?.affine(0.0, LOW)?)?;
    let mask = mask.to_dtype(scaled.dtype())?;
    let shifted = masked.broadcast_sub(&masked.detach().max_keepdim(D::Minus1)?)?;
    let powers = (shifted.exp()? * &mask)?;
    // 1 where nothing is visible, so that nothing is divided by 0.
    let empty = (1.0 - mask.max_keepdim(D::Minus1)?)?;
    powers.broadcast_div(&(powers.sum_keepdim(D::Minus1)? + empty)?)
}

/// Stands for minus infinity, whose differences are not numbers.
const LOW: f64 = -1e30;

/// The type sums are taken in.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}
