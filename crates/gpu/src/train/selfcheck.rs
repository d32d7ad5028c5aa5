//! Training on the device against plain arithmetic.

use crate::check::CheckRow;
use crate::device::Device;
use crate::error::GpuError;
use crate::host::{HostModel, rounded, uniform};
use crate::shape::{ModelShape, Tensor, frequencies};
use crate::train::oracle::{HostChoice, Oracle, times, times_transposed};
use crate::train::parameters::Linear;
use crate::train::{
    AdamStep, AdapterMatrix, ChosenToken, Kept, Scored, TrainBatch, TrainGroup, TrainLearning, TrainSettings,
    TrainText, Trainer,
};
use std::sync::Arc;

const VOCABULARY: usize = 301;
const TEMPERATURE: f32 = 0.8;
const RANK: usize = 12;
const ALPHA: f32 = 24.0;

/// Checks gradients, log-probabilities and a step of the optimiser for small models of several shapes.
///
/// # Errors
/// The device failed. A result that is wrong is not an error but a row that does not pass.
pub fn check_training(device: &Arc<Device>) -> Result<Vec<CheckRow>, GpuError> {
    let shape = |heads, kv_heads, head_dim| ModelShape {
        vocabulary: VOCABULARY,
        hidden: 128,
        intermediate: 264,
        layers: 2,
        heads,
        kv_heads,
        head_dim,
        frequencies: frequencies(1e4, head_dim),
        ..ModelShape::smol_135m()
    };
    let adapters = TrainLearning::Adapters { rank: RANK, alpha: ALPHA };
    let cases = [
        (
            "training all, 6 queries per key, width 128, biases",
            ModelShape { qkv_bias: true, ..shape(6, 1, 128) },
            TrainLearning::Everything,
        ),
        (
            "training all, 3 queries per key, width 64, own head",
            ModelShape { tied: false, ..shape(6, 2, 64) },
            TrainLearning::Everything,
        ),
        (
            "training adapters, 2 queries per key, width 128, biases",
            ModelShape { qkv_bias: true, ..shape(4, 2, 128) },
            adapters,
        ),
    ];
    let mut rows = Vec::new();
    for (name, shape, learning) in cases {
        check_model(device, name, &HostModel::random(shape, 13), learning, &mut rows)?;
    }
    Ok(rows)
}

fn check_model(
    device: &Arc<Device>,
    name: &str,
    host: &HostModel,
    learning: TrainLearning,
    rows: &mut Vec<CheckRow>,
) -> Result<(), GpuError> {
    let shape = host.shape();
    let settings = TrainSettings { rows: 512, head_rows: 100, positions: 256, learning };
    let mut trainer = Trainer::new(device, shape.clone(), settings)?;
    for (tensor, _, _) in shape.tensors() {
        trainer.write(tensor, 0, host.tensor(tensor))?;
    }
    let adapters = random_adapters(shape, learning);
    let mut oracle = Oracle::new(host);
    for (matrix, values) in &adapters {
        trainer.write_adapter(*matrix, values)?;
    }
    merge(&mut oracle, host, &adapters);
    let batch = batch();
    let slope = |number: usize| ((number * 37 % 21) as f32 - 10.0) / 7.0;
    let mut expected = Vec::new();
    let words = VOCABULARY.div_ceil(32);
    for text in batch.groups.iter().flat_map(|group| group.texts.iter().map(|text| (&group.shared, text))) {
        let (shared, text) = text;
        let tokens = [shared.as_slice(), &text.tokens].concat();
        let first = expected.len();
        let choice = |(number, choice): (usize, &ChosenToken)| HostChoice {
            after: shared.len() + choice.after as usize,
            token: choice.token as usize,
            mask: choice.mask.map(|mask| &batch.masks[mask as usize * words..][..words]),
            // Both passes.
            slope: 2.0 * slope(first + number),
        };
        let choices: Vec<HostChoice<'_>> = text.choices.iter().enumerate().map(choice).collect();
        expected.extend(oracle.add(&tokens, &choices, TEMPERATURE));
    }
    let mut slopes = |first: usize, scored: &[Scored]| (first..first + scored.len()).map(slope).collect();
    let scored = trainer.score(&batch, TEMPERATURE)?;
    // Twice: gradients add up.
    trainer.accumulate(&batch, TEMPERATURE, &mut slopes)?;
    let again = trainer.accumulate(&batch, TEMPERATURE, &mut slopes)?;
    let mut push =
        |what: &str, error: f64, limit| rows.push(CheckRow { name: format!("{name}: {what}"), error, limit });
    let distance = |found: fn(&Scored) -> f32, expected_at: fn(&(f32, f32)) -> f32| -> f64 {
        let pairs = scored.iter().chain(&again).zip(expected.iter().cycle());
        let worst = pairs.map(|(a, b)| f64::from((found(a) - expected_at(b)).abs()));
        if scored.len() == expected.len() { worst.fold(0.0, larger) } else { f64::NAN }
    };
    push("log-probabilities", distance(|it| it.logprob, |it| it.0), 5e-2);
    push("entropies", distance(|it| it.entropy, |it| it.1), 5e-2);
    let mut angle: f64 = 0.0;
    let mut length: f64 = 0.0;
    let mut all = 0.0;
    for (found, expected) in gradients(&trainer, &oracle, &adapters)? {
        let (a, b, product) = (norm(&found), norm(&expected), inner(&found, &expected));
        angle = larger(angle, 1.0 - product / (a * b));
        length = larger(length, (a / b - 1.0).abs());
        all += a * a;
    }
    push("angle of gradients, 1 - cosine", angle, 1e-3);
    push("length of gradients", length, 2e-2);
    push("norm of the gradient", (trainer.gradient_norm()? / all.sqrt() - 1.0).abs(), 1e-4);
    push("a step of AdamW", check_step(&mut trainer, &adapters)?, 1e-4);
    trainer.forget()?;
    push("a forgotten gradient", trainer.gradient_norm()?, 0.0);
    Ok(())
}

/// Moves the parameters on the device and on the host; the largest distance, in learning rates.
fn check_step(trainer: &mut Trainer, adapters: &[(AdapterMatrix, Vec<f32>)]) -> Result<f64, GpuError> {
    let step = AdamStep { rate: 1e-2, beta1: 0.9, beta2: 0.98, epsilon: 1e-8, weight_decay: 0.1, step: 1, scale: 0.5 };
    let tensors: Vec<Tensor> = trainer.shape().tensors().into_iter().map(|it| it.0).collect();
    let read = |trainer: &Trainer, kept| -> Result<Vec<Vec<f32>>, GpuError> {
        match adapters.is_empty() {
            true => tensors.iter().map(|tensor| trainer.read(kept, *tensor)).collect(),
            false => adapters.iter().map(|(matrix, _)| trainer.read_adapter(kept, *matrix)).collect(),
        }
    };
    let decays: Vec<bool> = match adapters.is_empty() {
        true => trainer.shape().tensors().into_iter().map(|(_, rows, _)| rows > 1).collect(),
        false => vec![true; adapters.len()],
    };
    let (before, gradients) = (read(trainer, Kept::Values)?, read(trainer, Kept::Gradients)?);
    trainer.step(&step)?;
    let after = read(trainer, Kept::Values)?;
    let mut worst: f64 = 0.0;
    for (((before, gradient), after), decays) in before.iter().zip(&gradients).zip(&after).zip(decays) {
        for ((before, gradient), after) in before.iter().zip(gradient).zip(after) {
            let (before, slope) = (f64::from(*before), f64::from(*gradient) * step.scale);
            let shrunk = if decays { before * (1.0 - step.rate * step.weight_decay) } else { before };
            let expected = shrunk - step.rate * slope / (slope.abs() + step.epsilon);
            worst = larger(worst, (expected - f64::from(*after)).abs() / step.rate);
        }
    }
    Ok(worst)
}

/// Two texts that continue one prompt, one of them long, and one alone; some choices, one of them under a mask.
fn batch() -> TrainBatch {
    let tokens =
        |seed: u32, count: u32| (0..count).map(move |at| (at * at * 7 + at * 31 + seed * 97) % VOCABULARY as u32);
    let choice = |after: u32| ChosenToken { after, token: (after * 17 + 5) % VOCABULARY as u32, mask: None };
    let text = |seed, count: u32, every: usize| TrainText {
        tokens: tokens(seed, count).collect(),
        choices: (0..count).step_by(every).map(choice).collect(),
    };
    let mut masked = text(4, 131, 3);
    masked.choices[1].mask = Some(1);
    let words = VOCABULARY.div_ceil(32);
    let masks = (0..2 * words).map(|at| if at < words { 0 } else { 0x5a5a_ffff }).collect();
    let token = masked.choices[1].token as usize;
    let mut batch = TrainBatch {
        groups: vec![
            TrainGroup { shared: tokens(1, 75).collect(), texts: vec![text(2, 9, 1), text(3, 70, 1), text(5, 1, 1)] },
            TrainGroup { shared: Vec::new(), texts: vec![masked] },
        ],
        masks,
    };
    batch.masks[words + token / 32] |= 1 << (token % 32);
    batch
}

fn random_adapters(shape: &ModelShape, learning: TrainLearning) -> Vec<(AdapterMatrix, Vec<f32>)> {
    let TrainLearning::Adapters { rank, .. } = learning else { return Vec::new() };
    let mut state = 99;
    let mut all = Vec::new();
    for (layer, linear) in (0..shape.layers).flat_map(|layer| Linear::ALL.map(|linear| (layer, linear))) {
        for (of_stack, outs) in linear.outs(shape).into_iter().enumerate() {
            for (widens, size, width) in
                [(false, rank * linear.ins(shape), linear.ins(shape)), (true, outs * rank, 100)]
            {
                let matrix = AdapterMatrix { layer, part: linear.part(), of_stack, widens };
                let most = 1.0 / (width as f32).sqrt();
                all.push((matrix, (0..size).map(|_| rounded(most * uniform(&mut state))).collect()));
            }
        }
    }
    all
}

/// Pairs of the first and the second matrix.
fn pairs(adapters: &[(AdapterMatrix, Vec<f32>)]) -> impl Iterator<Item = (AdapterMatrix, &[f32], &[f32])> {
    adapters.chunks(2).filter_map(|pair| match pair {
        [(matrix, first), (_, second)] => Some((*matrix, first.as_slice(), second.as_slice())),
        _ => None,
    })
}

/// The rows of a stacked matrix that an adapter belongs to.
fn rows_of(shape: &ModelShape, matrix: &AdapterMatrix) -> (usize, usize, usize) {
    let linear = Linear::ALL.into_iter().find(|it| it.part() == matrix.part).unwrap_or(Linear::O);
    let outs = linear.outs(shape);
    let ins = linear.ins(shape);
    (ins, outs[..matrix.of_stack].iter().sum::<usize>() * ins, outs[matrix.of_stack] * ins)
}

/// Adds adapters to the matrices of the host's model.
fn merge(oracle: &mut Oracle<'_>, host: &HostModel, adapters: &[(AdapterMatrix, Vec<f32>)]) {
    for (matrix, first, second) in pairs(adapters) {
        let (ins, start, size) = rows_of(host.shape(), &matrix);
        let tensor = Tensor::Layer(matrix.layer, matrix.part);
        let weight = oracle.changed.entry(tensor).or_insert_with(|| host.tensor(tensor).to_vec());
        let product = second.chunks(RANK).flat_map(|row| times(row, first, RANK)).collect::<Vec<f32>>();
        debug_assert_eq!(product.len(), size);
        for (to, add) in weight[start..start + size].iter_mut().zip(product) {
            *to += ALPHA / RANK as f32 * add;
        }
        debug_assert_eq!(ins * size / ins, size);
    }
}

/// What was found, and what was expected.
type Beside = (Vec<f32>, Vec<f32>);

/// Gradients on the device beside those of the host.
fn gradients(
    trainer: &Trainer,
    oracle: &Oracle<'_>,
    adapters: &[(AdapterMatrix, Vec<f32>)],
) -> Result<Vec<Beside>, GpuError> {
    let mut all = Vec::new();
    if adapters.is_empty() {
        for (tensor, _, _) in trainer.shape().tensors() {
            let expected = oracle.gradients.get(&tensor).cloned().unwrap_or_default();
            all.push((trainer.read(Kept::Gradients, tensor)?, expected));
        }
        return Ok(all);
    }
    let scale = ALPHA / RANK as f32;
    for (matrix, first, second) in pairs(adapters) {
        let (ins, start, size) = rows_of(trainer.shape(), &matrix);
        let tensor = Tensor::Layer(matrix.layer, matrix.part);
        let Some(of_weight) = oracle.gradients.get(&tensor) else { continue };
        let of_weight = &of_weight[start..start + size];
        // d second = scale · d weight · firstᵀ; d first = scale · secondᵀ · d weight.
        let of_second = times_transposed(of_weight, first, ins);
        let mut of_first = vec![0f32; first.len()];
        for (row, factors) in of_weight.chunks(ins).zip(second.chunks(RANK)) {
            for (to, factor) in of_first.chunks_mut(ins).zip(factors) {
                to.iter_mut().zip(row).for_each(|(to, slope)| *to += factor * slope);
            }
        }
        for (widens, expected) in [(false, of_first), (true, of_second)] {
            let found = trainer.read_adapter(Kept::Gradients, AdapterMatrix { widens, ..matrix })?;
            all.push((found, expected.into_iter().map(|it| it * scale).collect()));
        }
    }
    Ok(all)
}

fn inner(a: &[f32], b: &[f32]) -> f64 {
    let same = a.len() == b.len();
    let sum: f64 = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    if same { sum } else { f64::NAN }
}

fn norm(a: &[f32]) -> f64 {
    inner(a, a).sqrt()
}

/// The larger one; NaN if one is.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}
