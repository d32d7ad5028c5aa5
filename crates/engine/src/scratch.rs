//! The scratch buffers that a batch is computed in. `network.rs` says which phase may read and write which buffer.

#![allow(unsafe_code)]

use crate::kernels::panels::{Input, LANES, Rounded, Rounding};
use crate::network::Network;
use crate::sampling::SampledToken;
use crate::shared_buffer::{Number, SharedBuffer};
use crate::thread_pool::WorkerThread;
use std::ops::Range;
use std::sync::Mutex;

/// The buffers of one batch.
pub(crate) struct Scratch {
    /// The residual stream: (rows, hidden).
    pub(crate) x: SharedBuffer<f32>,
    /// The normalised input of a product: (rows, hidden).
    pub(crate) narrow: SharedBuffer<f32>,
    /// The output of attention or of the gated unit: (rows, heads · D) or (rows, intermediate).
    pub(crate) wide: SharedBuffer<f32>,
    /// The input of a product, quantised; by [`Rounding`].
    rounded: [RoundedRows; 2],
    pub(crate) qkv: SharedBuffer<f32>,
    /// The rotary cosines and sines of each row: (rows, 2, D/2).
    pub(crate) rotations: SharedBuffer<f32>,
    /// (samples, vocabulary)
    pub(crate) logits: SharedBuffer<f32>,
    /// The sampled tokens; `None` where the logits are no numbers.
    pub(crate) sampled: Mutex<Vec<Option<SampledToken>>>,
}

/// Rows that are quantised in one way.
struct RoundedRows {
    quads: SharedBuffer<i32>,
    factors: SharedBuffer<f32>,
    offsets: SharedBuffer<i32>,
}

impl RoundedRows {
    fn new(rounding: Rounding, rows: usize, ins: usize) -> Option<RoundedRows> {
        let (quads, factors, offsets) = rounding.sizes(ins);
        Some(RoundedRows { quads: table(rows, quads)?, factors: table(rows, factors)?, offsets: table(rows, offsets)? })
    }
}

/// The numbers of a row.
pub(crate) fn of(row: usize, width: usize) -> Range<usize> {
    row * width..(row + 1) * width
}

/// The numbers of a row that a panel computes; the last panel may reach beyond the row.
pub(crate) fn cell(row: usize, panel: usize, width: usize) -> Range<usize> {
    row * width + panel * LANES..row * width + ((panel + 1) * LANES).min(width)
}

/// A buffer of (rows, width); `None` if there is not enough memory.
pub(crate) fn table<T: Number>(rows: usize, width: usize) -> Option<SharedBuffer<T>> {
    SharedBuffer::new(rows.checked_mul(width)?)
}

impl Scratch {
    /// Buffers for batches of so many rows and samples; `None` if there is not enough memory.
    pub(crate) fn new(network: &Network, rows: usize, samples: usize) -> Option<Scratch> {
        let config = &network.config;
        let (hidden, heads) = (config.hidden, config.heads * config.head_dim);
        let wide = heads.max(config.intermediate);
        let rounded = |rounding: Rounding| {
            RoundedRows::new(rounding, if network.needs(rounding) { rows } else { 0 }, wide.max(hidden))
        };
        let [of_64, of_32] = Rounding::ALL.map(rounded);
        Some(Scratch {
            x: table(rows, hidden)?,
            narrow: table(rows, hidden)?,
            wide: table(rows, wide)?,
            rounded: [of_64?, of_32?],
            qkv: table(rows, heads + 2 * config.kv_heads * config.head_dim)?,
            rotations: table(rows, config.head_dim)?,
            logits: table(samples, config.vocabulary)?,
            sampled: Mutex::new(vec![None; samples]),
        })
    }

    /// The logits of a sample.
    #[cfg(test)]
    pub(crate) fn logits_of(&mut self, sample: usize, vocabulary: usize) -> Vec<f32> {
        // SAFETY: `&mut self`: no other thread has it.
        unsafe { self.logits.range(of(sample, vocabulary)) }.to_vec()
    }

    /// Quantises rows of `wide`, of this width, for a product.
    pub(crate) fn round_rows(&self, thread: &WorkerThread<'_>, rounding: Option<Rounding>, width: usize, count: usize) {
        thread.parallel_for(count, |rows| {
            for row in rows {
                // SAFETY: only read in this phase.
                self.round_row(rounding, row, unsafe { self.wide.range(of(row, width)) });
            }
        });
    }

    /// Quantises one row for products that need it.
    pub(crate) fn round_row(&self, roundings: impl IntoIterator<Item = Rounding>, row: usize, values: &[f32]) {
        for rounding in roundings {
            let RoundedRows { quads, factors, offsets } = &self.rounded[rounding as usize];
            let sizes = rounding.sizes(values.len());
            // SAFETY: each thread has its own rows.
            let (quads, factors, offsets) = unsafe {
                (
                    quads.range_mut(of(row, sizes.0)),
                    factors.range_mut(of(row, sizes.1)),
                    offsets.range_mut(of(row, sizes.2)),
                )
            };
            rounding.round(values, quads, factors, offsets);
        }
    }

    /// The input of a product: rows of this width. Only for a thread that holds a piece of the product's phase; without one,
    /// other threads may already be in the next phase.
    pub(crate) fn input<'a>(&'a self, rows: usize, width: usize, plain: &'a SharedBuffer<f32>) -> Input<'a> {
        let rounded = |rows: &'a RoundedRows| {
            // SAFETY: earlier phases wrote them; the phase of the product only reads them.
            unsafe { Rounded { quads: rows.quads.all(), factors: rows.factors.all(), offsets: rows.offsets.all() } }
        };
        // SAFETY: as above.
        let plain = unsafe { plain.range(0..rows * width) };
        Input { rows, plain, rounded: self.rounded.each_ref().map(rounded) }
    }
}
