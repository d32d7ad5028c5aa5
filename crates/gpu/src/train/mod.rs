//! Training: a model's parameters, its passes forwards and backwards by hand, and its optimiser.

mod buffers;
mod gemm;
mod kernels;
mod layout;
mod oracle;
mod parameters;
mod passes;
mod selfcheck;

pub use layout::{ChosenToken, TrainBatch, TrainGroup, TrainText};
pub use parameters::AdapterMatrix;
pub use selfcheck::check_training;

#[cfg(test)]
pub(crate) use kernels::SOURCE;

use crate::device::{Arg, Device, Memory};
use crate::error::GpuError;
use crate::kernels::NUMBER_THREADS;
use crate::scratch::rotation_table;
use crate::shape::{ModelShape, Tensor};
use crate::timing::Clock;
use buffers::Buffers;
use gemm::Gemms;
use kernels::TrainKernels;
use layout::Layout;
use parameters::{Merge, Parameters};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Blocks that add up squares.
const SQUARE_BLOCKS: usize = 1_056;

/// What is trained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TrainLearning {
    /// All parameters.
    Everything,
    /// Adapters of low rank beside all matrices of the layers.
    Adapters {
        /// Their rank.
        rank: usize,
        /// Their scale, times the rank.
        alpha: f32,
    },
}

impl TrainLearning {
    /// The rank, filled up to what tensor cores take.
    fn filled_rank(self) -> usize {
        match self {
            TrainLearning::Everything => 0,
            TrainLearning::Adapters { rank, .. } => rank.next_multiple_of(8),
        }
    }

    fn scale(self) -> f32 {
        match self {
            TrainLearning::Everything => 0.0,
            TrainLearning::Adapters { rank, alpha } => alpha / rank.max(1) as f32,
        }
    }
}

/// The limits of a pass. They bound its memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainSettings {
    /// Rows of a pass at most; rounded up to a multiple of 128.
    pub rows: usize,
    /// Rows of logits that are held at once.
    pub head_rows: usize,
    /// Positions of a text at most.
    pub positions: usize,
    /// What is trained.
    pub learning: TrainLearning,
}

/// What a pass says about a choice.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Scored {
    /// The log-probability of the token that was chosen.
    pub logprob: f32,
    /// The entropy of the distribution it was chosen from.
    pub entropy: f32,
    most: f32,
    sum: f32,
}

/// A step of AdamW.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamStep {
    /// The learning rate.
    pub rate: f64,
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of squared gradients.
    pub beta2: f64,
    /// Added to the denominator.
    pub epsilon: f64,
    /// Decoupled weight decay; norms and biases have none.
    pub weight_decay: f64,
    /// The number of the step, from 1.
    pub step: u64,
    /// What gradients are multiplied by.
    pub scale: f64,
}

/// Which of the numbers of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    Values,
    /// Their gradients.
    Gradients,
    /// The means of gradients.
    Means,
    /// The means of squared gradients.
    Squares,
}

/// A model that is trained.
pub struct Trainer {
    shape: ModelShape,
    settings: TrainSettings,
    gemms: Gemms,
    buffers: Buffers,
    parameters: Parameters,
    rotations: Memory,
    inputs: Memory,
    masks: Memory,
    sums: Memory,
    kernels: TrainKernels,
    clock: Option<Clock>,
    device: Arc<Device>,
}

impl Trainer {
    /// Takes the memory for a model and compiles its kernels. Its weights are zeros.
    ///
    /// # Errors
    /// There is not enough memory, or the kernels do not support the shape.
    pub fn new(device: &Arc<Device>, shape: ModelShape, settings: TrainSettings) -> Result<Trainer, GpuError> {
        shape.check()?;
        if shape.qk_norm || shape.o_bias {
            let fact = "models with norms of queries, or a bias after attention, cannot be trained on a GPU";
            return Err(GpuError::Shape(fact.to_owned()));
        }
        device.bind()?;
        let settings = TrainSettings { rows: settings.rows.next_multiple_of(128), ..settings };
        let rank_fits = match settings.learning {
            TrainLearning::Everything => true,
            TrainLearning::Adapters { rank, .. } => (1..=256).contains(&rank),
        };
        if settings.rows == 0 || settings.head_rows == 0 || settings.positions == 0 || !rank_fits {
            return Err(GpuError::Request(format!("no model can be trained with {settings:?}")));
        }
        let kernels = TrainKernels::new(device, &shape)?;
        let parameters = Parameters::new(device, &shape, settings.learning)?;
        let filled = settings.learning.filled_rank();
        let buffers = Buffers::new(device, &shape, settings.rows, settings.head_rows, filled)?;
        let rotations = device.take(settings.positions * shape.head_dim * 4, "rotations")?;
        device.write(rotations.at(0), &rotation_table(&shape, settings.positions))?;
        Ok(Trainer {
            gemms: Gemms::new(device, (buffers.logits, buffers.logit_bytes))?,
            inputs: device.take(0, "inputs")?,
            masks: device.take(0, "masks")?,
            sums: device.take(4 * SQUARE_BLOCKS, "sums")?,
            clock: None,
            device: device.clone(),
            shape,
            settings,
            buffers,
            parameters,
            rotations,
            kernels,
        })
    }

    /// The shape it was made for.
    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// Its limits.
    pub fn settings(&self) -> &TrainSettings {
        &self.settings
    }

    /// Writes rows of a tensor, from the `first` on.
    ///
    /// # Errors
    /// There is no such tensor, or it has not so many rows.
    pub fn write(&mut self, tensor: Tensor, first: usize, values: &[f32]) -> Result<(), GpuError> {
        self.device.bind()?;
        self.parameters.write(&self.kernels, tensor, first, values)
    }

    /// Writes a matrix of an adapter.
    ///
    /// # Errors
    /// There is no such matrix, or it has another size.
    pub fn write_adapter(&mut self, matrix: AdapterMatrix, values: &[f32]) -> Result<(), GpuError> {
        self.device.bind()?;
        self.parameters.write_adapter(&self.parameters.values, matrix, values)?;
        self.parameters.round_all(&self.kernels)?;
        self.device.wait()
    }

    /// What is kept of a tensor that is trained.
    ///
    /// # Errors
    /// It is not trained, or the device failed.
    pub fn read(&self, kept: Kept, tensor: Tensor) -> Result<Vec<f32>, GpuError> {
        self.device.bind()?;
        self.parameters.read_tensor(self.pool(kept), tensor)
    }

    /// What is kept of a matrix of an adapter.
    ///
    /// # Errors
    /// There is no such matrix, or the device failed.
    pub fn read_adapter(&self, kept: Kept, matrix: AdapterMatrix) -> Result<Vec<f32>, GpuError> {
        self.device.bind()?;
        self.parameters.read_adapter(self.pool(kept), matrix)
    }

    fn pool(&self, kept: Kept) -> &Memory {
        match kept {
            Kept::Values => &self.parameters.values,
            Kept::Gradients => &self.parameters.gradients,
            Kept::Means => &self.parameters.means,
            Kept::Squares => &self.parameters.squares,
        }
    }

    /// Writes what is kept of a tensor that is trained: for the optimiser's state of an earlier run.
    ///
    /// # Errors
    /// It is not trained, or has another size.
    pub fn write_kept(&mut self, kept: Kept, tensor: Tensor, values: &[f32]) -> Result<(), GpuError> {
        self.device.bind()?;
        self.parameters.write_tensor(self.pool(kept), tensor, values)
    }

    /// Writes what is kept of a matrix of an adapter.
    ///
    /// # Errors
    /// There is no such matrix, or it has another size.
    pub fn write_kept_adapter(&mut self, kept: Kept, matrix: AdapterMatrix, values: &[f32]) -> Result<(), GpuError> {
        self.device.bind()?;
        self.parameters.write_adapter(self.pool(kept), matrix, values)
    }

    /// Bytes that a row of a pass takes, about.
    pub fn bytes_of_row(shape: &ModelShape) -> usize {
        let ModelShape { hidden, intermediate, heads, head_dim, layers, .. } = *shape;
        layers * (16 * hidden + 6 * intermediate + 2 * shape.qkv() + 2 * heads * head_dim + 4 * heads) + 16 * hidden
    }

    /// All matrices of adapters.
    pub fn adapters(&self) -> Vec<AdapterMatrix> {
        self.parameters.adapter_matrices()
    }

    pub(crate) fn has_adapters(&self) -> bool {
        self.settings.learning != TrainLearning::Everything
    }

    /// The addresses of all tensors that are trained, in f32.
    pub(crate) fn values(&self) -> Vec<(Tensor, u64)> {
        self.parameters.trained()
    }

    /// What is to be added to which matrices.
    pub(crate) fn merges(&self) -> Vec<Merge> {
        self.parameters.merges(&self.shape)
    }

    /// Fills all weights with random numbers, for measurements.
    ///
    /// # Errors
    /// The device failed.
    pub fn randomise(&mut self, seed: u32) -> Result<(), GpuError> {
        self.device.bind()?;
        self.parameters.randomise(&self.kernels, seed)
    }

    /// The log-probability of every choice at a temperature, in the order of groups, texts and choices.
    ///
    /// # Errors
    /// The batch is beyond the limits, or the device failed.
    pub fn score(&mut self, batch: &TrainBatch, temperature: f32) -> Result<Vec<Scored>, GpuError> {
        let layout = self.begin(batch)?;
        self.forwards(&layout)?;
        let mut all = Vec::with_capacity(layout.choices);
        self.heads(&layout, temperature, None, &mut all)?;
        Ok(all)
    }

    /// Adds the gradient of a loss to what is there. `slopes` is told which choices were scored and how, and says for each what
    /// the loss changes by with its log-probability.
    ///
    /// # Errors
    /// The batch is beyond the limits, or the device failed.
    pub fn accumulate(
        &mut self,
        batch: &TrainBatch,
        temperature: f32,
        slopes: &mut dyn FnMut(usize, &[Scored]) -> Vec<f32>,
    ) -> Result<Vec<Scored>, GpuError> {
        let layout = self.begin(batch)?;
        self.forwards(&layout)?;
        let mut all = Vec::with_capacity(layout.choices);
        self.heads(&layout, temperature, Some(slopes), &mut all)?;
        self.backwards(&layout)?;
        Ok(all)
    }

    /// Runs [`Self::accumulate`] and tells how many milliseconds each operation took.
    ///
    /// # Errors
    /// As there.
    pub fn profile(
        &mut self,
        batch: &TrainBatch,
        slopes: &mut dyn FnMut(usize, &[Scored]) -> Vec<f32>,
    ) -> Result<BTreeMap<&'static str, f32>, GpuError> {
        self.device.bind()?;
        self.clock = Some(Clock::start(&self.device)?);
        let done = self.accumulate(batch, 1.0, slopes);
        let clock = self.clock.take();
        done?;
        self.device.wait()?;
        clock.map_or_else(|| Ok(BTreeMap::new()), |clock| clock.totals())
    }

    /// The norm of the gradient.
    ///
    /// # Errors
    /// The device failed.
    pub fn gradient_norm(&mut self) -> Result<f64, GpuError> {
        self.device.bind()?;
        let parameters = &self.parameters;
        let from = Arg::At(parameters.gradients.at(0));
        let args = [Arg::At(self.sums.at(0)), from, Arg::U64(parameters.count as u64)];
        self.device.launch(&self.kernels.squares, (SQUARE_BLOCKS, 1), NUMBER_THREADS, 0, &args)?;
        let mut sums = vec![0f32; SQUARE_BLOCKS];
        self.device.read(&mut sums, self.sums.at(0))?;
        Ok(sums.iter().map(|sum| f64::from(*sum)).sum::<f64>().sqrt())
    }

    /// Moves everything that is trained, and begins a new gradient.
    ///
    /// # Errors
    /// The device failed.
    pub fn step(&mut self, adam: &AdamStep) -> Result<(), GpuError> {
        self.device.bind()?;
        let parameters = &self.parameters;
        let correction = |beta: f64| (1.0 / (1.0 - beta.powf(adam.step as f64))) as f32;
        let args = [
            Arg::At(parameters.values.at(0)),
            Arg::At(parameters.gradients.at(0)),
            Arg::At(parameters.means.at(0)),
            Arg::At(parameters.squares.at(0)),
            Arg::At(parameters.rounded_at()),
            Arg::U64(parameters.count as u64),
            Arg::U64(parameters.decayed as u64),
            Arg::F32(adam.rate as f32),
            Arg::F32(adam.beta1 as f32),
            Arg::F32(adam.beta2 as f32),
            Arg::F32(adam.epsilon as f32),
            Arg::F32((adam.rate * adam.weight_decay) as f32),
            Arg::F32(correction(adam.beta1)),
            Arg::F32(correction(adam.beta2)),
            Arg::F32(adam.scale as f32),
        ];
        self.device.launch(&self.kernels.adam, (132 * 16, 1), NUMBER_THREADS, 0, &args)?;
        parameters.place_adapters(&self.kernels)
    }

    /// Forgets the gradient.
    ///
    /// # Errors
    /// The device failed.
    pub fn forget(&mut self) -> Result<(), GpuError> {
        self.device.bind()?;
        self.device.clear(&self.parameters.gradients)
    }

    /// Waits until everything queued is done.
    ///
    /// # Errors
    /// The device failed.
    pub fn wait(&self) -> Result<(), GpuError> {
        self.device.bind()?;
        self.device.wait()
    }

    /// Checks and lays out a batch and sends it to the device.
    fn begin(&mut self, batch: &TrainBatch) -> Result<Layout, GpuError> {
        self.device.bind()?;
        let layout = Layout::new(batch, &self.shape, self.settings.rows, self.settings.positions)?;
        for (memory, words, what) in
            [(&mut self.inputs, &layout.words, "inputs"), (&mut self.masks, &batch.masks, "masks")]
        {
            let bytes = 4 * words.len();
            if bytes > memory.bytes() {
                self.device.wait()?;
                *memory = self.device.take(bytes.next_power_of_two(), what)?;
            }
            if bytes > 0 {
                self.device.write(memory.at(0), words)?;
            }
        }
        Ok(layout)
    }
}
