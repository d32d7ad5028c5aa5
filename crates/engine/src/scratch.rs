//! The scratch buffers that a batch is computed in. `network.rs` says which phase may read and write which buffer.

#![allow(unsafe_code)]

use crate::kernels::int8::{self, GROUP};
use crate::kernels::panels::{Input, LANES, Panels, Rounded};
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
    /// The input of a product, quantised.
    quads: SharedBuffer<i32>,
    factors: SharedBuffer<f32>,
    offsets: SharedBuffer<i32>,
    pub(crate) qkv: SharedBuffer<f32>,
    /// The rotary cosines and sines of each row: (rows, 2, D/2).
    pub(crate) rotations: SharedBuffer<f32>,
    /// (samples, vocabulary)
    pub(crate) logits: SharedBuffer<f32>,
    /// The sampled tokens; `None` where the logits are no numbers.
    pub(crate) sampled: Mutex<Vec<Option<SampledToken>>>,
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
        let groups = wide.max(hidden).div_ceil(GROUP);
        let rounded = if network.is_rounded() { rows } else { 0 };
        Some(Scratch {
            x: table(rows, hidden)?,
            narrow: table(rows, hidden)?,
            wide: table(rows, wide)?,
            quads: table(rounded, groups * LANES)?,
            factors: table(rounded, groups)?,
            offsets: table(rounded, groups)?,
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

    /// Quantises rows of `wide` for a product with this matrix.
    pub(crate) fn round_rows(&self, thread: &WorkerThread<'_>, matrix: &Panels, count: usize) {
        thread.parallel_for(count, |rows| {
            for row in rows {
                // SAFETY: only read in this phase.
                self.round_row(matrix, row, unsafe { self.wide.range(of(row, matrix.ins)) });
            }
        });
    }

    /// Quantises one row for a product with this matrix, if the matrix is quantised.
    pub(crate) fn round_row(&self, matrix: &Panels, row: usize, values: &[f32]) {
        if matrix.is_rounded() {
            let groups = of(row, matrix.ins.div_ceil(GROUP));
            // SAFETY: each thread has its own rows.
            let (quads, factors, offsets) = unsafe {
                let quads = self.quads.range_mut(groups.start * LANES..groups.end * LANES);
                (quads, self.factors.range_mut(groups.clone()), self.offsets.range_mut(groups))
            };
            int8::round(values, quads, factors, offsets);
        }
    }

    /// The input of a product: rows of this width. Only for a thread that holds a piece of the product's phase; without one,
    /// other threads may already be in the next phase.
    pub(crate) fn input<'a>(&'a self, rows: usize, width: usize, plain: &'a SharedBuffer<f32>) -> Input<'a> {
        // SAFETY: earlier phases wrote both; the phase of the product only reads them.
        unsafe {
            let rounded = Rounded { quads: self.quads.all(), factors: self.factors.all(), offsets: self.offsets.all() };
            Input { rows, plain: plain.range(0..rows * width), rounded }
        }
    }
}
