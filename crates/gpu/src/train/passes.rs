//! The ways forwards and backwards.

use crate::device::Arg;
use crate::error::GpuError;
use crate::kernels::{NUMBER_THREADS, ROW_THREADS};
use crate::shape::{Part, Tensor};
use crate::train::buffers::{LayerBuffers, PARTS};
use crate::train::gemm::{Factor, Gemm};
use crate::train::kernels::{LOSS_THREADS, attention_shared};
use crate::train::layout::Layout;
use crate::train::parameters::Linear;
use crate::train::{Scored, Trainer};

const ATTENTION_THREADS: u32 = 128;
/// Parts that the rows are divided into to be added up by columns.
const COLUMN_PARTS: usize = 32;

/// Says for each of some choices what the loss changes by with its log-probability.
pub(crate) type Slopes<'s> = Option<&'s mut dyn FnMut(usize, &[Scored]) -> Vec<f32>>;

fn rows_of(at: u64, stride: usize) -> Factor {
    Factor { at, stride, transposed: false }
}

fn columns_of(at: u64, stride: usize) -> Factor {
    Factor { at, stride, transposed: true }
}

impl Trainer {
    fn lap(&mut self, name: &'static str) -> Result<(), GpuError> {
        match &mut self.clock {
            None => Ok(()),
            Some(clock) => clock.lap(&self.device, name),
        }
    }

    fn input(&self, word: usize) -> Arg {
        Arg::At(self.inputs.at(4 * word))
    }

    fn weight(&self, layer: usize, part: Part) -> u64 {
        self.parameters.at(Tensor::Layer(layer, part))
    }

    fn place_of(linear: Linear) -> usize {
        Linear::ALL.iter().position(|it| *it == linear).unwrap_or(0)
    }

    /// y = x · weight, with the adapter. In f32 it is added to `plus`.
    fn linear(
        &mut self,
        layer: usize,
        linear: Linear,
        rows: usize,
        to: (u64, bool),
        plus: Option<u64>,
    ) -> Result<(), GpuError> {
        let number = Self::place_of(linear);
        let (x, stride) = (self.buffers.layers[layer].inputs[number], self.buffers.strides[number]);
        let ins = linear.ins(&self.shape);
        if let Some((narrowing, _)) = self.parameters.narrowing(layer, linear.part()) {
            let gemm = Gemm {
                sizes: [rows, stride - ins, ins],
                left: rows_of(x, stride),
                right: columns_of(narrowing, ins),
                to: x + 2 * ins as u64,
                stride,
                in_f32: false,
                plus: None,
                scale: 1.0,
            };
            self.gemms.run(&gemm, rows)?;
            self.lap("adapters")?;
        }
        let outs: usize = linear.outs(&self.shape).iter().sum();
        let gemm = Gemm {
            sizes: [rows, outs, stride],
            left: rows_of(x, stride),
            right: columns_of(self.weight(layer, linear.part()), stride),
            to: to.0,
            stride: outs,
            in_f32: to.1,
            plus,
            scale: 1.0,
        };
        self.gemms.run(&gemm, rows)?;
        self.lap("products")
    }

    /// The gradients of a product: of its weight or adapter, and of its input, which goes to the wide buffer.
    fn linear_back(&mut self, layer: usize, linear: Linear, rows: usize, slopes: u64) -> Result<(), GpuError> {
        let number = Self::place_of(linear);
        let (x, stride) = (self.buffers.layers[layer].inputs[number], self.buffers.strides[number]);
        let (ins, part, wide) = (linear.ins(&self.shape), linear.part(), self.buffers.wide);
        let parts = linear.outs(&self.shape);
        let outs: usize = parts.iter().sum();
        let of_input = Gemm {
            sizes: [rows, stride, outs],
            left: rows_of(slopes, outs),
            right: rows_of(self.weight(layer, part), stride),
            to: wide,
            stride,
            in_f32: false,
            plus: None,
            scale: 1.0,
        };
        self.gemms.run(&of_input, rows)?;
        self.lap("products back")?;
        if let Some(to) = self.parameters.gradient(Tensor::Layer(layer, part)) {
            let of_weight = Gemm {
                sizes: [outs, ins, rows],
                left: columns_of(slopes, outs),
                right: rows_of(x, stride),
                to,
                stride: ins,
                in_f32: true,
                plus: Some(to),
                scale: 1.0,
            };
            self.gemms.run(&of_weight, rows)?;
            self.lap("gradients of weights")?;
        }
        let Some((narrowing, gradient)) = self.parameters.narrowing(layer, part) else { return Ok(()) };
        let rank = stride - ins;
        let of_narrow = wide + 2 * ins as u64;
        let through_adapter = Gemm {
            sizes: [rows, ins, rank],
            left: rows_of(of_narrow, stride),
            right: rows_of(narrowing, ins),
            to: wide,
            stride,
            in_f32: false,
            plus: Some(wide),
            scale: 1.0,
        };
        let of_first = Gemm {
            sizes: [rank, ins, rows],
            left: columns_of(of_narrow, stride),
            right: rows_of(x, stride),
            to: gradient,
            stride: ins,
            in_f32: true,
            plus: Some(gradient),
            scale: 1.0,
        };
        self.gemms.run(&of_first, rows)?;
        self.gemms.run(&through_adapter, rows)?;
        let each = rank / parts.len().max(1);
        let mut column = 0;
        for (of_stack, width) in parts.into_iter().enumerate() {
            if let Some(to) = self.parameters.widening(layer, part, of_stack) {
                let of_second = Gemm {
                    sizes: [width, each, rows],
                    left: columns_of(slopes + 2 * column as u64, outs),
                    right: rows_of(x + 2 * (ins + of_stack * each) as u64, stride),
                    to,
                    stride: each,
                    in_f32: true,
                    plus: Some(to),
                    scale: self.parameters.learning.scale(),
                };
                self.gemms.run(&of_second, rows)?;
            }
            column += width;
        }
        self.lap("adapters back")
    }

    fn norm(&mut self, y: (u64, usize), factors: u64, x: u64, weight: u64, rows: (u64, usize)) -> Result<(), GpuError> {
        let args = [
            Arg::At(y.0),
            Arg::U32(y.1 as u32),
            Arg::At(factors),
            Arg::At(x),
            Arg::At(weight),
            Arg::At(rows.0),
            Arg::F32(self.shape.epsilon),
        ];
        self.device.launch(&self.kernels.norm, (rows.1, 1), ROW_THREADS, 0, &args)?;
        self.lap("norms")
    }

    /// Computes the residual stream of all rows.
    pub(crate) fn forwards(&mut self, layout: &Layout) -> Result<(), GpuError> {
        let rows = layout.rows;
        let embed = [
            Arg::At(self.buffers.stream(0, 0)),
            Arg::At(self.parameters.at(Tensor::Embedding)),
            self.input(layout.at_tokens),
            Arg::At(0),
            Arg::U32(self.shape.hidden as u32),
            Arg::U32(self.shape.vocabulary as u32),
        ];
        self.device.launch(&self.kernels.embed, (rows, 1), ROW_THREADS, 0, &embed)?;
        self.lap("embedding")?;
        for layer in 0..self.shape.layers {
            let LayerBuffers { x, factors, inputs, qkv, gate_up, .. } = self.buffers.layers[layer];
            let strides = self.buffers.strides;
            let weight = self.weight(layer, Part::InputNorm);
            self.norm((inputs[0], strides[0]), factors[0], x[0], weight, (0, rows))?;
            let raw = self.buffers.raw;
            self.linear(layer, Linear::Qkv, rows, (raw, true), None)?;
            let rope = [
                Arg::At(qkv),
                Arg::At(raw),
                Arg::At(self.weight(layer, Part::QkvBias)),
                Arg::At(self.rotations.at(0)),
                self.input(layout.at_positions),
                Arg::U32(self.shape.heads as u32),
            ];
            self.device.launch(&self.kernels.rope, (rows, 1), ROW_THREADS, 0, &rope)?;
            self.lap("rotation")?;
            self.attend(layer, layout)?;
            self.linear(layer, Linear::O, rows, (x[1], true), Some(x[0]))?;
            let weight = self.weight(layer, Part::PostNorm);
            self.norm((inputs[2], strides[2]), factors[1], x[1], weight, (0, rows))?;
            self.linear(layer, Linear::GateUp, rows, (gate_up, false), None)?;
            let (width, words) = (self.shape.intermediate, rows * self.shape.intermediate / 8);
            let swiglu = [
                Arg::At(inputs[3]),
                Arg::U32(strides[3] as u32),
                Arg::At(gate_up),
                Arg::U32(rows as u32),
                Arg::U32(width as u32),
            ];
            let blocks = words.div_ceil(NUMBER_THREADS as usize);
            self.device.launch(&self.kernels.swiglu, (blocks, 1), NUMBER_THREADS, 0, &swiglu)?;
            self.lap("gates")?;
            let next = self.buffers.stream(layer + 1, 0);
            self.linear(layer, Linear::Down, rows, (next, true), Some(x[1]))?;
        }
        Ok(())
    }

    fn attend(&mut self, layer: usize, layout: &Layout) -> Result<(), GpuError> {
        let LayerBuffers { inputs, qkv, logs, .. } = self.buffers.layers[layer];
        let args = [
            Arg::At(inputs[1]),
            Arg::U32(self.buffers.strides[1] as u32),
            Arg::At(logs),
            Arg::At(qkv),
            self.input(layout.at_queries),
            Arg::U32(layout.rows as u32),
        ];
        let (grid, shared) = ((layout.stretches, self.shape.heads), attention_shared(&self.shape, 5));
        self.device.launch(&self.kernels.attend, grid, ATTENTION_THREADS, shared, &args)?;
        self.lap("attention")
    }

    /// Scores the choices in parts, and begins the way back where slopes are wanted.
    pub(crate) fn heads(
        &mut self,
        layout: &Layout,
        temperature: f32,
        mut slopes: Slopes<'_>,
        all: &mut Vec<Scored>,
    ) -> Result<(), GpuError> {
        let (hidden, vocabulary) = (self.shape.hidden, self.shape.padded_vocabulary());
        if slopes.is_some() {
            self.device.clear_bytes(self.buffers.dx, 4 * layout.rows * hidden)?;
        }
        let tensor = if self.shape.tied { Tensor::Embedding } else { Tensor::Head };
        let head = self.parameters.at(tensor);
        let stream = self.buffers.stream(self.shape.layers, 0);
        let norm = self.parameters.at(Tensor::Norm);
        let inverse = 1.0 / temperature;
        for first in (0..layout.choices).step_by(self.settings.head_rows) {
            let count = self.settings.head_rows.min(layout.choices - first);
            let (normed, logits, scored) = (self.buffers.normed, self.buffers.logits, self.buffers.scored);
            let chosen = self.inputs.at(4 * (layout.at_chosen + first));
            let factors = self.buffers.factors;
            self.norm((normed, hidden), factors, stream, norm, (chosen, count))?;
            let product = Gemm {
                sizes: [count, vocabulary, hidden],
                left: rows_of(normed, hidden),
                right: columns_of(head, hidden),
                to: logits,
                stride: vocabulary,
                in_f32: true,
                plus: None,
                scale: 1.0,
            };
            self.gemms.run(&product, count)?;
            self.lap("head")?;
            let targets = self.input(layout.at_targets + 2 * first);
            let words = self.shape.vocabulary.div_ceil(32) as u32;
            let form = [Arg::U32(self.shape.vocabulary as u32), Arg::U32(vocabulary as u32), Arg::U32(words)];
            let masks = Arg::At(self.masks.at(0));
            let args = [Arg::At(scored), Arg::At(logits), targets, masks, form[0], form[1], form[2], Arg::F32(inverse)];
            self.device.launch(&self.kernels.score, (count, 1), LOSS_THREADS, 0, &args)?;
            let empty = Scored { logprob: 0.0, entropy: 0.0, most: 0.0, sum: 0.0 };
            let start = all.len();
            all.resize(start + count, empty);
            self.device.read(&mut all[start..], scored)?;
            self.lap("losses")?;
            let Some(slopes) = slopes.as_mut() else { continue };
            let of_choices = slopes(first, &all[start..]);
            if of_choices.len() != count {
                let found = of_choices.len();
                return Err(GpuError::Request(format!("expected {count} slopes, found {found}")));
            }
            self.device.write(self.buffers.slopes, &of_choices)?;
            let of_logits = self.buffers.of_logits;
            let args = [
                Arg::At(of_logits),
                Arg::At(logits),
                Arg::At(scored),
                Arg::At(self.buffers.slopes),
                targets,
                masks,
                form[0],
                form[1],
                form[2],
                Arg::F32(inverse),
            ];
            self.device.launch(&self.kernels.slope, (count, 1), LOSS_THREADS, 0, &args)?;
            self.lap("losses")?;
            let wide = self.buffers.wide;
            let of_normed = Gemm {
                sizes: [count, hidden, vocabulary],
                left: rows_of(of_logits, vocabulary),
                right: rows_of(head, hidden),
                to: wide,
                stride: hidden,
                in_f32: false,
                plus: None,
                scale: 1.0,
            };
            self.gemms.run(&of_normed, count)?;
            if let Some(to) = self.parameters.gradient(tensor) {
                let of_head = Gemm {
                    sizes: [vocabulary, hidden, count],
                    left: columns_of(of_logits, vocabulary),
                    right: rows_of(normed, hidden),
                    to,
                    stride: hidden,
                    in_f32: true,
                    plus: Some(to),
                    scale: 1.0,
                };
                self.gemms.run(&of_head, count)?;
            }
            self.lap("head back")?;
            self.norm_back((wide, hidden), stream, factors, (Tensor::Norm, norm), (chosen, count), 0)?;
        }
        Ok(())
    }

    /// Adds the gradient of what was normalised to that of the residual stream, and that of the norm's weight to its own.
    fn norm_back(
        &mut self,
        dy: (u64, usize),
        x: u64,
        factors: u64,
        weight: (Tensor, u64),
        rows: (u64, usize),
        rounded: u64,
    ) -> Result<(), GpuError> {
        let gradient = self.parameters.gradient(weight.0);
        let blocks = rows.1.min(PARTS);
        let partial = gradient.map_or(0, |_| self.buffers.partial);
        // Without gradients of the weight, each row may have a block of its own.
        let grid = if gradient.is_some() { blocks } else { rows.1 };
        let args = [
            Arg::At(self.buffers.dx),
            Arg::At(rounded),
            Arg::At(partial),
            Arg::At(dy.0),
            Arg::U32(dy.1 as u32),
            Arg::At(x),
            Arg::At(weight.1),
            Arg::At(factors),
            Arg::At(rows.0),
            Arg::U32(rows.1 as u32),
        ];
        self.device.launch(&self.kernels.norm_back, (grid, 1), ROW_THREADS, 0, &args)?;
        if let Some(to) = gradient {
            self.add_partial(to, blocks, self.shape.hidden)?;
        }
        self.lap("norms back")
    }

    fn add_partial(&mut self, to: u64, parts: usize, width: usize) -> Result<(), GpuError> {
        let (parts, columns) = (Arg::U32(parts as u32), Arg::U32(width as u32));
        let args = [Arg::At(to), Arg::At(self.buffers.partial), parts, columns];
        self.device.launch(&self.kernels.add_partial, (width.div_ceil(256), 1), 256, 0, &args)
    }

    /// Goes back from the gradient of the residual stream after the last layer.
    pub(crate) fn backwards(&mut self, layout: &Layout) -> Result<(), GpuError> {
        let rows = layout.rows;
        let (dx, rounded, wide, dqkv) = (self.buffers.dx, self.buffers.rounded, self.buffers.wide, self.buffers.dqkv);
        let hidden = self.shape.hidden;
        let numbers = (rows * hidden) as u64;
        // As one row of one number after another.
        let round = [Arg::At(rounded), Arg::U32(hidden as u32), Arg::At(dx), Arg::U64(numbers / hidden as u64)];
        let round = [round[0], round[1], round[2], round[3], Arg::U32(hidden as u32)];
        self.device.launch(&self.kernels.round, (2_112, 1), NUMBER_THREADS, 0, &round)?;
        self.lap("norms back")?;
        for layer in (0..self.shape.layers).rev() {
            let LayerBuffers { x, factors, gate_up, .. } = self.buffers.layers[layer];
            let strides = self.buffers.strides;
            self.linear_back(layer, Linear::Down, rows, rounded)?;
            let width = self.shape.intermediate;
            let swiglu = [
                Arg::At(gate_up),
                Arg::At(wide),
                Arg::U32(strides[3] as u32),
                Arg::U32(rows as u32),
                Arg::U32(width as u32),
            ];
            let blocks = (rows * width / 8).div_ceil(NUMBER_THREADS as usize);
            self.device.launch(&self.kernels.swiglu_back, (blocks, 1), NUMBER_THREADS, 0, &swiglu)?;
            self.lap("gates back")?;
            self.linear_back(layer, Linear::GateUp, rows, gate_up)?;
            let norm = |part| (Tensor::Layer(layer, part), self.parameters.at(Tensor::Layer(layer, part)));
            let (post, input) = (norm(Part::PostNorm), norm(Part::InputNorm));
            self.norm_back((wide, strides[2]), x[1], factors[1], post, (0, rows), rounded)?;
            self.linear_back(layer, Linear::O, rows, rounded)?;
            self.attend_back(layer, layout)?;
            if let Some(to) = self.parameters.gradient(Tensor::Layer(layer, Part::QkvBias)) {
                let width = self.shape.qkv();
                let args =
                    [Arg::At(self.buffers.partial), Arg::At(dqkv), Arg::U32(rows as u32), Arg::U32(width as u32)];
                let grid = (width.div_ceil(64), COLUMN_PARTS);
                self.device.launch(&self.kernels.column_sums, grid, NUMBER_THREADS, 0, &args)?;
                self.add_partial(to, COLUMN_PARTS, width)?;
                self.lap("biases back")?;
            }
            self.linear_back(layer, Linear::Qkv, rows, dqkv)?;
            self.norm_back((wide, strides[0]), x[0], factors[0], input, (0, rows), rounded)?;
        }
        if let Some(to) = self.parameters.gradient(Tensor::Embedding) {
            let args = [Arg::At(to), Arg::At(dx), self.input(layout.at_lists), self.input(layout.at_order)];
            self.device.launch(&self.kernels.embed_back, (layout.tokens, 1), ROW_THREADS, 0, &args)?;
            self.lap("embedding back")?;
        }
        Ok(())
    }

    fn attend_back(&mut self, layer: usize, layout: &Layout) -> Result<(), GpuError> {
        let LayerBuffers { inputs, qkv, logs, .. } = self.buffers.layers[layer];
        let stride = Arg::U32(self.buffers.strides[1] as u32);
        let (slopes, deltas) = (Arg::At(self.buffers.wide), Arg::At(self.buffers.deltas));
        let (rows, heads) = (Arg::U32(layout.rows as u32), self.shape.heads);
        let args = [deltas, Arg::At(inputs[1]), stride, slopes, stride, rows];
        self.device.launch(&self.kernels.attend_delta, (layout.rows, 1), ROW_THREADS, 0, &args)?;
        let args = |stretches| {
            let (dqkv, qkv, logs) = (Arg::At(self.buffers.dqkv), Arg::At(qkv), Arg::At(logs));
            let (rotations, positions) = (Arg::At(self.rotations.at(0)), self.input(layout.at_positions));
            [dqkv, qkv, slopes, stride, logs, deltas, stretches, rotations, positions, rows]
        };
        let (shared, count) = (attention_shared(&self.shape, 6), layout.stretches);
        let queries = args(self.input(layout.at_queries));
        let kernel = &self.kernels.attend_back_queries;
        self.device.launch(kernel, (count, heads), ATTENTION_THREADS, shared, &queries)?;
        let keys = args(self.input(layout.at_keys));
        let kernel = &self.kernels.attend_back_keys;
        self.device.launch(kernel, (count, self.shape.kv_heads), ATTENTION_THREADS, shared, &keys)?;
        self.lap("attention back")
    }
}
