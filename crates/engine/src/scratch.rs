//! Where a step is computed: buffers for its rows, and the keys and values of all texts. What may be read and written when is
//! said in `network.rs`.

#![allow(unsafe_code)]

use super::choose::Drawn;
use super::crew::{Common, Member, Number};
use super::network::Network;
use crate::config::ModelConfig;
use crate::ops::int8::{self, GROUP};
use crate::ops::paged::BLOCK;
use crate::ops::panels::{Input, LANES, Panels, Rounded};
use std::ops::Range;
use std::sync::Mutex;

/// Everything a batch is computed in.
pub(super) struct Room {
    /// What flows from layer to layer: (rows, hidden).
    pub(super) x: Common<f32>,
    /// Normed, on the way into a product: (rows, hidden).
    pub(super) narrow: Common<f32>,
    /// Attended, or gated: (rows, heads · D) or (rows, intermediate).
    pub(super) wide: Common<f32>,
    /// What goes into a product, rounded.
    quads: Common<i32>,
    factors: Common<f32>,
    offsets: Common<i32>,
    pub(super) qkv: Common<f32>,
    /// The cosines and sines of each row: (rows, 2, D/2).
    pub(super) turns: Common<f32>,
    /// (draws, vocabulary)
    pub(super) logits: Common<f32>,
    /// What was drawn; `None` where the logits are no numbers.
    pub(super) drawn: Mutex<Vec<Option<Drawn>>>,
}

/// The keys and values of each layer: (blocks, key heads, D, 16) and (blocks, key heads, 16, D).
///
/// A row's keys and values are written by the thread that computes the row. They are read for rows of the same text, whose
/// thread is the same or in a later part of the step, and for other texts only in later steps.
pub(super) enum Cache {
    /// As they are.
    F32(Vec<Pair<f32>>),
    /// In bf16, where weights are in 8 bits: reading them is what many texts at once wait for.
    Bf16(Vec<Pair<u16>>),
}

/// The keys and the values of a layer.
pub(super) type Pair<E> = (Common<E>, Common<E>);

/// The numbers of a row.
pub(super) fn of(row: usize, width: usize) -> Range<usize> {
    row * width..(row + 1) * width
}

/// The numbers of a row that a panel computes; the last panel may reach beyond the row.
pub(super) fn cell(row: usize, panel: usize, width: usize) -> Range<usize> {
    row * width + panel * LANES..row * width + ((panel + 1) * LANES).min(width)
}

impl Cache {
    /// Room for so many blocks; the system gives memory only to those that are used. `None`: there is none.
    pub(super) fn new(network: &Network, blocks: usize) -> Option<Cache> {
        let config = &network.config;
        Some(if network.is_rounded() {
            Cache::Bf16(pairs(config, blocks)?)
        } else {
            Cache::F32(pairs(config, blocks)?)
        })
    }
}

/// Keys and values of all layers.
fn pairs<E: Number>(config: &ModelConfig, blocks: usize) -> Option<Vec<Pair<E>>> {
    let width = BLOCK * config.kv_heads * config.head_dim;
    (0..config.layers).map(|_| Some((table(blocks, width)?, table(blocks, width)?))).collect()
}

/// So many rows of a width; `None` if there is no memory for them.
fn table<T: Number>(rows: usize, width: usize) -> Option<Common<T>> {
    Common::new(rows.checked_mul(width)?)
}

impl Room {
    /// Room for batches of so many rows and draws; `None` if there is no memory for it.
    pub(super) fn new(network: &Network, rows: usize, draws: usize) -> Option<Room> {
        let config = &network.config;
        let (hidden, heads) = (config.hidden, config.heads * config.head_dim);
        let wide = heads.max(config.intermediate);
        let groups = wide.max(hidden).div_ceil(GROUP);
        let rounded = if network.is_rounded() { rows } else { 0 };
        Some(Room {
            x: table(rows, hidden)?,
            narrow: table(rows, hidden)?,
            wide: table(rows, wide)?,
            quads: table(rounded, groups * LANES)?,
            factors: table(rounded, groups)?,
            offsets: table(rounded, groups)?,
            qkv: table(rows, heads + 2 * config.kv_heads * config.head_dim)?,
            turns: table(rows, config.head_dim)?,
            logits: table(draws, config.vocabulary)?,
            drawn: Mutex::new(vec![None; draws]),
        })
    }

    /// The logits of a draw, for tests.
    #[cfg(test)]
    pub(super) fn logits_of(&mut self, draw: usize, vocabulary: usize) -> Vec<f32> {
        // SAFETY: nobody else has it.
        unsafe { self.logits.part(of(draw, vocabulary)) }.to_vec()
    }

    /// Rounds rows of `wide` for a product with this matrix.
    pub(super) fn round_rows(&self, me: &Member<'_>, matrix: &Panels, count: usize) {
        me.each(count, |rows| {
            for row in rows {
                // SAFETY: only read in this part.
                self.round_row(matrix, row, unsafe { self.wide.part(of(row, matrix.ins)) });
            }
        });
    }

    /// Rounds one row for a product with this matrix, if that is rounded.
    pub(super) fn round_row(&self, matrix: &Panels, row: usize, values: &[f32]) {
        if matrix.is_rounded() {
            let groups = of(row, matrix.ins.div_ceil(GROUP));
            // SAFETY: each thread has its own rows.
            let (quads, factors, offsets) = unsafe {
                let quads = self.quads.part_mut(groups.start * LANES..groups.end * LANES);
                (quads, self.factors.part_mut(groups.clone()), self.offsets.part_mut(groups))
            };
            int8::round(values, quads, factors, offsets);
        }
    }

    /// Rows of this width, to be multiplied; only for a thread that has taken some of the work, since others may be ahead.
    pub(super) fn input<'a>(&'a self, rows: usize, width: usize, plain: &'a Common<f32>) -> Input<'a> {
        // SAFETY: earlier parts wrote both; in the part that multiplies them they are only read.
        unsafe {
            let rounded = Rounded { quads: self.quads.all(), factors: self.factors.all(), offsets: self.offsets.all() };
            Input { rows, plain: plain.part(0..rows * width), rounded }
        }
    }
}
