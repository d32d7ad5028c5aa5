//! A model on the device: its weights, its pages of keys and values, and its steps.

mod follow;

use crate::batch::{Batch, Inputs, Limits, PAGE, Places, Sizes, check};
use crate::device::{Arg, Device, Memory, Pinned};
use crate::error::GpuError;
use crate::graph::Graph;
use crate::kernels::{
    DECODE_THREADS, DRAW_THREADS, Kernels, NUMBER_THREADS, Numbers, PROMPT_THREADS, ROW_THREADS, prompt_shared,
};
use crate::products::{Form, Operands, Product, Products, bucket};
use crate::scratch::{Scratch, rotation_table};
use crate::shape::{ModelShape, Tensor};
use crate::timing::Clock;
use crate::weights::{LayerWeights, Weights};
use cudarc::driver::CudaEvent;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Bytes of logits that are held at once, about.
const LOGIT_BYTES: usize = 1 << 30;
/// Steps that can be in flight.
const SLOTS: usize = 2;
/// Bytes of a draw's result.
const DRAWN_BYTES: usize = 12;

/// The limits of a model's steps. They bound its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelSettings {
    /// Rows of a step at most.
    pub rows: usize,
    /// Draws of a step at most.
    pub draws: usize,
    /// Pages of keys and values.
    pub pages: usize,
    /// Positions of a sequence at most.
    pub positions: usize,
    /// Whether steps in which every sequence advances by one token are recorded as graphs.
    pub graphs: bool,
    /// Whether algorithms of products are timed.
    pub tuning: bool,
    /// The form of weights, of keys and values, and of the inputs of products.
    pub numbers: Numbers,
}

/// A token that was drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drawn {
    /// The token; `None` if the logits are no numbers, or its mask allows none.
    pub token: Option<u32>,
    /// Its log-probability under the model: at temperature one, without mask.
    pub logprob: f32,
    /// Its log-probability under what it was drawn from, before `top_p`.
    pub chosen: f32,
}

/// A step that was queued.
#[must_use = "the step's slot is free only after `wait`"]
pub struct Pending {
    slot: usize,
    draws: usize,
}

/// What the host and the device exchange in a step.
struct Slot {
    inputs: Pinned,
    masks: Option<Pinned>,
    drawn: Pinned,
    done: Option<CudaEvent>,
    waited: bool,
}

/// A model.
pub struct Model {
    // Graphs first: they must go before what they use.
    graphs: HashMap<Sizes, Graph>,
    /// The weights without adapters, where a model in training has been followed.
    base: Option<Memory>,
    slots: Vec<Slot>,
    turn: usize,
    inputs: Inputs,
    shape: ModelShape,
    settings: ModelSettings,
    logit_rows: usize,
    products: Products,
    weights: Weights,
    scratch: Scratch,
    cache: Memory,
    rotations: Memory,
    device_inputs: Memory,
    masks: Memory,
    drawn: Memory,
    tokens: Memory,
    tickets: Memory,
    partial: Memory,
    partial_parts: usize,
    kernels: Kernels,
    device: Arc<Device>,
}

impl Model {
    /// Takes the memory for a model and compiles its kernels. Its weights are zeros.
    ///
    /// # Errors
    /// There is not enough memory, or the kernels do not support the shape.
    pub fn new(device: &Arc<Device>, shape: ModelShape, settings: ModelSettings) -> Result<Model, GpuError> {
        shape.check()?;
        device.bind()?;
        let ModelSettings { rows, draws, pages, positions, .. } = settings;
        if draws == 0 || rows < draws || pages == 0 || positions == 0 || pages > 1 << 28 {
            return Err(GpuError::Request(format!("no model can be made with {settings:?}")));
        }
        let kernels = Kernels::new(device, &shape, settings.numbers)?;
        let weights = Weights::new(device, &shape)?;
        let logit_rows = draws.min((LOGIT_BYTES / (4 * shape.padded_vocabulary())).max(1));
        let scratch = Scratch::new(device, &shape, rows, logit_rows)?;
        // One page more: surplus rows write there. Numbers in it that were never written must not be NaN.
        let cache = device.take(2 * shape.layers * page_bytes(&shape) * (pages + 1), "keys and values")?;
        device.clear(&cache)?;
        let rotations = device.take(positions * shape.head_dim * 4, "rotations")?;
        device.write(rotations.at(0), &rotation_table(&shape, positions))?;
        let tables = draws * (positions.div_ceil(PAGE) + 1);
        let input_bytes = 4 * (3 * rows + 16 * (draws + 1) + 4 * rows * shape.group() + tables + 64);
        let mask_words = shape.vocabulary.div_ceil(32);
        let tickets = device.take(4 * (draws + bucket(draws)) * shape.kv_heads, "tickets")?;
        device.clear(&tickets)?;
        let partial_parts = 64;
        let slot = |_| {
            let (inputs, drawn) = (device.take_pinned(input_bytes)?, device.take_pinned(DRAWN_BYTES * draws)?);
            Ok(Slot { inputs, masks: None, drawn, done: None, waited: true })
        };
        let mut model = Model {
            graphs: HashMap::new(),
            base: None,
            slots: (0..SLOTS).map(slot).collect::<Result<_, GpuError>>()?,
            turn: 0,
            inputs: Inputs::default(),
            logit_rows,
            products: Products::new(device, settings.tuning, settings.numbers)?,
            weights,
            scratch,
            cache,
            rotations,
            device_inputs: device.take(input_bytes, "inputs")?,
            masks: device.take(4 * draws * mask_words, "masks")?,
            drawn: device.take(2 * DRAWN_BYTES * draws, "draws")?,
            tokens: device.take(2 * 4 * draws, "draws")?,
            tickets,
            partial: device.take(partial_bytes(&shape, partial_parts), "attention")?,
            partial_parts,
            kernels,
            device: device.clone(),
            shape,
            settings,
        };
        if settings.tuning {
            model.tune()?;
        }
        Ok(model)
    }

    /// Times the algorithms of all products.
    fn tune(&mut self) -> Result<(), GpuError> {
        for product in [Product::Qkv, Product::O, Product::GateUp, Product::Down] {
            let operands = self.operands_of_layers(product);
            self.products.tune(product, self.form(product), self.settings.rows, &operands)?;
        }
        let head = self.operands(Product::Head, None);
        self.products.tune(Product::Head, self.form(Product::Head), self.logit_rows, &[head])
    }

    fn operands_of_layers(&self, product: Product) -> Vec<Operands> {
        self.weights.layers.iter().map(|layer| self.operands(product, Some(layer))).collect()
    }

    /// The shape it was made for.
    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The name of the device that it is on.
    pub fn device_name(&self) -> &str {
        &self.device.info().name
    }

    /// Pages of keys and values.
    pub fn pages(&self) -> usize {
        self.settings.pages
    }

    /// Bytes of its weights.
    pub fn weight_bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// Writes rows of a tensor, from the `first` on.
    ///
    /// # Errors
    /// There is no such tensor, or it has not so many rows.
    pub fn write(&mut self, tensor: Tensor, first: usize, values: &[f32]) -> Result<(), GpuError> {
        self.device.bind()?;
        self.weights.write(&self.kernels, tensor, first, values)
    }

    /// A tensor of which not all rows were written.
    pub fn missing(&self) -> Option<Tensor> {
        self.weights.missing()
    }

    /// Fills all weights with random numbers, for measurements.
    ///
    /// # Errors
    /// The device failed.
    pub fn randomise(&mut self, seed: u32) -> Result<(), GpuError> {
        self.device.bind()?;
        self.weights.randomise(&self.kernels, seed)
    }

    /// Queues a step. Two steps can be in flight: [`Self::wait`] for the one before the last comes first.
    ///
    /// # Errors
    /// The batch is beyond the limits, or the device failed.
    pub fn submit(&mut self, batch: &Batch) -> Result<Pending, GpuError> {
        self.device.bind()?;
        let sizes = self.upload(batch)?;
        let pure = sizes.tiles == 0 && sizes.rows == sizes.draws;
        self.prepare(sizes)?;
        if pure && self.settings.graphs {
            if !self.graphs.contains_key(&sizes) {
                let graph = Graph::record(&self.device, || self.forward(sizes, &mut None))?;
                self.graphs.insert(sizes, graph);
            }
            if let Some(graph) = self.graphs.get(&sizes) {
                graph.launch()?;
            }
        } else {
            self.forward(sizes, &mut None)?;
        }
        self.finish(batch)
    }

    /// Runs a step as [`Self::submit`] does, without a graph, and tells how many milliseconds each operation took.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub fn profile(&mut self, batch: &Batch) -> Result<BTreeMap<&'static str, f32>, GpuError> {
        self.device.bind()?;
        let sizes = self.upload(batch)?;
        self.prepare(sizes)?;
        let mut clock = Some(Clock::start(&self.device)?);
        self.forward(sizes, &mut clock)?;
        let pending = self.finish(batch)?;
        self.wait(pending)?;
        clock.map_or_else(|| Ok(BTreeMap::new()), |clock| clock.totals())
    }

    /// Waits for a step: what was drawn, in the order of the batch's draws.
    ///
    /// # Errors
    /// The device failed.
    pub fn wait(&mut self, pending: Pending) -> Result<Vec<Drawn>, GpuError> {
        self.device.bind()?;
        let Some(slot) = self.slots.get_mut(pending.slot) else { return Ok(Vec::new()) };
        if let Some(done) = slot.done.take() {
            done.synchronize()?;
        }
        slot.waited = true;
        let (words, _) = slot.drawn.bytes().as_chunks::<4>();
        let (drawn, _) = words.as_chunks::<3>();
        Ok(drawn.iter().take(pending.draws).map(Drawn::of_words).collect())
    }

    /// The logits of the first draws of the last step, for tests and checks.
    ///
    /// # Errors
    /// The device failed.
    pub fn logits(&self, draw: usize) -> Result<Vec<f32>, GpuError> {
        self.device.bind()?;
        let mut logits = vec![0f32; self.shape.vocabulary];
        if draw >= self.logit_rows {
            return Err(GpuError::Request(format!("the logits of draw {draw} are not kept")));
        }
        self.device.read(&mut logits, self.scratch.logits + (draw * self.shape.padded_vocabulary() * 4) as u64)?;
        Ok(logits)
    }

    /// Waits until nothing is in flight.
    ///
    /// # Errors
    /// The device failed.
    pub fn idle(&self) -> Result<(), GpuError> {
        self.device.bind()?;
        self.device.wait()
    }

    /// Checks and lays out a batch and queues its way to the device.
    fn upload(&mut self, batch: &Batch) -> Result<Sizes, GpuError> {
        let ModelSettings { rows, draws, pages, positions, .. } = self.settings;
        check(batch, &Limits { rows, draws, pages, positions, vocabulary: self.shape.vocabulary })?;
        self.turn = (self.turn + 1) % SLOTS;
        let slot = &mut self.slots[self.turn];
        if !slot.waited {
            return Err(GpuError::Request(
                "a step was queued before the one before the last was waited for".to_owned(),
            ));
        }
        let padded = |rows: usize| bucket(rows).min(draws);
        let sizes = self.inputs.lay_out(batch, self.shape.group(), pages as u32, padded);
        let bytes = 4 * self.inputs.words.len();
        if bytes > slot.inputs.bytes().len() {
            let fact = format!("expected at most {} bytes of inputs, found {bytes}", slot.inputs.bytes().len());
            return Err(GpuError::Request(fact));
        }
        let (target, _) = slot.inputs.bytes_mut().as_chunks_mut::<4>();
        for (to, word) in target.iter_mut().zip(&self.inputs.words) {
            *to = word.to_ne_bytes();
        }
        self.device.copy_in(self.device_inputs.at(0), &slot.inputs, bytes)?;
        if !batch.masks.is_empty() {
            if slot.masks.is_none() {
                slot.masks = Some(self.device.take_pinned(self.masks.bytes())?);
            }
            if let Some(masks) = &mut slot.masks {
                let (target, _) = masks.bytes_mut().as_chunks_mut::<4>();
                for (to, word) in target.iter_mut().zip(&batch.masks) {
                    *to = word.to_ne_bytes();
                }
                self.device.copy_in(self.masks.at(0), masks, 4 * batch.masks.len())?;
            }
        }
        if self.inputs.all_parts > self.partial_parts {
            // Graphs hold the address of what is replaced.
            self.device.wait()?;
            self.graphs.clear();
            self.partial_parts = self.inputs.all_parts.next_power_of_two();
            self.partial = self.device.take(partial_bytes(&self.shape, self.partial_parts), "attention")?;
        }
        Ok(sizes)
    }

    /// Queues the way back of what was drawn.
    fn finish(&mut self, batch: &Batch) -> Result<Pending, GpuError> {
        let slot = &mut self.slots[self.turn];
        let draws = batch.draws.len();
        self.device.copy_out(&mut slot.drawn, self.drawn.at(0), DRAWN_BYTES * draws)?;
        slot.done = Some(self.device.mark()?);
        slot.waited = false;
        Ok(Pending { slot: self.turn, draws })
    }

    /// Makes the plans of all products of a step.
    fn prepare(&mut self, sizes: Sizes) -> Result<(), GpuError> {
        for product in [Product::Qkv, Product::O, Product::GateUp, Product::Down] {
            if !self.products.is_ready(product, sizes.rows) {
                let operands = self.operands_of_layers(product);
                let form = self.form(product);
                self.products.prepare(product, form, sizes.rows, self.settings.rows, &operands)?;
            }
        }
        for (_, count) in self.draw_chunks(sizes.draws) {
            let (form, operands) = (self.form(Product::Head), self.operands(Product::Head, None));
            self.products.prepare(Product::Head, form, count, self.logit_rows, &[operands])?;
        }
        Ok(())
    }

    /// The draws that are made at once: the first and how many.
    fn draw_chunks(&self, draws: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let most = self.logit_rows;
        (0..draws).step_by(most).map(move |first| (first, most.min(draws - first)))
    }

    fn form(&self, product: Product) -> Form {
        let ModelShape { hidden, intermediate, heads, head_dim, .. } = self.shape;
        let (ins, outs, in_f32, adds) = match product {
            Product::Qkv => (hidden, self.shape.qkv(), true, false),
            Product::O => (heads * head_dim, hidden, true, true),
            Product::GateUp => (hidden, 2 * intermediate, false, false),
            Product::Down => (intermediate, hidden, true, true),
            Product::Head => (hidden, self.shape.padded_vocabulary(), true, false),
        };
        Form { ins, outs, in_f32, adds }
    }

    fn operands(&self, product: Product, layer: Option<&LayerWeights>) -> Operands {
        let scratch = &self.scratch;
        let weight = |of: fn(&LayerWeights) -> u64| layer.map_or(0, of);
        let (x, weight, y) = match product {
            Product::Qkv => (scratch.normed, weight(|it| it.qkv), scratch.qkv),
            Product::O => (scratch.attended, weight(|it| it.o), scratch.x),
            Product::GateUp => (scratch.normed, weight(|it| it.gate_up), scratch.gate_up),
            Product::Down => (scratch.gated, weight(|it| it.down), scratch.x),
            Product::Head => (scratch.normed, self.weights.head, scratch.logits),
        };
        Operands { x, weight, y }
    }

    /// Queues all operations of a step.
    fn forward(&self, sizes: Sizes, clock: &mut Option<Clock>) -> Result<(), GpuError> {
        let (device, kernels, scratch, shape) = (&self.device, &self.kernels, &self.scratch, &self.shape);
        let places = sizes.places();
        let input = |word: usize| Arg::At(self.device_inputs.at(4 * word));
        let (hidden, epsilon, rows) = (shape.hidden as u32, Arg::F32(shape.epsilon), sizes.rows);
        let mut lap = |name| clock.as_mut().map_or(Ok(()), |clock| clock.lap(device, name));
        let embed = [
            Arg::At(scratch.x),
            Arg::At(self.weights.embedding),
            input(places.tokens),
            Arg::At(self.tokens.at(0)),
            Arg::U32(hidden),
            Arg::U32(shape.vocabulary as u32),
        ];
        device.launch(&kernels.embed, (rows, 1), ROW_THREADS, 0, &embed)?;
        lap("embed")?;
        let norm = |weight: u64, from: u64| {
            let x = [Arg::At(scratch.normed), Arg::At(scratch.x), Arg::At(weight)];
            [x[0], x[1], x[2], Arg::At(from), epsilon]
        };
        let product =
            |product, layer| self.products.run(product, self.form(product), rows, self.operands(product, Some(layer)));
        for (number, layer) in self.weights.layers.iter().enumerate() {
            device.launch(&kernels.rms_norm, (rows, 1), ROW_THREADS, 0, &norm(layer.input_norm, 0))?;
            lap("norm")?;
            product(Product::Qkv, layer)?;
            lap("qkv")?;
            self.attend(number, layer, sizes, &places, &mut lap)?;
            product(Product::O, layer)?;
            lap("o")?;
            if layer.o_bias != 0 {
                let args = [Arg::At(scratch.x), Arg::At(layer.o_bias), Arg::U32(hidden)];
                device.launch(&kernels.add_bias, (rows, 1), ROW_THREADS, 0, &args)?;
            }
            device.launch(&kernels.rms_norm, (rows, 1), ROW_THREADS, 0, &norm(layer.post_norm, 0))?;
            lap("norm")?;
            product(Product::GateUp, layer)?;
            lap("gate_up")?;
            let width = Arg::U32(shape.intermediate as u32);
            let swiglu = [Arg::At(scratch.gated), Arg::At(scratch.gate_up), Arg::U32(rows as u32), width];
            let blocks = (rows * shape.intermediate / 8).div_ceil(NUMBER_THREADS as usize);
            device.launch(&kernels.swiglu, (blocks, 1), NUMBER_THREADS, 0, &swiglu)?;
            lap("swiglu")?;
            product(Product::Down, layer)?;
            lap("down")?;
        }
        for (first, count) in self.draw_chunks(sizes.draws) {
            let from = self.device_inputs.at(4 * (places.draw_rows + first));
            device.launch(&kernels.rms_norm, (count, 1), ROW_THREADS, 0, &norm(self.weights.norm, from))?;
            lap("norm")?;
            let operands = self.operands(Product::Head, None);
            self.products.run(Product::Head, self.form(Product::Head), count, operands)?;
            lap("head")?;
            let draw = [
                Arg::At(self.drawn.at(0)),
                Arg::At(self.tokens.at(0)),
                Arg::At(scratch.logits),
                input(places.draws),
                Arg::At(self.masks.at(0)),
                Arg::U32(shape.vocabulary as u32),
                Arg::U32(shape.padded_vocabulary() as u32),
                Arg::U32(shape.vocabulary.div_ceil(32) as u32),
                Arg::U32(first as u32),
            ];
            device.launch(&kernels.draw, (count, 1), DRAW_THREADS, 0, &draw)?;
            lap("draw")?;
        }
        Ok(())
    }

    /// Queues the storing of keys and values and attention.
    fn attend(
        &self,
        number: usize,
        layer: &LayerWeights,
        sizes: Sizes,
        places: &Places,
        lap: &mut impl FnMut(&'static str) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        let (device, kernels, scratch, shape) = (&self.device, &self.kernels, &self.scratch, &self.shape);
        let input = |word: usize| Arg::At(self.device_inputs.at(4 * word));
        let of_layer = page_bytes(shape) * (self.settings.pages + 1);
        let keys = Arg::At(self.cache.at(2 * number * of_layer));
        let values = Arg::At(self.cache.at((2 * number + 1) * of_layer));
        let (positions, tables, pages) = (input(places.positions), input(places.tables), input(places.pages));
        let store = [
            Arg::At(scratch.q),
            keys,
            values,
            Arg::At(scratch.qkv),
            Arg::At(layer.qkv_bias),
            Arg::At(layer.q_norm),
            Arg::At(layer.k_norm),
            Arg::At(self.rotations.at(0)),
            positions,
            tables,
            pages,
            Arg::U32(shape.heads as u32),
            Arg::F32(shape.epsilon),
        ];
        device.launch(&kernels.rope_store, (sizes.rows, 1), ROW_THREADS, 0, &store)?;
        lap("rope_store")?;
        let (out, q) = (Arg::At(scratch.attended), Arg::At(scratch.q));
        let singles = [
            out,
            q,
            keys,
            values,
            input(places.singles),
            positions,
            tables,
            pages,
            input(places.parts_before),
            Arg::At(self.partial.at(0)),
            Arg::At(self.tickets.at(0)),
        ];
        let grid = (sizes.singles * shape.kv_heads, sizes.parts);
        device.launch(&kernels.attend_decode, grid, DECODE_THREADS, 0, &singles)?;
        lap("attend_decode")?;
        let tiles = [out, q, keys, values, input(places.tiles), positions, tables, pages];
        let grid = (sizes.tiles, shape.kv_heads);
        device.launch(&kernels.attend_prompt, grid, PROMPT_THREADS, prompt_shared(shape), &tiles)?;
        lap("attend_prompt")
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // Copies in flight must end before their memory goes. On a lost device nothing is in flight.
        let idle = self.idle();
        drop(idle);
    }
}

impl Drawn {
    fn of_words([token, logprob, chosen]: &[[u8; 4]; 3]) -> Drawn {
        let token = u32::from_ne_bytes(*token);
        let [logprob, chosen] = [logprob, chosen].map(|it| f32::from_ne_bytes(*it));
        Drawn { token: (token != u32::MAX).then_some(token), logprob, chosen }
    }
}

/// Bytes of the keys, or the values, of a page of one layer.
fn page_bytes(shape: &ModelShape) -> usize {
    2 * PAGE * shape.kv_heads * shape.head_dim
}

/// Bytes of partial results of attention.
fn partial_bytes(shape: &ModelShape, parts: usize) -> usize {
    4 * parts * shape.heads * (shape.head_dim + 2)
}
