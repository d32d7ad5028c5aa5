//! The parameters of a model that is trained: what products read, in 16 bits, and what the optimiser moves, in f32.

use crate::device::{Arg, Device, Memory};
use crate::error::GpuError;
use crate::kernels::NUMBER_THREADS;
use crate::shape::{ModelShape, Part, Tensor};
use crate::train::TrainLearning;
use crate::train::kernels::TrainKernels;
use std::collections::HashMap;
use std::sync::Arc;

/// Numbers that are sent to the device at once.
const STAGED: usize = 8 << 20;

/// The products of a layer, and the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Linear {
    Qkv,
    O,
    GateUp,
    Down,
}

impl Linear {
    pub(crate) const ALL: [Linear; 4] = [Linear::Qkv, Linear::O, Linear::GateUp, Linear::Down];

    pub(crate) fn part(self) -> Part {
        match self {
            Linear::Qkv => Part::Qkv,
            Linear::O => Part::O,
            Linear::GateUp => Part::GateUp,
            Linear::Down => Part::Down,
        }
    }

    /// The width of its input.
    pub(crate) fn ins(self, shape: &ModelShape) -> usize {
        match self {
            Linear::Qkv | Linear::GateUp => shape.hidden,
            Linear::O => shape.heads * shape.head_dim,
            Linear::Down => shape.intermediate,
        }
    }

    /// The widths of what is stacked in its output: each has an adapter of its own.
    pub(crate) fn outs(self, shape: &ModelShape) -> Vec<usize> {
        let (q, kv) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        match self {
            Linear::Qkv => vec![q, kv, kv],
            Linear::O | Linear::Down => vec![shape.hidden],
            Linear::GateUp => vec![shape.intermediate; 2],
        }
    }
}

/// A matrix of an adapter: the first one, which narrows, or the second one, which widens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AdapterMatrix {
    pub layer: usize,
    /// The stacked matrix that it belongs to: `Qkv`, `O`, `GateUp` or `Down`.
    pub part: Part,
    /// Which of those that are stacked.
    pub of_stack: usize,
    /// Whether it is the second one.
    pub widens: bool,
}

/// Where a tensor is. Offsets are in numbers.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: usize,
    rows: usize,
    width: usize,
    /// From row to row.
    stride: usize,
    is_matrix: bool,
}

/// Where an adapter's matrix is among what the optimiser moves: with the rank filled up.
#[derive(Debug, Clone, Copy)]
struct AdapterPlace {
    at: usize,
    rows: usize,
    width: usize,
    filled: usize,
}

/// An adapter that is to be added to rows of a matrix. Rows of the first matrix, and columns of the second, are filled up.
pub(crate) struct Merge {
    pub(crate) tensor: Tensor,
    pub(crate) first_row: usize,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) rank: usize,
    pub(crate) first: u64,
    pub(crate) second: u64,
    pub(crate) scale: f32,
}

pub(crate) struct Parameters {
    device: Arc<Device>,
    places: HashMap<Tensor, Place>,
    adapters: HashMap<AdapterMatrix, AdapterPlace>,
    /// All matrices in 16 bits, those with adapters with further columns.
    weights: Memory,
    /// Vectors in f32, where they are not trained.
    vectors: Memory,
    /// What the optimiser moves, its gradients, and its two means.
    pub(crate) values: Memory,
    pub(crate) gradients: Memory,
    pub(crate) means: Memory,
    pub(crate) squares: Memory,
    /// What it moves, in 16 bits, where that is not in `weights`.
    rounded: Option<Memory>,
    /// Where the second matrices of adapters are written to.
    copies: Option<(Memory, usize)>,
    staged: Memory,
    /// Numbers that the optimiser moves, and those of them that decay: the first ones.
    pub(crate) count: usize,
    pub(crate) decayed: usize,
    pub(crate) learning: TrainLearning,
}

impl Parameters {
    pub(crate) fn new(
        device: &Arc<Device>,
        shape: &ModelShape,
        learning: TrainLearning,
    ) -> Result<Parameters, GpuError> {
        let filled = learning.filled_rank();
        let (mut places, mut end) = (HashMap::new(), 0usize);
        let is_matrix = |tensor: Tensor| {
            matches!(
                tensor,
                Tensor::Embedding | Tensor::Head | Tensor::Layer(_, Part::Qkv | Part::O | Part::GateUp | Part::Down)
            )
        };
        for (tensor, rows, width) in shape.tensors().into_iter().filter(|it| is_matrix(it.0)) {
            let linear =
                Linear::ALL.into_iter().find(|it| matches!(tensor, Tensor::Layer(_, part) if part == it.part()));
            let stride = width + linear.map_or(0, |it| it.outs(shape).len() * filled);
            places.insert(tensor, Place { at: end, rows, width, stride, is_matrix: true });
            let held = if linear.is_none() { shape.padded_vocabulary() } else { rows };
            end = (end + held * stride).next_multiple_of(128);
        }
        let matrices = end;
        let everything = learning == TrainLearning::Everything;
        let mut end = if everything { matrices } else { 0 };
        for (tensor, rows, width) in shape.tensors().into_iter().filter(|it| !is_matrix(it.0)) {
            places.insert(tensor, Place { at: end, rows, width, stride: width, is_matrix: false });
            end = (end + rows * width).next_multiple_of(128);
        }
        let (vectors, mut count) = if everything { (0, end) } else { (end, 0) };
        let (mut adapters, mut copies) = (HashMap::new(), Vec::new());
        if let TrainLearning::Adapters { rank, .. } = learning {
            for (layer, linear) in (0..shape.layers).flat_map(|layer| Linear::ALL.map(|linear| (layer, linear))) {
                let (ins, part) = (linear.ins(shape), linear.part());
                let matrix = |of_stack, widens| AdapterMatrix { layer, part, of_stack, widens };
                let outs = linear.outs(shape);
                for of_stack in 0..outs.len() {
                    let place = AdapterPlace { at: count, rows: rank, width: ins, filled };
                    adapters.insert(matrix(of_stack, false), place);
                    count += filled * ins;
                }
                count = count.next_multiple_of(128);
                let of_weight = places.get(&Tensor::Layer(layer, part)).copied();
                let mut row = 0;
                for (of_stack, rows) in outs.into_iter().enumerate() {
                    adapters.insert(matrix(of_stack, true), AdapterPlace { at: count, rows, width: rank, filled });
                    if let Some(place) = of_weight {
                        let to = place.at + row * place.stride + ins + of_stack * filled;
                        copies.push(CopyWords {
                            from: count as u64,
                            to: to as u64,
                            rows,
                            filled,
                            stride: place.stride,
                        });
                    }
                    count = (count + rows * filled).next_multiple_of(128);
                    row += rows;
                }
            }
        }
        let pool = |bytes: usize, what| {
            let memory = device.take(bytes, what)?;
            device.clear(&memory)?;
            Ok::<_, GpuError>(memory)
        };
        let in_16_bits = if everything { count } else { matrices };
        let rounded = if everything { None } else { Some(pool(2 * count, "adapters")?) };
        let copies = match copies.is_empty() {
            true => None,
            false => {
                let words: Vec<u32> = copies.iter().flat_map(CopyWords::words).collect();
                let memory = device.take(4 * words.len(), "adapters")?;
                device.write(memory.at(0), &words)?;
                Some((memory, copies.len()))
            }
        };
        Ok(Parameters {
            weights: pool(2 * in_16_bits, "the weights")?,
            vectors: pool(4 * vectors, "the weights")?,
            values: pool(4 * count, "the values that are trained")?,
            gradients: pool(4 * count, "gradients")?,
            means: pool(4 * count, "the optimiser")?,
            squares: pool(4 * count, "the optimiser")?,
            staged: device.take(4 * STAGED, "loading weights")?,
            rounded,
            copies,
            count,
            decayed: if everything { matrices } else { count },
            learning,
            adapters,
            places,
            device: device.clone(),
        })
    }

    fn place(&self, tensor: Tensor) -> Result<Place, GpuError> {
        self.places.get(&tensor).copied().ok_or_else(|| GpuError::Request(format!("there is no {tensor:?}")))
    }

    fn is_trained(&self) -> bool {
        self.learning == TrainLearning::Everything
    }

    /// The address of a tensor as products and norms read it; 0: there is none.
    pub(crate) fn at(&self, tensor: Tensor) -> u64 {
        match self.places.get(&tensor) {
            None => 0,
            Some(place) if place.is_matrix => self.weights.at(2 * place.at),
            Some(place) if self.is_trained() => self.values.at(4 * place.at),
            Some(place) => self.vectors.at(4 * place.at),
        }
    }

    /// The address of a tensor's gradient, where it is trained.
    pub(crate) fn gradient(&self, tensor: Tensor) -> Option<u64> {
        let place = self.places.get(&tensor).filter(|_| self.is_trained())?;
        Some(self.gradients.at(4 * place.at))
    }

    /// The address in 16 bits of an adapter's first matrices, stacked, and of the gradient.
    pub(crate) fn narrowing(&self, layer: usize, part: Part) -> Option<(u64, u64)> {
        let place = self.adapters.get(&AdapterMatrix { layer, part, of_stack: 0, widens: false })?;
        Some((self.rounded.as_ref()?.at(2 * place.at), self.gradients.at(4 * place.at)))
    }

    /// The address of the gradient of an adapter's second matrix.
    pub(crate) fn widening(&self, layer: usize, part: Part, of_stack: usize) -> Option<u64> {
        let place = self.adapters.get(&AdapterMatrix { layer, part, of_stack, widens: true })?;
        Some(self.gradients.at(4 * place.at))
    }

    /// Where the optimiser writes values in 16 bits.
    pub(crate) fn rounded_at(&self) -> u64 {
        self.rounded.as_ref().map_or(self.weights.at(0), |memory| memory.at(0))
    }

    /// Queues the writing of adapters beside the matrices that they belong to.
    pub(crate) fn place_adapters(&self, kernels: &TrainKernels) -> Result<(), GpuError> {
        let Some((copies, count)) = &self.copies else { return Ok(()) };
        let args = [
            Arg::At(self.weights.at(0)),
            Arg::At(self.values.at(0)),
            Arg::At(copies.at(0)),
            Arg::F32(self.learning.scale()),
        ];
        self.device.launch(&kernels.place, (16, *count), NUMBER_THREADS, 0, &args)
    }

    /// Queues the rounding of everything that is trained.
    pub(crate) fn round_all(&self, kernels: &TrainKernels) -> Result<(), GpuError> {
        if let Some(rounded) = &self.rounded {
            // As one row of one number after another.
            let args = [
                Arg::At(rounded.at(0)),
                Arg::U32(1),
                Arg::At(self.values.at(0)),
                Arg::U64(self.count as u64),
                Arg::U32(1),
            ];
            self.device.launch(&kernels.round, (1_024, 1), NUMBER_THREADS, 0, &args)?;
        }
        self.place_adapters(kernels)
    }

    /// Writes rows of a tensor from the `first` on.
    pub(crate) fn write(
        &self,
        kernels: &TrainKernels,
        tensor: Tensor,
        first: usize,
        values: &[f32],
    ) -> Result<(), GpuError> {
        let place = self.place(tensor)?;
        let count = values.len() / place.width;
        if count * place.width != values.len() || first + count > place.rows {
            let (found, Place { rows, width, .. }) = (values.len(), place);
            return Err(GpuError::Request(format!(
                "{tensor:?} has {rows} rows of {width}; found {found} numbers for row {first}"
            )));
        }
        if !place.is_matrix || self.is_trained() {
            let memory = if self.is_trained() { &self.values } else { &self.vectors };
            self.device.write(memory.at(4 * (place.at + first * place.width)), values)?;
        }
        if place.is_matrix {
            let rows_at_once = (STAGED / place.width).max(1);
            for (part, values) in values.chunks(rows_at_once * place.width).enumerate() {
                let to = self.weights.at(2 * (place.at + (first + part * rows_at_once) * place.stride));
                self.device.write(self.staged.at(0), values)?;
                let rows = values.len() / place.width;
                let args = [
                    Arg::At(to),
                    Arg::U32(place.stride as u32),
                    Arg::At(self.staged.at(0)),
                    Arg::U64(rows as u64),
                    Arg::U32(place.width as u32),
                ];
                self.device.launch(&kernels.round, (1_024, 1), NUMBER_THREADS, 0, &args)?;
                self.device.wait()?;
            }
        }
        Ok(())
    }

    fn adapter(&self, matrix: AdapterMatrix) -> Result<AdapterPlace, GpuError> {
        self.adapters.get(&matrix).copied().ok_or_else(|| GpuError::Request(format!("there is no {matrix:?}")))
    }

    /// Writes a matrix of an adapter into one of the pools.
    pub(crate) fn write_adapter(&self, pool: &Memory, matrix: AdapterMatrix, values: &[f32]) -> Result<(), GpuError> {
        let place = self.adapter(matrix)?;
        if values.len() != place.rows * place.width {
            let (found, AdapterPlace { rows, width, .. }) = (values.len(), place);
            return Err(GpuError::Request(format!("{matrix:?} has {rows} rows of {width}; found {found} numbers")));
        }
        let filled: Vec<f32> = match matrix.widens {
            false => values.to_vec(),
            true => {
                let row = |row: &[f32]| {
                    let mut row = row.to_vec();
                    row.resize(place.filled, 0.0);
                    row
                };
                values.chunks(place.width).flat_map(row).collect()
            }
        };
        self.device.write(pool.at(4 * place.at), &filled)
    }

    /// A matrix of an adapter out of one of the pools.
    pub(crate) fn read_adapter(&self, pool: &Memory, matrix: AdapterMatrix) -> Result<Vec<f32>, GpuError> {
        let place = self.adapter(matrix)?;
        let stride = if matrix.widens { place.filled } else { place.width };
        let mut values = vec![0f32; place.rows * stride];
        self.device.read(&mut values, pool.at(4 * place.at))?;
        Ok(values.chunks(stride.max(1)).flat_map(|row| &row[..place.width]).copied().collect())
    }

    /// Writes a tensor that is trained into one of the pools.
    pub(crate) fn write_tensor(&self, pool: &Memory, tensor: Tensor, values: &[f32]) -> Result<(), GpuError> {
        let place = self.place(tensor)?;
        if !self.is_trained() || values.len() != place.rows * place.width {
            return Err(GpuError::Request(format!("{} numbers cannot be kept of {tensor:?}", values.len())));
        }
        self.device.write(pool.at(4 * place.at), values)
    }

    /// All matrices of adapters, in a fixed order.
    pub(crate) fn adapter_matrices(&self) -> Vec<AdapterMatrix> {
        let mut all: Vec<AdapterMatrix> = self.adapters.keys().copied().collect();
        all.sort_by_key(|matrix| self.adapters.get(matrix).map(|place| place.at));
        all
    }

    /// The addresses of everything that is trained but adapters.
    pub(crate) fn trained(&self) -> Vec<(Tensor, u64)> {
        let places = self.places.iter().filter(|_| self.is_trained());
        places.map(|(tensor, place)| (*tensor, self.values.at(4 * place.at))).collect()
    }

    /// What adapters add to which matrices.
    pub(crate) fn merges(&self, shape: &ModelShape) -> Vec<Merge> {
        let merge = |(matrix, second): (&AdapterMatrix, &AdapterPlace)| {
            let first = self.adapters.get(&AdapterMatrix { widens: false, ..*matrix })?;
            let linear = Linear::ALL.into_iter().find(|it| it.part() == matrix.part)?;
            Some(Merge {
                tensor: Tensor::Layer(matrix.layer, matrix.part),
                first_row: linear.outs(shape).iter().take(matrix.of_stack).sum(),
                rows: second.rows,
                width: first.width,
                rank: second.filled,
                first: self.values.at(4 * first.at),
                second: self.values.at(4 * second.at),
                scale: self.learning.scale(),
            })
        };
        self.adapters.iter().filter(|(matrix, _)| matrix.widens).filter_map(merge).collect()
    }

    /// A tensor that is trained, out of one of the pools.
    pub(crate) fn read_tensor(&self, pool: &Memory, tensor: Tensor) -> Result<Vec<f32>, GpuError> {
        let place = self.place(tensor)?;
        if !self.is_trained() {
            return Err(GpuError::Request(format!("{tensor:?} is not trained")));
        }
        let mut values = vec![0f32; place.rows * place.width];
        self.device.read(&mut values, pool.at(4 * place.at))?;
        Ok(values)
    }

    /// Fills everything with random numbers of a usual size, for measurements.
    pub(crate) fn randomise(&self, kernels: &TrainKernels, seed: u32) -> Result<(), GpuError> {
        for (number, (tensor, place)) in (0u32..).zip(&self.places) {
            if !place.is_matrix {
                let is_bias = matches!(tensor, Tensor::Layer(_, Part::QkvBias | Part::OBias));
                let value = if is_bias { 0.0f32 } else { 1.0 };
                self.device.write(self.at(*tensor), &vec![value; place.rows * place.width])?;
                continue;
            }
            // Uniform numbers with the variance 1 / width.
            let most = (3.0 / place.width as f32).sqrt();
            let seed = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9));
            let count = (place.rows * place.stride) as u64;
            let args = [Arg::At(self.at(*tensor)), Arg::U64(count), Arg::F32(most), Arg::U32(seed)];
            self.device.launch(&kernels.fill_random, (4_096, 1), NUMBER_THREADS, 0, &args)?;
            if self.is_trained() {
                let values = [Arg::At(self.values.at(4 * place.at)), Arg::At(self.at(*tensor)), Arg::U64(count)];
                self.device.launch(&kernels.widen, (4_096, 1), NUMBER_THREADS, 0, &values)?;
            }
        }
        for (matrix, place) in self.adapters.iter().filter(|it| !it.0.widens) {
            let most = (3.0 / place.width as f32).sqrt();
            let value = |at: usize| ((at * 7_919 + matrix.layer * 31) % 2_001) as f32 / 1_000.0 - 1.0;
            let values: Vec<f32> = (0..place.rows * place.width).map(|at| most * value(at)).collect();
            self.write_adapter(&self.values, *matrix, &values)?;
        }
        self.round_all(kernels)?;
        self.device.wait()
    }
}

/// A copy as the kernel has it.
struct CopyWords {
    from: u64,
    to: u64,
    rows: usize,
    filled: usize,
    stride: usize,
}

impl CopyWords {
    fn words(&self) -> [u32; 8] {
        let CopyWords { from, to, .. } = *self;
        let [rows, filled, stride] = [self.rows, self.filled, self.stride].map(|it| it as u32);
        [from as u32, (from >> 32) as u32, to as u32, (to >> 32) as u32, rows, filled, stride, 0]
    }
}
