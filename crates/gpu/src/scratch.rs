//! The memory of a step's intermediate results, and the table of rotations.

use crate::device::{Device, Memory};
use crate::error::GpuError;
use crate::shape::ModelShape;
use std::sync::Arc;

/// Addresses of intermediate results.
pub(crate) struct Scratch {
    _memory: Memory,
    pub(crate) x: u64,
    pub(crate) normed: u64,
    pub(crate) qkv: u64,
    pub(crate) q: u64,
    pub(crate) attended: u64,
    pub(crate) gate_up: u64,
    pub(crate) gated: u64,
    pub(crate) logits: u64,
}

impl Scratch {
    pub(crate) fn new(
        device: &Arc<Device>,
        shape: &ModelShape,
        rows: usize,
        logit_rows: usize,
    ) -> Result<Scratch, GpuError> {
        let ModelShape { hidden, intermediate, heads, head_dim, .. } = *shape;
        let mut end = 0;
        let mut next = |bytes: usize| {
            let start = end;
            end += bytes.next_multiple_of(256);
            start
        };
        let x = next(4 * rows * hidden);
        let normed = next(2 * rows * hidden);
        let qkv = next(4 * rows * shape.qkv());
        let q = next(2 * rows * heads * head_dim);
        let attended = next(2 * rows * heads * head_dim);
        let gate_up = next(4 * rows * intermediate);
        let gated = next(2 * rows * intermediate);
        let logits = next(4 * logit_rows * shape.padded_vocabulary());
        let memory = device.take(end, "intermediate results")?;
        // Algorithms are timed on what is there: it must be numbers.
        device.clear(&memory)?;
        let at = |byte| memory.at(byte);
        let (x, normed, qkv, q) = (at(x), at(normed), at(qkv), at(q));
        let (attended, gate_up, gated, logits) = (at(attended), at(gate_up), at(gated), at(logits));
        Ok(Scratch { _memory: memory, x, normed, qkv, q, attended, gate_up, gated, logits })
    }
}

/// The cosine and sine of each position and frequency, as the CPU computes them.
pub(crate) fn rotation_table(shape: &ModelShape, positions: usize) -> Vec<[f32; 2]> {
    let of_position = |position: usize| {
        shape.frequencies.iter().map(move |frequency| {
            let (sin, cos) = (position as f32 * frequency).sin_cos();
            [cos, sin]
        })
    };
    (0..positions).flat_map(of_position).collect()
}
