//! The memory of a pass: what the way forwards keeps for the way back, and intermediate results.

use crate::device::{Device, Memory};
use crate::error::GpuError;
use crate::shape::ModelShape;
use crate::train::parameters::Linear;
use std::sync::Arc;

/// Rows of partial sums over rows.
pub(crate) const PARTS: usize = 256;

/// What is kept of a layer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LayerBuffers {
    /// The residual stream before the layer, and between attention and the gated unit, in f32.
    pub(crate) x: [u64; 2],
    /// What the norms divided by.
    pub(crate) factors: [u64; 2],
    /// The inputs of products, with the columns of adapters.
    pub(crate) inputs: [u64; 4],
    /// Query, key and value after rotation.
    pub(crate) qkv: u64,
    /// The logarithms of attention's totals.
    pub(crate) logs: u64,
    pub(crate) gate_up: u64,
}

/// Addresses.
pub(crate) struct Buffers {
    _memory: Memory,
    pub(crate) layers: Vec<LayerBuffers>,
    /// The residual stream after the last layer.
    pub(crate) x: u64,
    /// From row to row of the inputs of products.
    pub(crate) strides: [usize; 4],
    /// Of chosen rows: factors and inputs of the head.
    pub(crate) factors: u64,
    pub(crate) normed: u64,
    pub(crate) logits: u64,
    pub(crate) logit_bytes: usize,
    pub(crate) of_logits: u64,
    pub(crate) scored: u64,
    pub(crate) slopes: u64,
    /// Query, key and value before rotation, in f32.
    pub(crate) raw: u64,
    /// The gradient of the residual stream in f32 and in 16 bits.
    pub(crate) dx: u64,
    pub(crate) rounded: u64,
    /// The gradient of a product's input.
    pub(crate) wide: u64,
    pub(crate) dqkv: u64,
    pub(crate) deltas: u64,
    pub(crate) partial: u64,
}

impl Buffers {
    pub(crate) fn new(
        device: &Arc<Device>,
        shape: &ModelShape,
        rows: usize,
        head_rows: usize,
        filled_rank: usize,
    ) -> Result<Buffers, GpuError> {
        let ModelShape { hidden, intermediate, heads, layers, .. } = *shape;
        let strides = Linear::ALL.map(|linear| linear.ins(shape) + linear.outs(shape).len() * filled_rank);
        let mut end = 0;
        let mut next = |bytes: usize| {
            let start = end;
            end += bytes.next_multiple_of(256);
            start as u64
        };
        let mut layer = |_| LayerBuffers {
            x: [next(4 * rows * hidden), next(4 * rows * hidden)],
            factors: [next(4 * rows), next(4 * rows)],
            inputs: strides.map(|stride| next(2 * rows * stride)),
            qkv: next(2 * rows * shape.qkv()),
            logs: next(4 * rows * heads),
            gate_up: next(4 * rows * intermediate),
        };
        let all: Vec<LayerBuffers> = (0..layers).map(&mut layer).collect();
        let x = next(4 * rows * hidden);
        let vocabulary = shape.padded_vocabulary();
        // Timing writes results of a gradient's size here.
        let logit_bytes = 4 * vocabulary.max(2 * intermediate) * head_rows.max(hidden);
        let (factors, normed) = (next(4 * head_rows), next(2 * head_rows * hidden));
        let (logits, of_logits) = (next(logit_bytes), next(2 * head_rows * vocabulary));
        let (scored, slopes) = (next(16 * head_rows), next(4 * head_rows));
        let (raw, dx, rounded) = (next(4 * rows * shape.qkv()), next(4 * rows * hidden), next(2 * rows * hidden));
        let widest = strides.into_iter().max().unwrap_or(hidden);
        let (wide, dqkv) = (next(2 * rows * widest), next(2 * rows * shape.qkv()));
        let (deltas, partial) = (next(4 * rows * heads), next(4 * PARTS * hidden.max(shape.qkv())));
        let memory = device.take(end, "what training keeps of a pass")?;
        // What products read beyond what was written must be numbers.
        device.clear(&memory)?;
        let base = memory.at(0);
        let moved = |layer: LayerBuffers| LayerBuffers {
            x: layer.x.map(|at| base + at),
            factors: layer.factors.map(|at| base + at),
            inputs: layer.inputs.map(|at| base + at),
            qkv: base + layer.qkv,
            logs: base + layer.logs,
            gate_up: base + layer.gate_up,
        };
        Ok(Buffers {
            _memory: memory,
            layers: all.into_iter().map(moved).collect(),
            x: base + x,
            strides,
            factors: base + factors,
            normed: base + normed,
            logits: base + logits,
            logit_bytes,
            of_logits: base + of_logits,
            scored: base + scored,
            slopes: base + slopes,
            raw: base + raw,
            dx: base + dx,
            rounded: base + rounded,
            wide: base + wide,
            dqkv: base + dqkv,
            deltas: base + deltas,
            partial: base + partial,
        })
    }

    /// The residual stream before a layer, between its halves, or after the last one.
    pub(crate) fn stream(&self, layer: usize, half: usize) -> u64 {
        self.layers.get(layer).map_or(self.x, |buffers| buffers.x[half])
    }
}
