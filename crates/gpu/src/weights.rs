//! The weights of a model on the device: matrices in 16 bits, vectors in f32.

use crate::device::{Arg, Device, Memory};
use crate::error::GpuError;
use crate::kernels::{Kernels, NUMBER_THREADS};
use crate::shape::{ModelShape, Part, Tensor};
use std::collections::HashMap;
use std::sync::Arc;

/// Numbers that are sent to the device at once.
const STAGED: usize = 8 << 20;

pub(crate) struct Weights {
    device: Arc<Device>,
    memory: Memory,
    staged: Memory,
    places: HashMap<Tensor, Place>,
    /// Rows of each tensor that were written.
    written: HashMap<Tensor, usize>,
    pub(crate) layers: Vec<LayerWeights>,
    pub(crate) embedding: u64,
    pub(crate) head: u64,
    pub(crate) norm: u64,
}

#[derive(Clone, Copy)]
struct Place {
    byte: usize,
    rows: usize,
    width: usize,
    is_matrix: bool,
}

/// The addresses of a layer's tensors; 0: it has none.
#[derive(Clone, Copy)]
pub(crate) struct LayerWeights {
    pub(crate) input_norm: u64,
    pub(crate) qkv: u64,
    pub(crate) qkv_bias: u64,
    pub(crate) q_norm: u64,
    pub(crate) k_norm: u64,
    pub(crate) o: u64,
    pub(crate) o_bias: u64,
    pub(crate) post_norm: u64,
    pub(crate) gate_up: u64,
    pub(crate) down: u64,
}

impl Weights {
    pub(crate) fn new(device: &Arc<Device>, shape: &ModelShape) -> Result<Weights, GpuError> {
        let (mut places, mut end) = (HashMap::new(), 0);
        for (tensor, rows, width) in shape.tensors() {
            let is_matrix = matches!(
                tensor,
                Tensor::Embedding | Tensor::Head | Tensor::Layer(_, Part::Qkv | Part::O | Part::GateUp | Part::Down)
            );
            places.insert(tensor, Place { byte: end, rows, width, is_matrix });
            let of_tokens = matches!(tensor, Tensor::Embedding | Tensor::Head);
            let held = if of_tokens { shape.padded_vocabulary() } else { rows };
            end += (held * width * if is_matrix { 2 } else { 4 }).next_multiple_of(256);
        }
        let memory = device.take(end, "the weights")?;
        // Rows of the head beyond the vocabulary are zeros.
        device.clear(&memory)?;
        let at = |tensor| places.get(&tensor).map_or(0, |place: &Place| memory.at(place.byte));
        let layer = |layer| {
            let at = |part| at(Tensor::Layer(layer, part));
            LayerWeights {
                input_norm: at(Part::InputNorm),
                qkv: at(Part::Qkv),
                qkv_bias: at(Part::QkvBias),
                q_norm: at(Part::QNorm),
                k_norm: at(Part::KNorm),
                o: at(Part::O),
                o_bias: at(Part::OBias),
                post_norm: at(Part::PostNorm),
                gate_up: at(Part::GateUp),
                down: at(Part::Down),
            }
        };
        Ok(Weights {
            layers: (0..shape.layers).map(layer).collect(),
            embedding: at(Tensor::Embedding),
            head: at(if shape.tied { Tensor::Embedding } else { Tensor::Head }),
            norm: at(Tensor::Norm),
            staged: device.take(4 * STAGED, "loading weights")?,
            written: HashMap::new(),
            device: device.clone(),
            memory,
            places,
        })
    }

    /// All weights.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Where a tensor begins, in bytes, how many numbers it has, and whether it is a matrix.
    pub(crate) fn place(&self, tensor: Tensor) -> Option<(usize, usize, bool)> {
        self.places.get(&tensor).map(|place| (place.byte, place.rows * place.width, place.is_matrix))
    }

    /// Counts a tensor as written.
    pub(crate) fn mark_written(&mut self, tensor: Tensor) {
        if let Some(place) = self.places.get(&tensor) {
            self.written.insert(tensor, place.rows);
        }
    }

    /// Bytes of all weights.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Writes rows of a tensor from the `first` on.
    pub(crate) fn write(
        &mut self,
        kernels: &Kernels,
        tensor: Tensor,
        first: usize,
        values: &[f32],
    ) -> Result<(), GpuError> {
        let place = *self.places.get(&tensor).ok_or_else(|| GpuError::Request(format!("there is no {tensor:?}")))?;
        let rows = values.len() / place.width;
        if rows * place.width != values.len() || first + rows > place.rows {
            let (found, Place { rows, width, .. }) = (values.len(), place);
            return Err(GpuError::Request(format!(
                "{tensor:?} has {rows} rows of {width}; found {found} numbers for row {first}"
            )));
        }
        let (start, size) = (first * place.width, if place.is_matrix { 2 } else { 4 });
        for (part, values) in values.chunks(STAGED).enumerate() {
            let to = self.memory.at(place.byte + (start + part * STAGED) * size);
            if place.is_matrix {
                self.device.write(self.staged.at(0), values)?;
                let args = [Arg::At(to), Arg::At(self.staged.at(0)), Arg::U64(values.len() as u64)];
                let blocks = values.len().div_ceil(NUMBER_THREADS as usize);
                self.device.launch(&kernels.round_to, (blocks, 1), NUMBER_THREADS, 0, &args)?;
            } else {
                self.device.write(to, values)?;
            }
        }
        *self.written.entry(tensor).or_insert(0) += rows;
        Ok(())
    }

    /// A tensor of which not all rows were written.
    pub(crate) fn missing(&self) -> Option<Tensor> {
        let lacks = |(tensor, place): (&Tensor, &Place)| {
            (self.written.get(tensor).copied().unwrap_or(0) < place.rows).then_some(*tensor)
        };
        self.places.iter().find_map(lacks)
    }

    /// Fills everything with random numbers of a usual size, for measurements.
    pub(crate) fn randomise(&mut self, kernels: &Kernels, seed: u32) -> Result<(), GpuError> {
        for (number, (tensor, place)) in (0u32..).zip(self.places.clone()) {
            let count = place.rows * place.width;
            if place.is_matrix {
                // Uniform numbers with the variance 1 / width.
                let most = (3.0 / place.width as f32).sqrt();
                let seed = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9));
                let args =
                    [Arg::At(self.memory.at(place.byte)), Arg::U64(count as u64), Arg::F32(most), Arg::U32(seed)];
                self.device.launch(&kernels.fill_random, (4_096, 1), NUMBER_THREADS, 0, &args)?;
            } else {
                let is_bias = matches!(tensor, Tensor::Layer(_, Part::QkvBias | Part::OBias));
                self.device.write(self.memory.at(place.byte), &vec![if is_bias { 0.0f32 } else { 1.0 }; count])?;
            }
            self.written.insert(tensor, place.rows);
        }
        self.device.wait()
    }
}
