//! The forward pass for serving: plain slices instead of tensors, and packed weights. It computes what `lemon_model`'s
//! forward pass computes, for rows of many sequences at once; the tests compare the two.
//!
//! All threads of a pool run [`Network::step`] side by side. In each phase a thread writes only the outputs (panels of a
//! product) or rows that it has taken, and reads only what earlier phases wrote. Therefore the ranges of shared buffers below
//! never overlap.

#![allow(unsafe_code)]

use crate::kernels::elementwise::{self, Element};
use crate::kernels::paged_attention::{self, BLOCK, Seen};
use crate::kernels::panels::{self, LANES, Panels, Rounding, WeightForm};
use crate::kernels::stack::Stack;
use crate::kv_cache::{KvCache, Pair};
use crate::sampling::{SamplingParams, sample, sample_masked};
use crate::scratch::{Scratch, cell, of};
use crate::shared_buffer::Number;
use crate::thread_pool::{WorkerThread, lock};
use lemon_model::grammar::Mask;
use lemon_model::{BlockType, ModelConfig, PolicyError, TensorReader, WeightOrigin};
use rayon::prelude::*;
use std::ops::Range;

/// A model with packed weights.
pub(crate) struct Network {
    pub(crate) config: ModelConfig,
    embedding: Embedding,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    head: Panels,
    frequencies: Vec<f32>,
}

/// The vectors of tokens.
enum Embedding {
    /// The weights of the head.
    Head,
    /// A packed matrix of its own.
    Packed(Panels),
    /// The rows as a GGUF file has them: nothing is ever multiplied with them.
    Rows { stored: BlockType, bytes: Vec<u8> },
}

struct Layer {
    input_norm: Vec<f32>,
    /// Query, key and value, stacked.
    qkv: Stack,
    qkv_bias: Option<Vec<f32>>,
    o: Panels,
    o_bias: Option<Vec<f32>>,
    /// Qwen3's norms of query and key.
    qk_norm: Option<(Vec<f32>, Vec<f32>)>,
    post_norm: Vec<f32>,
    gate: Panels,
    up: Panels,
    down: Panels,
}

/// One position to be computed.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) token: u32,
    pub(crate) position: u32,
    /// Where the blocks of its sequence begin in [`Batch::blocks`].
    pub(crate) blocks: u32,
}

/// The rows of a step.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) rows: Vec<Row>,
    /// The blocks of all sequences, one sequence after another.
    pub(crate) blocks: Vec<u32>,
    /// Rows after which a token is sampled, and how.
    pub(crate) samples: Vec<(u32, SamplingParams)>,
    /// The masks of those that have one.
    pub(crate) masks: Vec<Mask>,
}

impl Batch {
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.blocks.clear();
        self.samples.clear();
        self.masks.clear();
    }
}

/// Attention for one kind of cache.
type Attend<E> = fn(&[f32], &Seen<'_, E>, &mut Vec<f32>, &mut [f32]);

impl Network {
    /// Reads and packs the weights, one tensor at a time: no model is in memory twice.
    pub(crate) fn new(config: ModelConfig, origin: &WeightOrigin<'_>, form: WeightForm) -> Result<Self, PolicyError> {
        let reader = TensorReader::open(&config, origin)?;
        let read = |name: &str| reader.read(name);
        let pack = |name: &str| Panels::pack(&[reader.rows(name)?], form);
        let mut layers = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            let name = |name: &str| format!("model.layers.{layer}.{name}");
            let (at, packed) = (|part: &str| read(&name(part)), |part: &str| pack(&name(part)));
            let qkv = |kind: &str| ["q", "k", "v"].map(|part| name(&format!("self_attn.{part}_proj.{kind}")));
            let qkv_rows = qkv("weight").iter().map(|name| reader.rows(name)).collect::<Result<Vec<_>, _>>()?;
            let qkv_bias = || -> Result<Vec<f32>, PolicyError> {
                Ok(qkv("bias").iter().map(|name| read(name)).collect::<Result<Vec<_>, _>>()?.concat())
            };
            layers.push(Layer {
                input_norm: at("input_layernorm.weight")?,
                qkv: Stack::pack(qkv_rows, form)?,
                qkv_bias: config.attention_bias.then(qkv_bias).transpose()?,
                o: packed("self_attn.o_proj.weight")?,
                o_bias: config.has_output_bias().then(|| at("self_attn.o_proj.bias")).transpose()?,
                qk_norm: match config.has_head_norms() {
                    true => Some((at("self_attn.q_norm.weight")?, at("self_attn.k_norm.weight")?)),
                    false => None,
                },
                post_norm: at("post_attention_layernorm.weight")?,
                gate: packed("mlp.gate_proj.weight")?,
                up: packed("mlp.up_proj.weight")?,
                down: packed("mlp.down_proj.weight")?,
            });
        }
        let embedding = "model.embed_tokens.weight";
        let rows = reader.rows(embedding)?;
        Ok(Network {
            embedding: match rows.stored() {
                _ if config.tied => Embedding::Head,
                Some(stored) if form == WeightForm::Stored => {
                    const ROWS: usize = 1_024;
                    let of_row = stored.row_bytes(rows.width());
                    let mut bytes = vec![0u8; rows.count() * of_row];
                    let parts = bytes.par_chunks_mut((ROWS * of_row).max(1)).enumerate();
                    parts.try_for_each(|(part, bytes)| rows.read_stored(part * ROWS, bytes))?;
                    Embedding::Rows { stored, bytes }
                }
                _ => Embedding::Packed(Panels::pack(&[rows], form)?),
            },
            norm: read("model.norm.weight")?,
            head: pack(if config.tied { embedding } else { "lm_head.weight" })?,
            frequencies: config.rotary_frequencies(),
            layers,
            config,
        })
    }

    /// All matrices of products.
    fn matrices(&self) -> impl Iterator<Item = &Panels> {
        let layers = self.layers.iter();
        let layers = layers.flat_map(|it| it.qkv.parts().iter().chain([&it.o, &it.gate, &it.up, &it.down]));
        layers.chain([&self.head])
    }

    /// Whether inputs of some products are quantised in this way.
    pub(crate) fn needs(&self, rounding: Rounding) -> bool {
        self.matrices().any(|matrix| matrix.rounding() == Some(rounding))
    }

    /// Whether weights and the inputs of products are quantised.
    pub(crate) fn is_quantised(&self) -> bool {
        self.head.rounding().is_some()
    }

    /// Bytes of weights that a step reads.
    pub(crate) fn bytes_read(&self) -> usize {
        self.matrices().map(Panels::bytes).sum()
    }

    /// A hash of all weights.
    pub(crate) fn fingerprint(&self) -> u64 {
        let of_layer = |layer: &Layer| {
            let matrices = [&layer.o, &layer.gate, &layer.up, &layer.down].map(Panels::fingerprint);
            let matrices = std::iter::once(layer.qkv.fingerprint()).chain(matrices);
            let (q_norm, k_norm) = layer.qk_norm.as_ref().map_or((&[][..], &[][..]), |(q, k)| (q, k));
            let biases = [layer.qkv_bias.as_deref(), layer.o_bias.as_deref()].map(Option::unwrap_or_default);
            let vectors = [&layer.input_norm, &layer.post_norm, q_norm, k_norm, biases[0], biases[1]];
            panels::hash(matrices.chain(vectors.into_iter().flatten().map(|it| u64::from(it.to_bits()))))
        };
        let head = self.head.fingerprint();
        let embedding = match &self.embedding {
            Embedding::Head => head,
            Embedding::Packed(panels) => panels.fingerprint(),
            Embedding::Rows { bytes, .. } => {
                // Rows of all formats have whole words: blocks have an even number of bytes, and rows many blocks.
                panels::hash(bytes.chunks(8).map(|word| word.iter().fold(0, |all, byte| all << 8 | u64::from(*byte))))
            }
        };
        let ends = [embedding, head];
        let norm = self.norm.iter().map(|it| u64::from(it.to_bits()));
        panels::hash(self.layers.iter().map(of_layer).chain(ends).chain(norm))
    }

    /// Whether the weights are so few that every thread can read all of them. Threads then divide sequences instead of
    /// outputs and need not wait for each other.
    pub(crate) fn is_small(&self) -> bool {
        const BYTES: usize = 32 << 20;
        self.bytes_read() <= BYTES
    }

    /// Whether a step of so many rows is worth more than one thread.
    pub(crate) fn is_worth_sharing(&self, rows: usize) -> bool {
        // The models of tests are small; their steps are shared all the same.
        const MULTIPLICATIONS: u128 = if cfg!(test) { 100_000 } else { 4_000_000 };
        self.config.parameters() * rows as u128 > MULTIPLICATIONS
    }

    /// Computes a batch: writes the keys and values of its rows into the cache and samples the next tokens.
    pub(crate) fn step(&self, thread: &WorkerThread<'_>, batch: &Batch, scratch: &Scratch, cache: &KvCache) {
        match cache {
            KvCache::F32(layers) => self.run_layers(thread, batch, scratch, layers, paged_attention::attend_f32),
            KvCache::Bf16(layers) => self.run_layers(thread, batch, scratch, layers, paged_attention::attend_bf16),
        }
    }

    fn run_layers<E: Element + Number>(
        &self,
        thread: &WorkerThread<'_>,
        batch: &Batch,
        scratch: &Scratch,
        cache: &[Pair<E>],
        attend: Attend<E>,
    ) {
        let (count, hidden) = (batch.rows.len(), self.config.hidden);
        thread.parallel_for(count, |rows| {
            for row in rows {
                // SAFETY: each thread has its own rows.
                self.embed(batch.rows[row].token as usize, unsafe { scratch.x.range_mut(of(row, hidden)) });
                self.set_rotation(batch.rows[row].position, scratch, row);
            }
        });
        for (layer, cache) in self.layers.iter().zip(cache) {
            self.norm_rows(thread, scratch, &layer.input_norm, layer.qkv.parts(), count, |row| row);
            let width = layer.qkv.outs();
            thread.parallel_for(layer.qkv.count(), |panels| {
                let input = scratch.input(count, hidden, &scratch.narrow);
                layer.qkv.multiply(input, panels, |row, outs, products| {
                    // SAFETY: each thread has its own panels.
                    let y = unsafe { scratch.qkv.range_mut(row * width + outs.start..row * width + outs.end) };
                    y.copy_from_slice(products);
                    add_bias(y, layer.qkv_bias.as_deref(), outs.start);
                });
            });
            thread.parallel_for(count, |rows| rows.for_each(|row| self.cache_row(layer, row, batch, scratch, cache)));
            thread
                .parallel_for(count * self.config.kv_heads, |units| self.attend(units, batch, scratch, cache, attend));
            scratch.round_rows(thread, layer.o.rounding(), layer.o.ins, count);
            thread.parallel_for(layer.o.count(), |panels| {
                let input = scratch.input(count, layer.o.ins, &scratch.wide);
                layer.o.multiply(input, panels, |row, panel, products| {
                    // SAFETY: each thread has its own panels.
                    let x = unsafe { scratch.x.range_mut(cell(row, panel, hidden)) };
                    add_bias(x, Some(products), 0);
                    add_bias(x, layer.o_bias.as_deref(), panel * LANES);
                });
            });
            self.norm_rows(thread, scratch, &layer.post_norm, [&layer.gate, &layer.up], count, |row| row);
            let width = layer.gate.outs;
            thread.parallel_for(layer.gate.count(), |panels| {
                let input = scratch.input(count, hidden, &scratch.narrow);
                layer.gate.multiply(input, panels.clone(), |row, panel, products| {
                    // SAFETY: each thread has its own panels.
                    let gate = unsafe { scratch.wide.range_mut(cell(row, panel, width)) };
                    let count = gate.len();
                    gate.copy_from_slice(&products[..count]);
                });
                layer.up.multiply(input, panels, |row, panel, products| {
                    // SAFETY: as above.
                    elementwise::gate_in_place(unsafe { scratch.wide.range_mut(cell(row, panel, width)) }, products);
                });
            });
            scratch.round_rows(thread, layer.down.rounding(), layer.down.ins, count);
            thread.parallel_for(layer.down.count(), |panels| {
                let input = scratch.input(count, layer.down.ins, &scratch.wide);
                layer.down.multiply(input, panels, |row, panel, products| {
                    // SAFETY: each thread has its own panels.
                    add_bias(unsafe { scratch.x.range_mut(cell(row, panel, hidden)) }, Some(products), 0);
                });
            });
        }
        self.sample(thread, batch, scratch);
    }

    /// Phases that a step has.
    pub(crate) fn phases(&self) -> usize {
        10 * self.layers.len() + 4
    }

    /// The vector of a token. Panics if there is no such token.
    fn embed(&self, token: usize, x: &mut [f32]) {
        match &self.embedding {
            Embedding::Head => self.head.row(token, x),
            Embedding::Packed(panels) => panels.row(token, x),
            Embedding::Rows { stored, bytes } => {
                stored.decode(&bytes[of(token, stored.row_bytes(self.config.hidden))], x);
            }
        }
    }

    /// Computes the logits after some rows and samples a token from each.
    fn sample(&self, thread: &WorkerThread<'_>, batch: &Batch, scratch: &Scratch) {
        let (head, count, vocabulary) = (&self.head, batch.samples.len(), self.config.vocabulary);
        self.norm_rows(thread, scratch, &self.norm, [head], count, |at| batch.samples[at].0 as usize);
        thread.parallel_for(head.count(), |panels| {
            let input = scratch.input(count, self.config.hidden, &scratch.narrow);
            head.multiply(input, panels, |row, panel, products| {
                // SAFETY: each thread has its own panels.
                let logits = unsafe { scratch.logits.range_mut(cell(row, panel, vocabulary)) };
                let count = logits.len();
                logits.copy_from_slice(&products[..count]);
            });
        });
        thread.parallel_for(count, |samples| {
            let mut sorted = Vec::new();
            for at in samples {
                // SAFETY: logits are only read until the end.
                let logits = unsafe { scratch.logits.range(of(at, vocabulary)) };
                let params = &batch.samples[at].1;
                let sampled = match params.mask.and_then(|mask| batch.masks.get(mask as usize)) {
                    Some(mask) => sample_masked(logits, mask, params, &mut sorted),
                    None => sample(logits, params, &mut sorted),
                };
                lock(&scratch.sampled)[at] = sampled;
            }
        });
    }

    /// Normalises rows of x for products with these matrices: row `from(r)` becomes row r.
    fn norm_rows<'a>(
        &self,
        thread: &WorkerThread<'_>,
        scratch: &Scratch,
        weight: &[f32],
        matrices: impl IntoIterator<Item = &'a Panels> + Clone,
        rows: usize,
        from: impl Fn(usize) -> usize,
    ) {
        let hidden = self.config.hidden;
        let needed = |it: &Rounding| matrices.clone().into_iter().any(|matrix| matrix.rounding() == Some(*it));
        thread.parallel_for(rows, |rows| {
            for row in rows {
                // SAFETY: x is only read in this phase, and each thread has its own rows.
                let (x, y) =
                    unsafe { (scratch.x.range(of(from(row), hidden)), scratch.narrow.range_mut(of(row, hidden))) };
                elementwise::norm_row(x, weight, self.config.norm_epsilon as f32, y);
                scratch.round_row(Rounding::ALL.into_iter().filter(needed), row, y);
            }
        });
    }

    /// Normalises and rotates the query and key of a row, and writes key and value into the cache.
    fn cache_row<E: Element + Number>(
        &self,
        layer: &Layer,
        row: usize,
        batch: &Batch,
        scratch: &Scratch,
        (keys, values): &Pair<E>,
    ) {
        let ModelConfig { heads, kv_heads, head_dim, .. } = self.config;
        let epsilon = self.config.norm_epsilon as f32;
        let at = &batch.rows[row];
        let block = batch.blocks[at.blocks as usize + at.position as usize / BLOCK] as usize;
        let lane = at.position as usize % BLOCK;
        // SAFETY: each thread has its own rows, and each row its own place in the cache.
        let (qkv, rotations) =
            unsafe { (scratch.qkv.range_mut(of(row, layer.qkv.outs())), scratch.rotations.range(of(row, head_dim))) };
        let (cos, sin) = rotations.split_at(head_dim / 2);
        let (qk, v) = qkv.split_at_mut((heads + kv_heads) * head_dim);
        for (head, it) in qk.chunks_mut(head_dim).enumerate() {
            if let Some((q_norm, k_norm)) = &layer.qk_norm {
                elementwise::norm_in_place(it, if head < heads { q_norm } else { k_norm }, epsilon);
            }
            elementwise::rotate(it, cos, sin);
        }
        let new = qk[heads * head_dim..].chunks(head_dim).zip(v.chunks(head_dim));
        for (head, (key, value)) in new.enumerate() {
            let start = (block * kv_heads + head) * head_dim * BLOCK;
            for (dim, key) in key.iter().enumerate() {
                let place = start + dim * BLOCK + lane;
                // SAFETY: as above; other lanes of this line belong to other rows, so only this number is touched.
                unsafe { keys.range_mut(place..place + 1)[0] = E::new(*key) };
            }
            let place = start + lane * head_dim;
            // SAFETY: as above.
            for (place, value) in unsafe { values.range_mut(place..place + head_dim) }.iter_mut().zip(value) {
                *place = E::new(*value);
            }
        }
    }

    /// Attention of some rows, by rows and key heads.
    fn attend<E: Element + Number>(
        &self,
        units: Range<usize>,
        batch: &Batch,
        scratch: &Scratch,
        (keys, values): &Pair<E>,
        attend: Attend<E>,
    ) {
        let ModelConfig { heads, kv_heads, head_dim: dim, .. } = self.config;
        let (width, group, size) = ((heads + 2 * kv_heads) * dim, heads / kv_heads * dim, dim * BLOCK);
        let (mut scores, mut seen_keys, mut seen_values) = (Vec::new(), Vec::new(), Vec::new());
        for unit in units {
            let (row, head) = (unit / kv_heads, unit % kv_heads);
            let at = &batch.rows[row];
            let count = at.position as usize + 1;
            let blocks = &batch.blocks[at.blocks as usize..][..count.div_ceil(BLOCK)];
            seen_keys.clear();
            seen_values.clear();
            for block in blocks {
                let part = of(*block as usize * kv_heads + head, size);
                // SAFETY: what a sequence sees was written in earlier phases, as [`KvCache`] says.
                unsafe {
                    seen_keys.push(keys.range(part.clone()));
                    seen_values.push(values.range(part));
                }
            }
            let (q, out) = (row * width + head * group, row * heads * dim + head * group);
            // SAFETY: queries are only read in this phase, and each thread has its own rows and heads.
            let (queries, out) = unsafe { (scratch.qkv.range(q..q + group), scratch.wide.range_mut(out..out + group)) };
            attend(queries, &Seen { keys: &seen_keys, values: &seen_values, count, dim }, &mut scores, out);
        }
    }

    /// Writes the rotary cosines and sines of a row.
    fn set_rotation(&self, position: u32, scratch: &Scratch, row: usize) {
        // SAFETY: each thread has its own rows.
        let rotations = unsafe { scratch.rotations.range_mut(of(row, self.config.head_dim)) };
        let (cos, sin) = rotations.split_at_mut(self.config.head_dim / 2);
        for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(&self.frequencies) {
            (*sin, *cos) = (position as f32 * frequency).sin_cos();
        }
    }
}

/// Adds the entries of a bias from one on, if there is a bias.
fn add_bias(y: &mut [f32], bias: Option<&[f32]>, first: usize) {
    if let Some(bias) = bias {
        for (y, bias) in y.iter_mut().zip(&bias[first..]) {
            *y += bias;
        }
    }
}
