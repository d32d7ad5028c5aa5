//! The log-probability of one token a row, and the entropy of the row, without writing down the distribution.

use super::{elements, rows_per_piece};
use crate::simd;
use candle_core::{CpuStorage, CustomOp1, CustomOp3, DType, Layout, Result, Shape, Storage, Tensor, bail};
use rayon::prelude::*;

/// The log-probability of each target (`u32 [R]`) under the softmax of `logits [R, V] / temperature` over the allowed
/// tokens, as `f32 [R]`. Token `t` is allowed where bit `t % 32` of word `t / 32` is set (`u32 [R, ⌈V/32⌉]`; `None`: all
/// are). A target that is not allowed, or is no token, has minus infinity and no gradient.
pub(crate) fn gathered_logprob(
    logits: &Tensor,
    targets: &Tensor,
    allowed: Option<&Tensor>,
    temperature: f64,
) -> Result<Tensor> {
    let choice = Choice::new("gathered_logprob", logits, allowed, temperature)?;
    if targets.dims1()? != logits.dim(0)? || targets.dtype() != DType::U32 {
        bail!("gathered_logprob: {:?} {:?} are no targets for {:?}", targets.dtype(), targets.shape(), logits.shape());
    }
    let targets = targets.contiguous()?;
    logits.contiguous()?.apply_op1(LogProb { choice, targets })
}

/// The entropy in nats of the softmax of `logits [R, V] / temperature` over the allowed tokens, as `f32 [R]`; 0 where none
/// is allowed. It has no gradient.
pub(crate) fn entropy(logits: &Tensor, allowed: Option<&Tensor>, temperature: f64) -> Result<Tensor> {
    let choice = Choice::new("entropy", logits, allowed, temperature)?;
    logits.contiguous()?.apply_op1_no_bwd(&Entropy { choice })
}

/// What a row's distribution is besides its logits.
#[derive(Clone)]
struct Choice {
    allowed: Option<Tensor>,
    inverse_temperature: f32,
}

impl Choice {
    fn new(op: &str, logits: &Tensor, allowed: Option<&Tensor>, temperature: f64) -> Result<Self> {
        let (rows, vocabulary) = logits.dims2()?;
        if temperature.is_nan() || temperature <= 0.0 {
            bail!("{op}: a temperature of {temperature} gives no distribution");
        }
        if let Some(allowed) = allowed
            && (allowed.dims2()? != (rows, vocabulary.div_ceil(32)) || allowed.dtype() != DType::U32)
        {
            bail!("{op}: {:?} {:?} is no mask for {:?}", allowed.dtype(), allowed.shape(), logits.shape());
        }
        let allowed = allowed.map(Tensor::contiguous).transpose()?;
        Ok(Choice { allowed, inverse_temperature: (1.0 / temperature) as f32 })
    }

    /// Calls `work` with the mask, if there is one.
    fn with_mask<R>(&self, work: impl FnOnce(Option<&[u32]>) -> Result<R>) -> Result<R> {
        let Some(allowed) = &self.allowed else { return work(None) };
        with_tokens(allowed, |mask| work(Some(mask)))
    }
}

/// Calls `work` with the elements of a tensor of tokens or of bits.
fn with_tokens<R>(tokens: &Tensor, work: impl FnOnce(&[u32]) -> Result<R>) -> Result<R> {
    let (storage, layout) = tokens.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else { bail!("logits and tokens are on different devices") };
    work(elements(storage, layout)?)
}

struct LogProb {
    choice: Choice,
    targets: Tensor,
}

impl CustomOp1 for LogProb {
    fn name(&self) -> &'static str {
        "gathered_logprob"
    }

    fn cpu_fwd(&self, logits: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, vocabulary) = layout.shape().dims2()?;
        let logits = elements::<f32>(logits, layout)?;
        let mut logprobs = vec![f32::NEG_INFINITY; rows];
        self.choice.with_mask(|mask| {
            with_tokens(&self.targets, |targets| {
                logprobs
                    .par_iter_mut()
                    .zip(logits.par_chunks(vocabulary.max(1)).zip(targets))
                    .enumerate()
                    .with_min_len(rows_per_piece(vocabulary))
                    .for_each(|(index, (logprob, (logits, &target)))| {
                        let row = Row::new(logits, mask, index, self.choice.inverse_temperature);
                        if let Some(target) = row.allowed(target) {
                            let sums = row.sums();
                            *logprob = (row.logit(target) - sums.largest) * row.inverse_temperature - sums.powers.ln();
                        }
                    });
                Ok(())
            })
        })?;
        Ok((CpuStorage::F32(logprobs), Shape::from(rows)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        logits: &candle_core::CudaStorage,
        layout: &Layout,
    ) -> Result<(candle_core::CudaStorage, Shape)> {
        on_cuda::reduce("logprob", &self.choice, Some(&self.targets), (logits, layout))
    }

    fn bwd(&self, logits: &Tensor, logprobs: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        let op = LogProbGrad { choice: self.choice.clone(), targets: self.targets.clone() };
        Ok(Some(logits.apply_op3_no_bwd(logprobs, &grad.contiguous()?, &op)?))
    }
}

/// From the logits, the log-probabilities and their gradient: the gradient of the logits. The probability of token `t` is
/// `exp((logit[t] - logit[target]) / temperature + logprob)`, so that no sum has to be kept or taken again.
struct LogProbGrad {
    choice: Choice,
    targets: Tensor,
}

impl CustomOp3 for LogProbGrad {
    fn name(&self) -> &'static str {
        "gathered_logprob_grad"
    }

    fn cpu_fwd(
        &self,
        logits: &CpuStorage,
        layout: &Layout,
        logprobs: &CpuStorage,
        logprobs_layout: &Layout,
        grad: &CpuStorage,
        grad_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (_, vocabulary) = layout.shape().dims2()?;
        let logits = elements::<f32>(logits, layout)?;
        let (logprobs, grad) = (elements::<f32>(logprobs, logprobs_layout)?, elements::<f32>(grad, grad_layout)?);
        let mut grad_logits = vec![0f32; logits.len()];
        let width = vocabulary.max(1);
        self.choice.with_mask(|mask| {
            with_tokens(&self.targets, |targets| {
                grad_logits
                    .par_chunks_mut(width)
                    .zip(logits.par_chunks(width).zip(targets))
                    .zip(logprobs.par_iter().zip(grad))
                    .enumerate()
                    .with_min_len(rows_per_piece(width))
                    .for_each(|(index, ((grad_logits, (logits, &target)), (&logprob, &grad)))| {
                        let row = Row::new(logits, mask, index, self.choice.inverse_temperature);
                        if let Some(target) = row.allowed(target) {
                            row.grad(target, logprob, grad, grad_logits);
                        }
                    });
                Ok(())
            })
        })?;
        Ok((CpuStorage::F32(grad_logits), layout.shape().clone()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        logits: &candle_core::CudaStorage,
        layout: &Layout,
        logprobs: &candle_core::CudaStorage,
        logprobs_layout: &Layout,
        grad: &candle_core::CudaStorage,
        grad_layout: &Layout,
    ) -> Result<(candle_core::CudaStorage, Shape)> {
        let rows = ((logprobs, logprobs_layout), (grad, grad_layout));
        on_cuda::grad(&self.choice, &self.targets, (logits, layout), rows)
    }
}

struct Entropy {
    choice: Choice,
}

impl CustomOp1 for Entropy {
    fn name(&self) -> &'static str {
        "entropy"
    }

    fn cpu_fwd(&self, logits: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, vocabulary) = layout.shape().dims2()?;
        let logits = elements::<f32>(logits, layout)?;
        let mut entropies = vec![0f32; rows];
        self.choice.with_mask(|mask| {
            entropies
                .par_iter_mut()
                .zip(logits.par_chunks(vocabulary.max(1)))
                .enumerate()
                .with_min_len(rows_per_piece(vocabulary))
                .for_each(|(index, (entropy, logits))| {
                    *entropy = Row::new(logits, mask, index, self.choice.inverse_temperature).sums().entropy();
                });
            Ok(())
        })?;
        Ok((CpuStorage::F32(entropies), Shape::from(rows)))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        logits: &candle_core::CudaStorage,
        layout: &Layout,
    ) -> Result<(candle_core::CudaStorage, Shape)> {
        on_cuda::reduce("entropy", &self.choice, None, (logits, layout))
    }
}

/// Tokens that one word of the mask speaks for.
const WORD: usize = 32;

/// A row of logits with its mask.
struct Row<'a> {
    blocks: &'a [[f32; WORD]],
    /// The tokens after the last whole block, and how many they are.
    last: ([f32; WORD], usize),
    mask: Option<&'a [u32]>,
    inverse_temperature: f32,
}

/// What a row's distribution is made of.
struct Sums {
    /// The largest logit that is allowed, or 0 if there is none that is finite.
    largest: f32,
    /// Of `exp((logit - largest) / temperature)`.
    powers: f32,
    /// Of these times their logarithms.
    weighted: f32,
}

impl Sums {
    fn entropy(&self) -> f32 {
        if self.powers == 0.0 { 0.0 } else { self.powers.ln() - self.weighted / self.powers }
    }
}

impl<'a> Row<'a> {
    fn new(logits: &'a [f32], mask: Option<&'a [u32]>, index: usize, inverse_temperature: f32) -> Self {
        let (blocks, rest) = logits.as_chunks();
        let mut last = [0f32; WORD];
        for (last, &logit) in last.iter_mut().zip(rest) {
            *last = logit;
        }
        let words = logits.len().div_ceil(WORD);
        let mask = mask.map(|mask| mask.get(index * words..(index + 1) * words).unwrap_or_default());
        Row { blocks, last: (last, rest.len()), mask, inverse_temperature }
    }

    /// The token as an index, if it may be chosen.
    fn allowed(&self, token: u32) -> Option<usize> {
        let (block, bit) = (token as usize / WORD, token as usize % WORD);
        let exists = block < self.blocks.len() || (block == self.blocks.len() && bit < self.last.1);
        let word = self.mask.map_or(u32::MAX, |mask| mask.get(block).copied().unwrap_or(0));
        (exists && word >> bit & 1 == 1).then_some(token as usize)
    }

    /// The logit of a token that exists.
    fn logit(&self, token: usize) -> f32 {
        self.blocks.get(token / WORD).unwrap_or(&self.last.0)[token % WORD]
    }

    /// The blocks of logits of which a token is allowed, with their places and masks.
    fn open_blocks(&self) -> impl Iterator<Item = (usize, &[f32; WORD], u32)> {
        let (last, rest) = &self.last;
        let tail = (*rest > 0).then(|| (last, u32::MAX >> (WORD - rest)));
        let blocks = self.blocks.iter().map(|block| (block, u32::MAX)).chain(tail);
        blocks.enumerate().filter_map(|(index, (block, exist))| {
            let word = exist & self.mask.map_or(u32::MAX, |mask| mask.get(index).copied().unwrap_or(0));
            (word != 0).then_some((index, block, word))
        })
    }

    fn sums(&self) -> Sums {
        let mut lanes = [f32::NEG_INFINITY; WORD];
        for (_, block, word) in self.open_blocks() {
            for ((lane, &logit), bit) in lanes.iter_mut().zip(block).zip(BITS) {
                *lane = simd::greater(if word & bit == 0 { f32::NEG_INFINITY } else { logit }, *lane);
            }
        }
        let largest = simd::largest(&lanes);
        let largest = if largest == f32::NEG_INFINITY { 0.0 } else { largest };
        let (mut powers, mut weighted) = ([0f32; WORD], [0f32; WORD]);
        for (_, block, word) in self.open_blocks() {
            for (((power_sum, weighted_sum), &logit), bit) in powers.iter_mut().zip(&mut weighted).zip(block).zip(BITS)
            {
                let scaled = (logit - largest) * self.inverse_temperature;
                let power = if word & bit == 0 { 0.0 } else { simd::exp(scaled) };
                *power_sum += power;
                *weighted_sum += if power == 0.0 { 0.0 } else { power * scaled };
            }
        }
        Sums { largest, powers: simd::total(powers), weighted: simd::total(weighted) }
    }

    /// Writes the gradient of an allowed target's log-probability, times `grad`, over zeros.
    fn grad(&self, target: usize, logprob: f32, grad: f32, grad_logits: &mut [f32]) {
        // Padding and examples without weight: most rows of some batches.
        if grad == 0.0 || logprob == f32::NEG_INFINITY {
            return;
        }
        let center = self.logit(target);
        let step = grad * self.inverse_temperature;
        for (index, block, word) in self.open_blocks() {
            let Some(out) = grad_logits.get_mut(index * WORD..) else { return };
            for ((out, &logit), bit) in out.iter_mut().zip(block).zip(BITS) {
                let probability = simd::exp((logit - center) * self.inverse_temperature + logprob);
                *out = if word & bit == 0 { 0.0 } else { -step * probability };
            }
        }
        if let Some(out) = grad_logits.get_mut(target) {
            *out += step;
        }
    }
}

/// The bit of each token of a word.
const BITS: [u32; WORD] = {
    let mut bits = [0; WORD];
    let mut token = 0;
    while token < WORD {
        bits[token] = 1 << token;
        token += 1;
    }
    bits
};

#[cfg(feature = "cuda")]
mod on_cuda {
    use super::Choice;
    use crate::ops::cuda::{Arg, Launch, Operand, output, size};
    use candle_core::{CudaStorage, DType, Result, Shape, Storage, Tensor, backend::BackendStorage, bail};

    /// One number for each row of logits, with a block of threads each.
    pub(super) fn reduce(
        kernel: &str,
        choice: &Choice,
        targets: Option<&Tensor>,
        logits: Operand<'_>,
    ) -> Result<(CudaStorage, Shape)> {
        let (rows, vocabulary) = logits.1.shape().dims2()?;
        let (device, dtype) = (&logits.0.device, logits.0.dtype());
        let out = output(device, rows, DType::F32)?;
        with_tokens(targets, |targets| {
            with_tokens(choice.allowed.as_ref(), |allowed| {
                let args = [
                    Arg::read(logits, dtype)?,
                    targets,
                    allowed,
                    Arg::Write(&out),
                    Arg::U32(size(vocabulary)?),
                    Arg::F32(choice.inverse_temperature),
                ];
                Launch { grid: (size(rows)?, 1), threads: 512, shared_bytes: 0 }.run(kernel, dtype, device, &args)
            })
        })?;
        Ok((out, Shape::from(rows)))
    }

    /// The gradient of the logits. No sum is taken, so long rows are cut among blocks.
    pub(super) fn grad(
        choice: &Choice,
        targets: &Tensor,
        logits: Operand<'_>,
        (logprobs, grad): (Operand<'_>, Operand<'_>),
    ) -> Result<(CudaStorage, Shape)> {
        let (rows, vocabulary) = logits.1.shape().dims2()?;
        let (device, dtype) = (&logits.0.device, logits.0.dtype());
        let out = output(device, rows * vocabulary, dtype)?;
        with_tokens(Some(targets), |targets| {
            with_tokens(choice.allowed.as_ref(), |allowed| {
                let args = [
                    Arg::read(logits, dtype)?,
                    targets,
                    allowed,
                    Arg::read(logprobs, DType::F32)?,
                    Arg::read(grad, DType::F32)?,
                    Arg::Write(&out),
                    Arg::U32(size(vocabulary)?),
                    Arg::F32(choice.inverse_temperature),
                ];
                let grid = (size(rows)?, size(vocabulary.div_ceil(16_384))?);
                Launch { grid, threads: 256, shared_bytes: 0 }.run("logprob_grad", dtype, device, &args)
            })
        })?;
        Ok((out, logits.1.shape().clone()))
    }

    /// Calls `work` with a tensor of tokens or bits as an argument of a kernel; a null pointer if there is none.
    fn with_tokens<R>(tokens: Option<&Tensor>, work: impl FnOnce(Arg<'_>) -> Result<R>) -> Result<R> {
        let Some(tokens) = tokens else { return work(Arg::Null) };
        let (storage, layout) = tokens.storage_and_layout();
        let Storage::Cuda(storage) = &*storage else { bail!("logits and tokens are on different devices") };
        work(Arg::read((storage, layout), DType::U32)?)
    }
}
