//! The self-check: every kernel, in whole steps of small models, against plain arithmetic.

use crate::batch::{Batch, OF_DRAW, PAGE, PositionRow, Sampling};
use crate::device::Device;
use crate::error::GpuError;
use crate::host::{HostModel, HostSequence, competition};
use crate::kernels::Numbers;
use crate::model::{Drawn, Model, ModelSettings};
use crate::shape::{ModelShape, frequencies};
use std::sync::Arc;

/// One thing that was checked.
#[derive(Debug, Clone)]
pub struct CheckRow {
    /// What.
    pub name: String,
    /// The largest error found.
    pub error: f64,
    /// The largest error that passes.
    pub limit: f64,
}

impl CheckRow {
    /// Whether the error is within the limit. NaN is not.
    pub fn passes(&self) -> bool {
        self.error <= self.limit
    }
}

const VOCABULARY: usize = 501;
/// bf16 has 8 bits: sums of many rounded products differ by about one in a hundred. f16 has 11.
fn limit(numbers: Numbers) -> f64 {
    match numbers {
        Numbers::Bf16 => 2e-2,
        Numbers::F16 => 4e-3,
    }
}

const GREEDY: Sampling = Sampling { temperature: 0.0, top_p: 1.0, seed: 0, index: 0, mask: None };
const SETTINGS: ModelSettings = ModelSettings {
    rows: 1_300,
    draws: 64,
    pages: 200,
    positions: 1_280,
    graphs: true,
    tuning: true,
    numbers: Numbers::F16,
};

/// Checks small models of several shapes on the device.
///
/// # Errors
/// The device failed. A result that is wrong is not an error but a row that does not pass.
pub fn check(device: &Arc<Device>) -> Result<Vec<CheckRow>, GpuError> {
    let shape = |heads, kv_heads, head_dim| ModelShape {
        vocabulary: VOCABULARY,
        hidden: 128,
        intermediate: 264,
        layers: 2,
        heads,
        kv_heads,
        head_dim,
        frequencies: frequencies(1e4, head_dim),
        positions: SETTINGS.positions,
        ..ModelShape::smol_135m()
    };
    let shapes = [
        ("6 queries per key, width 128, biases", ModelShape { qkv_bias: true, ..shape(12, 2, 128) }),
        ("3 queries per key, width 64", shape(9, 3, 64)),
        ("2 queries per key, width 128, norms of queries", ModelShape { qk_norm: true, ..shape(4, 2, 128) }),
        ("10 queries per key, width 32, own head", ModelShape { tied: false, o_bias: true, ..shape(10, 1, 32) }),
    ];
    let mut rows = Vec::new();
    for ((name, shape), numbers) in
        shapes.iter().flat_map(|shape| [Numbers::F16, Numbers::Bf16].map(|numbers| (shape.clone(), numbers)))
    {
        let name = format!("{numbers:?}, {name}");
        let host = HostModel::random(shape, 11);
        let mut model = Model::new(device, host.shape().clone(), ModelSettings { numbers, ..SETTINGS })?;
        for (tensor, _, _) in host.shape().tensors() {
            model.write(tensor, 0, host.tensor(tensor))?;
        }
        if let Some(tensor) = model.missing() {
            return Err(GpuError::Request(format!("{tensor:?} was not written")));
        }
        check_steps((&name, numbers), &host, &mut model, &mut rows)?;
        check_draws(&name, &host, &mut model, &mut rows)?;
    }
    Ok(rows)
}

/// A sequence on the device and on the host.
#[derive(Clone)]
struct Sequence {
    tokens: Vec<u32>,
    read: usize,
    pages: Vec<u32>,
    host: HostSequence,
}

impl Sequence {
    fn new(seed: u32, length: usize) -> Sequence {
        let tokens = (0..length as u32).map(|at| (at * at * 7 + at * 31 + seed * 97) % VOCABULARY as u32).collect();
        Sequence { tokens, read: 0, pages: Vec::new(), host: HostSequence::default() }
    }

    /// Adds rows for its next `count` tokens to a batch, and what the host says the logits after them are.
    fn add(&mut self, batch: &mut Batch, host: &HostModel, free: &mut Vec<u32>, count: usize) -> Vec<f32> {
        while self.pages.len() * PAGE < self.read + count {
            self.pages.extend(free.pop());
        }
        let pages = batch.pages.len() as u32;
        batch.pages.extend_from_slice(&self.pages);
        let mut logits = Vec::new();
        for position in self.read..self.read + count {
            let token = self.tokens[position];
            batch.rows.push(PositionRow { token, position: position as u32, pages });
            logits = host.advance(&mut self.host, token);
        }
        self.read += count;
        logits
    }
}

/// Prompts in pieces beside tokens that are being written, shared pages, long texts, and graphs.
fn check_steps(
    (name, numbers): (&str, Numbers),
    host: &HostModel,
    model: &mut Model,
    rows: &mut Vec<CheckRow>,
) -> Result<(), GpuError> {
    // Pages in no order.
    let mut free: Vec<u32> = (0..SETTINGS.pages as u32).map(|at| at * 77 % SETTINGS.pages as u32).collect();
    let mut texts = [Sequence::new(1, 37), Sequence::new(2, 600), Sequence::new(3, 1_150), Sequence::new(4, 5)];
    let mut push =
        |what: &str, error| rows.push(CheckRow { name: format!("{name}: {what}"), error, limit: limit(numbers) });
    // Each step: how many tokens each text reads.
    let pieces: [(&str, [usize; 4]); 3] = [
        ("prompts", [37, 333, 700, 0]),
        ("prompts in pieces beside tokens", [1, 267, 450, 5]),
        ("tokens", [1, 1, 1, 1]),
    ];
    for (what, counts) in pieces {
        let (mut batch, mut expected) = (Batch::default(), Vec::new());
        for (text, count) in texts.iter_mut().zip(counts).filter(|(_, count)| *count > 0) {
            text.tokens.resize(text.tokens.len().max(text.read + count), 7);
            expected.push(text.add(&mut batch, host, &mut free, count));
            batch.draws.push((batch.rows.len() as u32 - 1, GREEDY));
        }
        let pending = model.submit(&batch)?;
        let drawn = model.wait(pending)?;
        push(what, worst(model, &expected, &drawn)?);
    }
    // A fork: the same pages for all but the last, unfinished page.
    let mut fork = texts[1].clone();
    let shared = fork.read / PAGE;
    fork.pages.truncate(shared);
    fork.read = shared * PAGE;
    fork.host = HostSequence::default();
    for token in &fork.tokens[..fork.read] {
        host.advance(&mut fork.host, *token);
    }
    fork.tokens.truncate(fork.read);
    fork.tokens.extend([9, 8, 7, 6]);
    let mut batch = Batch::default();
    let expected = fork.add(&mut batch, host, &mut free, 4);
    batch.draws.push((3, GREEDY));
    let pending = model.submit(&batch)?;
    let drawn = model.wait(pending)?;
    push("a fork of a text", worst(model, &[expected], &drawn)?);
    // Steps that follow each other without the host: each token is the one that was drawn before.
    let mut batch = Batch::default();
    let mut all: Vec<Sequence> = texts.into_iter().chain([fork]).collect();
    let mut expected = Vec::new();
    for text in &mut all {
        text.tokens.push(3);
        expected.push(text.add(&mut batch, host, &mut free, 1));
        batch.draws.push((batch.rows.len() as u32 - 1, GREEDY));
    }
    let mut last = Some(model.submit(&batch)?);
    let mut error: f64 = 0.0;
    for _ in 0..4 {
        let mut next = Batch::default();
        for (number, text) in all.iter_mut().enumerate() {
            // The host follows later: first the rows, with tokens that only the device knows.
            while text.pages.len() * PAGE < text.read + 1 {
                text.pages.extend(free.pop());
            }
            let row = PositionRow {
                token: OF_DRAW | number as u32,
                position: text.read as u32,
                pages: next.pages.len() as u32,
            };
            next.pages.extend_from_slice(&text.pages);
            next.rows.push(row);
            next.draws.push((number as u32, GREEDY));
        }
        let pending = model.submit(&next)?;
        let Some(before) = last.replace(pending) else { break };
        let drawn = model.wait(before)?;
        for (text, drawn) in all.iter_mut().zip(&drawn) {
            let token = drawn.token.unwrap_or(0);
            text.tokens.push(token);
            expected.push(host.advance(&mut text.host, token));
            text.read += 1;
        }
        expected.drain(..all.len());
    }
    if let Some(pending) = last {
        let drawn = model.wait(pending)?;
        error = error.max(worst(model, &expected, &drawn)?);
    }
    push("steps in a row on the device", error);
    Ok(())
}

/// The largest relative distance of logits from what the host expects, and of the drawn tokens from the likeliest.
fn worst(model: &Model, expected: &[Vec<f32>], drawn: &[Drawn]) -> Result<f64, GpuError> {
    let mut worst: f64 = if expected.len() == drawn.len() { 0.0 } else { f64::NAN };
    for (number, (expected, drawn)) in expected.iter().zip(drawn).enumerate() {
        let logits = model.logits(number)?;
        let difference: f64 = logits.iter().zip(expected).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let size: f64 = expected.iter().map(|it| f64::from(*it).powi(2)).sum();
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let likeliest = drawn.token.and_then(|token| logits.get(token as usize)).is_some_and(|it| *it == most);
        let error = if likeliest { (difference / size).sqrt() } else { f64::NAN };
        worst = if error.is_nan() || worst.is_nan() { f64::NAN } else { worst.max(error) };
    }
    Ok(worst)
}

/// Draws with temperatures, cuts and masks, against the same draws on the host.
fn check_draws(name: &str, host: &HostModel, model: &mut Model, rows: &mut Vec<CheckRow>) -> Result<(), GpuError> {
    let mut batch = Batch::default();
    let mut text = Sequence::new(5, 3);
    text.add(&mut batch, host, &mut vec![5], 3);
    let words = VOCABULARY.div_ceil(32);
    batch.masks = (0..2 * words).map(|at| if at < words { 0x0101_0101 } else { 0 }).collect();
    batch.masks[words + 3] = 1 << 9;
    for index in 0..48u32 {
        let temperature = [0.0, 0.3, 1.0, 1.7][index as usize % 4];
        let top_p = [1.0, 0.9, 0.4][index as usize % 3];
        let mask = [None, None, Some(0), Some(1)][index as usize / 12];
        let sampling = Sampling { temperature, top_p, seed: 1 << 40 | 17, index: u64::from(index), mask };
        batch.draws.push((index % 3, sampling));
    }
    let pending = model.submit(&batch)?;
    let drawn = model.wait(pending)?;
    let (mut token_error, mut logprob_error) = (0.0f64, 0.0f64);
    for (number, ((_, how), drawn)) in batch.draws.iter().zip(&drawn).enumerate() {
        let logits = model.logits(number)?;
        let mask = how.mask.map(|mask| &batch.masks[mask as usize * words..][..words]);
        let tokens = competition(&logits, mask, how);
        let plain = competition(&logits, None, &GREEDY);
        let best = tokens.iter().map(|(value, _)| *value).fold(f64::NEG_INFINITY, f64::max);
        let Some((token, (value, chosen))) = drawn.token.and_then(|at| Some((at, *tokens.get(at as usize)?))) else {
            token_error = f64::NAN;
            continue;
        };
        // A token that is nearly as good as the winner may win by rounding.
        token_error += best - value;
        let off =
            (chosen - f64::from(drawn.chosen)).abs().max((plain[token as usize].1 - f64::from(drawn.logprob)).abs());
        logprob_error = if off.is_nan() { off } else { logprob_error.max(off) };
    }
    if drawn.len() != batch.draws.len() {
        token_error = f64::NAN;
    }
    rows.push(CheckRow { name: format!("{name}: tokens drawn"), error: token_error, limit: 1e-3 });
    rows.push(CheckRow { name: format!("{name}: log-probabilities"), error: logprob_error, limit: 1e-3 });
    Ok(())
}
