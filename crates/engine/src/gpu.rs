//! A model that is served on a GPU: the second implementation of a step.

use crate::api::EngineSettings;
use crate::kernels::paged_attention::BLOCK;
use crate::kernels::panels;
use crate::network::Batch;
use crate::sampling::{SampledToken, SamplingParams};
use lemon_gpu::{Device, GpuError, Model, ModelSettings, ModelShape, Numbers, Sampling};
use lemon_model::gpu_tensors as tensors;
use lemon_model::{ModelConfig, PolicyError, TensorReader, WeightOrigin};
use rayon::prelude::*;
use std::sync::Arc;

/// Numbers of a tensor that are read at once.
const READ_AT_ONCE: usize = 16 << 20;
/// Rows that a thread reads at once.
const ROWS_OF_THREAD: usize = 64;
/// Sequences, prompt tokens in a step and tokens in the cache that are usual on a GPU, where settings ask for fewer.
const WIDTH: usize = 512;
const CHUNK: usize = 8_192;
const CACHE_TOKENS: usize = 1 << 20;
/// The share of the free memory that the cache may take beyond what settings ask for.
const CACHE_SHARE: f64 = 0.6;

/// How often the memory for a model is asked for, where other processes ask at the same time.
const TRIES: u32 = 4;

/// The model and the batch in the form that the device takes.
pub(crate) struct GpuRunner {
    model: Model,
    batch: lemon_gpu::Batch,
    /// Words of a mask over the rows of the model.
    mask_words: usize,
}

/// What the engine tells about a model on a GPU.
pub(crate) struct GpuFacts {
    pub(crate) config: ModelConfig,
    pub(crate) weight_bytes: usize,
    /// A hash of the weights as they were read.
    pub(crate) fingerprint: u64,
}

/// The GPU of this machine.
///
/// # Errors
/// There is none that can be used.
pub(crate) fn device() -> Result<Arc<Device>, PolicyError> {
    Device::open().map_err(refused)
}

fn refused(error: GpuError) -> PolicyError {
    PolicyError::Request(error.to_string())
}

impl GpuRunner {
    /// Loads a model. The settings are raised to what is usual on a GPU.
    pub(crate) fn new(
        device: &Arc<Device>,
        config: &ModelConfig,
        origin: &WeightOrigin<'_>,
        settings: &mut EngineSettings,
    ) -> Result<(GpuRunner, GpuFacts), PolicyError> {
        let shape = tensors::shape(config);
        shape.check().map_err(refused)?;
        let (asked, numbers) = (settings.clone(), numbers()?);
        let mut tries = 1..=TRIES;
        let mut model = loop {
            let last = tries.next() == Some(TRIES);
            *settings = asked.clone();
            raise(device, &shape, settings).map_err(refused)?;
            let blocks = settings.cache_tokens / BLOCK;
            let limits = ModelSettings {
                rows: settings.chunk.saturating_add(settings.width),
                draws: settings.width,
                pages: blocks,
                positions: config.positions.min(blocks * BLOCK),
                graphs: true,
                tuning: true,
                numbers,
            };
            match Model::new(device, shape.clone(), limits) {
                Ok(model) => break model,
                // Another process took what was free a moment ago: what is left is shared anew.
                Err(GpuError::OutOfMemory { .. }) if !last => {}
                Err(error) => return Err(refused(error)),
            }
        };
        let fingerprint = match origin {
            WeightOrigin::Seed(seed) => {
                // The values that training begins with are drawn on the host and take minutes; speed does not depend on them.
                model.randomise(*seed as u32).map_err(refused)?;
                *seed
            }
            WeightOrigin::Files(_) => load(&mut model, &TensorReader::open(config, origin)?)?,
        };
        if let Some(tensor) = model.missing() {
            return Err(PolicyError::Request(format!("the model has no {tensor:?}")));
        }
        let facts = GpuFacts { config: config.clone(), weight_bytes: model.weight_bytes(), fingerprint };
        let mask_words = config.vocabulary.div_ceil(32);
        Ok((GpuRunner { model, batch: lemon_gpu::Batch::default(), mask_words }, facts))
    }

    /// The name of the device.
    pub(crate) fn device_name(&self) -> &str {
        self.model.device_name()
    }

    /// The logits of one batch.
    #[cfg(test)]
    pub(crate) fn logits_of(&mut self, batch: &Batch) -> Vec<Vec<f32>> {
        self.step(batch, &mut Vec::new()).unwrap();
        (0..batch.samples.len()).map(|sample| self.model.logits(sample).unwrap()).collect()
    }

    /// Computes a batch.
    pub(crate) fn step(&mut self, batch: &Batch, sampled: &mut Vec<Option<SampledToken>>) -> Result<(), GpuError> {
        self.batch.clear();
        let row = |row: &crate::network::Row| lemon_gpu::PositionRow {
            token: row.token,
            position: row.position,
            pages: row.blocks,
        };
        self.batch.rows.extend(batch.rows.iter().map(row));
        self.batch.pages.extend_from_slice(&batch.blocks);
        self.batch.draws.extend(batch.samples.iter().map(|(row, params)| (*row, sampling(params))));
        for mask in &batch.masks {
            // The model may have more rows than the vocabulary has tokens.
            let begin = self.batch.masks.len();
            self.batch.masks.extend_from_slice(mask.words());
            self.batch.masks.resize(begin + self.mask_words, 0);
        }
        let pending = self.model.submit(&self.batch)?;
        let drawn = self.model.wait(pending)?;
        let token = |drawn: lemon_gpu::Drawn| Some(SampledToken { token: drawn.token?, logprob: drawn.logprob });
        sampled.extend(drawn.into_iter().map(token));
        Ok(())
    }
}

fn sampling(params: &SamplingParams) -> Sampling {
    let SamplingParams { temperature, top_p, seed, position, mask } = *params;
    Sampling { temperature, top_p, seed, index: position as u64, mask }
}

/// Raises the settings: a GPU computes many sequences in nearly the time of a few, and has memory for them.
fn raise(device: &Device, shape: &ModelShape, settings: &mut EngineSettings) -> Result<(), GpuError> {
    settings.width = settings.width.max(WIDTH);
    settings.chunk = settings.chunk.max(CHUNK);
    let numbers: usize = shape.tensors().iter().map(|(_, rows, width)| rows * width).sum();
    let scratch = (settings.chunk + settings.width) * (shape.hidden * 10 + shape.intermediate * 6 + 16_384)
        + settings.width.min(2_048) * shape.vocabulary * 4;
    let of_token = 4 * shape.layers * shape.kv_heads * shape.head_dim;
    let left = device.free_memory()?.saturating_sub(2 * numbers + scratch + (512 << 20));
    let usual = ((left as f64 * CACHE_SHARE) as usize / of_token.max(1)).min(CACHE_TOKENS);
    settings.cache_tokens = settings.cache_tokens.max(usual / BLOCK * BLOCK);
    Ok(())
}

/// The form of weights, keys and values on the device: what `LEMON_GPU_NUMBERS` says.
///
/// # Errors
/// It says something else than `bf16` or `f16`.
fn numbers() -> Result<Numbers, PolicyError> {
    match std::env::var("LEMON_GPU_NUMBERS").as_deref() {
        Err(_) => Ok(Numbers::default()),
        Ok("f16") => Ok(Numbers::F16),
        Ok("bf16") => Ok(Numbers::Bf16),
        Ok(other) => {
            Err(PolicyError::Request(format!("expected `f16` or `bf16` in LEMON_GPU_NUMBERS, found `{other}`")))
        }
    }
}

/// Reads all tensors and writes them to the device, which rounds matrices to 16 bits. A hash of what was read.
fn load(model: &mut Model, reader: &TensorReader) -> Result<u64, PolicyError> {
    let mut fingerprint = 0;
    for (tensor, all, _) in model.shape().tensors() {
        let names = tensors::names(tensor);
        if all == 1 {
            let vectors = names.iter().map(|name| reader.read(name)).collect::<Result<Vec<_>, _>>()?.concat();
            fingerprint = hash(fingerprint, [hash_of(&vectors)]);
            model.write(tensor, 0, &vectors).map_err(refused)?;
            continue;
        }
        let mut written = 0;
        for name in names {
            let rows = reader.rows(&name)?;
            let (count, width) = (rows.count(), rows.width().max(1));
            let at_once = (READ_AT_ONCE / width).clamp(1, count.max(1));
            for start in (0..count).step_by(at_once) {
                let mut values = vec![0f32; at_once.min(count - start) * width];
                let parts = values.par_chunks_mut(ROWS_OF_THREAD * width).enumerate();
                let hashes = parts.map(|(part, values)| {
                    rows.read(start + part * ROWS_OF_THREAD, values)?;
                    Ok(hash_of(values))
                });
                fingerprint = hash(fingerprint, hashes.collect::<Result<Vec<u64>, PolicyError>>()?);
                model.write(tensor, written, &values).map_err(refused)?;
                written += values.len() / width;
            }
        }
    }
    Ok(fingerprint)
}

fn hash(before: u64, numbers: impl IntoIterator<Item = u64>) -> u64 {
    panels::hash(std::iter::once(before).chain(numbers))
}

fn hash_of(values: &[f32]) -> u64 {
    panels::hash(values.iter().map(|value| u64::from(value.to_bits())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_an_error_with_a_hint() {
        match device() {
            Ok(device) => assert!(!device.info().name.is_empty()),
            Err(error) => assert!(error.to_string().contains("hint:"), "{error}"),
        }
    }
}
