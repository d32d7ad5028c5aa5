//! The model once more, for serving: plain slices instead of tensors, and packed weights. It says what `model.rs` says, for
//! rows of many texts at once; the tests hold the two together.
//!
//! All threads of a crew walk through [`Network::step`] side by side. In each part of it a thread writes only the outputs
//! (panels of a product) or rows it has taken, and reads only what earlier parts wrote. That is why the parts of shared
//! buffers below are safe to take.

#![allow(unsafe_code)]

use super::choose::{Choice, choose};
use super::crew::{Member, Number, lock};
use super::room::{Cache, Pair, Room, cell, of};
use crate::PolicyError;
use crate::config::{Family, ModelConfig};
use crate::model::frequencies;
use crate::ops::paged::{self, BLOCK, Seen};
use crate::ops::panels::{self, LANES, Panels, WeightForm};
use crate::ops::wide::{self, Element};
use crate::parameters::{Origin, fresh, names};
use crate::weights::WeightFiles;
use candle_core::{DType, Device, Tensor};
use std::collections::HashMap;
use std::ops::Range;

/// A model, packed.
pub(super) struct Network {
    pub(super) config: ModelConfig,
    embedding: Panels,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    /// `None`: the embedding is the head.
    head: Option<Panels>,
    frequencies: Vec<f32>,
}

struct Layer {
    input_norm: Vec<f32>,
    /// Query, key and value, one below the other.
    qkv: Panels,
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
pub(super) struct Row {
    pub(super) token: u32,
    pub(super) position: u32,
    /// Where the blocks of its text begin in [`Batch::blocks`].
    pub(super) blocks: u32,
}

/// The rows of a step.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) rows: Vec<Row>,
    /// The blocks of all texts, one text after another.
    pub(super) blocks: Vec<u32>,
    /// Rows after which a token is drawn, and how.
    pub(super) draws: Vec<(u32, Choice)>,
}

impl Batch {
    /// Empties it.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.blocks.clear();
        self.draws.clear();
    }
}

/// Attention for one kind of cache.
type Attend<E> = fn(&[f32], &Seen<'_, E>, &mut Vec<f32>, &mut [f32]);

impl Network {
    /// Reads or makes the weights, one tensor at a time: no model is in memory twice.
    pub(super) fn new(config: ModelConfig, origin: &Origin<'_>, form: WeightForm) -> Result<Self, PolicyError> {
        let shapes: HashMap<String, Vec<usize>> = names(&config).into_iter().collect();
        let files = match origin {
            Origin::Folder(folder) => Some(WeightFiles::open(*folder)?),
            Origin::Seed(_) => None,
        };
        let read = |name: &str| -> Result<Vec<f32>, PolicyError> {
            let none = || PolicyError::Request(format!("the model has no tensor `{name}`"));
            let shape = shapes.get(name).ok_or_else(none)?;
            let tensor: Tensor = match (&files, origin) {
                (Some(files), _) => files.read(name, shape, DType::F32, &Device::Cpu)?,
                (None, Origin::Seed(seed)) => fresh(name, shape, *seed, config.layers, &Device::Cpu)?,
                (None, Origin::Folder(_)) => return Err(none()), // A folder has files.
            };
            Ok(tensor.flatten_all()?.to_vec1::<f32>()?)
        };
        let pack = |values: &[f32], ins: usize| Panels::pack(values, ins, form);
        let (q_width, intermediate) = (config.heads * config.head_dim, config.intermediate);
        let mut layers = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            let at = |name: &str| read(&format!("model.layers.{layer}.{name}"));
            let qkv = |kind: &str| -> Result<Vec<f32>, PolicyError> {
                let parts = ["q", "k", "v"].map(|part| at(&format!("self_attn.{part}_proj.{kind}")));
                Ok(parts.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
            };
            let o_bias = config.attention_bias && config.family != Family::Qwen2;
            layers.push(Layer {
                input_norm: at("input_layernorm.weight")?,
                qkv: pack(&qkv("weight")?, config.hidden),
                qkv_bias: config.attention_bias.then(|| qkv("bias")).transpose()?,
                o: pack(&at("self_attn.o_proj.weight")?, q_width),
                o_bias: o_bias.then(|| at("self_attn.o_proj.bias")).transpose()?,
                qk_norm: match config.family {
                    Family::Qwen3 => Some((at("self_attn.q_norm.weight")?, at("self_attn.k_norm.weight")?)),
                    Family::Qwen2 | Family::Llama => None,
                },
                post_norm: at("post_attention_layernorm.weight")?,
                gate: pack(&at("mlp.gate_proj.weight")?, config.hidden),
                up: pack(&at("mlp.up_proj.weight")?, config.hidden),
                down: pack(&at("mlp.down_proj.weight")?, intermediate),
            });
        }
        Ok(Network {
            embedding: pack(&read("model.embed_tokens.weight")?, config.hidden),
            norm: read("model.norm.weight")?,
            head: if config.tied { None } else { Some(pack(&read("lm_head.weight")?, config.hidden)) },
            frequencies: frequencies(&config),
            layers,
            config,
        })
    }

    /// Whether what its weights are multiplied with is rounded to 8 bits.
    pub(super) fn is_rounded(&self) -> bool {
        self.embedding.is_rounded()
    }

    /// Bytes of weights that a step of one row reads.
    pub(super) fn bytes_read(&self) -> usize {
        let layer = |layer: &Layer| {
            [&layer.qkv, &layer.o, &layer.gate, &layer.up, &layer.down].into_iter().map(Panels::bytes).sum::<usize>()
        };
        self.layers.iter().map(layer).sum::<usize>() + self.head().bytes()
    }

    /// A number that follows from all weights.
    pub(super) fn fingerprint(&self) -> u64 {
        let of_layer = |layer: &Layer| {
            let matrices = [&layer.qkv, &layer.o, &layer.gate, &layer.up, &layer.down].map(Panels::fingerprint);
            let (q_norm, k_norm) = layer.qk_norm.as_ref().map_or((&[][..], &[][..]), |(q, k)| (q, k));
            let biases = [layer.qkv_bias.as_deref(), layer.o_bias.as_deref()].map(Option::unwrap_or_default);
            let vectors = [&layer.input_norm, &layer.post_norm, q_norm, k_norm, biases[0], biases[1]];
            panels::mixed(matrices.into_iter().chain(vectors.into_iter().flatten().map(|it| u64::from(it.to_bits()))))
        };
        let ends = [self.embedding.fingerprint(), self.head().fingerprint()];
        let norm = self.norm.iter().map(|it| u64::from(it.to_bits()));
        panels::mixed(self.layers.iter().map(of_layer).chain(ends).chain(norm))
    }

    /// Whether its weights are so few that every thread can read all of them, so that threads share out texts instead of
    /// outputs and need not wait for each other.
    pub(super) fn is_small(&self) -> bool {
        const BYTES: usize = 32 << 20;
        self.bytes_read() <= BYTES
    }

    /// Whether a step of so many rows is worth more than one thread.
    pub(super) fn is_worth_sharing(&self, rows: usize) -> bool {
        // The models of tests are small, and have to be shared all the same.
        const MULTIPLICATIONS: u128 = if cfg!(test) { 100_000 } else { 4_000_000 };
        self.config.parameters() * rows as u128 > MULTIPLICATIONS
    }

    /// Computes a batch: the keys and values of its rows go into the cache, the tokens after them are drawn.
    pub(super) fn step(&self, me: &Member<'_>, batch: &Batch, room: &Room, cache: &Cache) {
        match cache {
            Cache::F32(layers) => self.walk(me, batch, room, layers, paged::attend_f32),
            Cache::Bf16(layers) => self.walk(me, batch, room, layers, paged::attend_bf16),
        }
    }

    fn walk<E: Element + Number>(
        &self,
        me: &Member<'_>,
        batch: &Batch,
        room: &Room,
        cache: &[Pair<E>],
        attend: Attend<E>,
    ) {
        let (count, hidden) = (batch.rows.len(), self.config.hidden);
        me.each(count, |rows| {
            for row in rows {
                // SAFETY: each thread has its own rows.
                self.embedding.row(batch.rows[row].token as usize, unsafe { room.x.part_mut(of(row, hidden)) });
                self.turn_of(batch.rows[row].position, room, row);
            }
        });
        for (layer, cache) in self.layers.iter().zip(cache) {
            self.norm_rows(me, room, &layer.input_norm, &layer.qkv, count, |row| row);
            let width = layer.qkv.outs;
            me.each(layer.qkv.count(), |panels| {
                let input = room.input(count, hidden, &room.narrow);
                layer.qkv.multiply(input, panels, |row, panel, products| {
                    // SAFETY: each thread has its own panels.
                    let y = unsafe { room.qkv.part_mut(cell(row, panel, width)) };
                    let count = y.len();
                    y.copy_from_slice(&products[..count]);
                    add_bias(y, layer.qkv_bias.as_deref(), panel);
                });
            });
            me.each(count, |rows| rows.for_each(|row| self.remember(layer, row, batch, room, cache)));
            me.each(count * self.config.kv_heads, |units| self.attend(units, batch, room, cache, attend));
            room.round_rows(me, &layer.o, count);
            me.each(layer.o.count(), |panels| {
                let input = room.input(count, layer.o.ins, &room.wide);
                layer.o.multiply(input, panels, |row, panel, products| {
                    // SAFETY: each thread has its own panels.
                    let x = unsafe { room.x.part_mut(cell(row, panel, hidden)) };
                    add_bias(x, Some(products), 0);
                    add_bias(x, layer.o_bias.as_deref(), panel);
                });
            });
            self.norm_rows(me, room, &layer.post_norm, &layer.gate, count, |row| row);
            let width = layer.gate.outs;
            me.each(layer.gate.count(), |panels| {
                let input = room.input(count, hidden, &room.narrow);
                layer.gate.multiply(input, panels.clone(), |row, panel, products| {
                    // SAFETY: each thread has its own panels.
                    let gate = unsafe { room.wide.part_mut(cell(row, panel, width)) };
                    let count = gate.len();
                    gate.copy_from_slice(&products[..count]);
                });
                layer.up.multiply(input, panels, |row, panel, products| {
                    // SAFETY: as above.
                    wide::gate_in_place(unsafe { room.wide.part_mut(cell(row, panel, width)) }, products);
                });
            });
            room.round_rows(me, &layer.down, count);
            me.each(layer.down.count(), |panels| {
                let input = room.input(count, layer.down.ins, &room.wide);
                layer.down.multiply(input, panels, |row, panel, products| {
                    // SAFETY: each thread has its own panels.
                    add_bias(unsafe { room.x.part_mut(cell(row, panel, hidden)) }, Some(products), 0);
                });
            });
        }
        self.draw(me, batch, room);
    }

    /// Parts that a step has.
    pub(super) fn parts(&self) -> usize {
        10 * self.layers.len() + 4
    }

    fn head(&self) -> &Panels {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// The logits after some rows, and a token drawn from each.
    fn draw(&self, me: &Member<'_>, batch: &Batch, room: &Room) {
        let (head, count, vocabulary) = (self.head(), batch.draws.len(), self.config.vocabulary);
        self.norm_rows(me, room, &self.norm, head, count, |draw| batch.draws[draw].0 as usize);
        me.each(head.count(), |panels| {
            let input = room.input(count, self.config.hidden, &room.narrow);
            head.multiply(input, panels, |row, panel, products| {
                // SAFETY: each thread has its own panels.
                let logits = unsafe { room.logits.part_mut(cell(row, panel, vocabulary)) };
                let count = logits.len();
                logits.copy_from_slice(&products[..count]);
            });
        });
        me.each(count, |draws| {
            let mut sorted = Vec::new();
            for draw in draws {
                // SAFETY: logits are only read until the end.
                let logits = unsafe { room.logits.part(of(draw, vocabulary)) };
                let drawn = choose(logits, &batch.draws[draw].1, &mut sorted);
                lock(&room.drawn)[draw] = drawn;
            }
        });
    }

    /// Norms rows of x, ready for a product with this matrix: row `from(r)` becomes row r.
    fn norm_rows(
        &self,
        me: &Member<'_>,
        room: &Room,
        weight: &[f32],
        matrix: &Panels,
        rows: usize,
        from: impl Fn(usize) -> usize,
    ) {
        let hidden = self.config.hidden;
        me.each(rows, |rows| {
            for row in rows {
                // SAFETY: x is only read in this part, and each thread has its own rows.
                let (x, y) = unsafe { (room.x.part(of(from(row), hidden)), room.narrow.part_mut(of(row, hidden))) };
                wide::norm_row(x, weight, self.config.norm_epsilon as f32, y);
                room.round_row(matrix, row, y);
            }
        });
    }

    /// Finishes the query and key of a row, and puts key and value into the cache.
    fn remember<E: Element + Number>(
        &self,
        layer: &Layer,
        row: usize,
        batch: &Batch,
        room: &Room,
        (keys, values): &Pair<E>,
    ) {
        let ModelConfig { heads, kv_heads, head_dim, .. } = self.config;
        let epsilon = self.config.norm_epsilon as f32;
        let at = &batch.rows[row];
        let block = batch.blocks[at.blocks as usize + at.position as usize / BLOCK] as usize;
        let lane = at.position as usize % BLOCK;
        // SAFETY: each thread has its own rows, and each row its own place in the cache.
        let (qkv, turns) = unsafe { (room.qkv.part_mut(of(row, layer.qkv.outs)), room.turns.part(of(row, head_dim))) };
        let (cos, sin) = turns.split_at(head_dim / 2);
        let (qk, v) = qkv.split_at_mut((heads + kv_heads) * head_dim);
        for (head, it) in qk.chunks_mut(head_dim).enumerate() {
            if let Some((q_norm, k_norm)) = &layer.qk_norm {
                wide::norm_in_place(it, if head < heads { q_norm } else { k_norm }, epsilon);
            }
            wide::turn(it, cos, sin);
        }
        let new = qk[heads * head_dim..].chunks(head_dim).zip(v.chunks(head_dim));
        for (head, (key, value)) in new.enumerate() {
            let start = (block * kv_heads + head) * head_dim * BLOCK;
            for (dim, key) in key.iter().enumerate() {
                let place = start + dim * BLOCK + lane;
                // SAFETY: as above; other lanes of this line belong to other rows, so only this number is touched.
                unsafe { keys.part_mut(place..place + 1)[0] = E::new(*key) };
            }
            let place = start + lane * head_dim;
            // SAFETY: as above.
            for (place, value) in unsafe { values.part_mut(place..place + head_dim) }.iter_mut().zip(value) {
                *place = E::new(*value);
            }
        }
    }

    /// Attention of some rows, by rows and key heads.
    fn attend<E: Element + Number>(
        &self,
        units: Range<usize>,
        batch: &Batch,
        room: &Room,
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
                // SAFETY: what a text sees was written in earlier parts, as [`Cache`] says.
                unsafe {
                    seen_keys.push(keys.part(part.clone()));
                    seen_values.push(values.part(part));
                }
            }
            let (q, out) = (row * width + head * group, row * heads * dim + head * group);
            // SAFETY: queries are only read in this part, and each thread has its own rows and heads.
            let (queries, out) = unsafe { (room.qkv.part(q..q + group), room.wide.part_mut(out..out + group)) };
            attend(queries, &Seen { keys: &seen_keys, values: &seen_values, count, dim }, &mut scores, out);
        }
    }

    /// The rotation of a position.
    fn turn_of(&self, position: u32, room: &Room, row: usize) {
        // SAFETY: each thread has its own rows.
        let turns = unsafe { room.turns.part_mut(of(row, self.config.head_dim)) };
        let (cos, sin) = turns.split_at_mut(self.config.head_dim / 2);
        for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(&self.frequencies) {
            (*sin, *cos) = (position as f32 * frequency).sin_cos();
        }
    }
}

/// Adds a panel's numbers, where there are any.
fn add_bias(y: &mut [f32], bias: Option<&[f32]>, panel: usize) {
    if let Some(bias) = bias {
        for (y, bias) in y.iter_mut().zip(&bias[panel * LANES..]) {
            *y += bias;
        }
    }
}
