//! A real server, where it is installed: SkyRL on the processor with a random Qwen3 of two layers.

use crate::common::tokenizer;
use lemon_fakes::SkyrlServer;
use lemon_model::{
    DeviceChoice, Example, LanguagePolicy, Learning, LoraSettings, ModelConfig, ModelFamily, Objective,
    OptimiserSettings, Policy, Precision, SampleRequest, SampleSettings, Sequence, StepSettings,
};
use lemon_num::Random;
use lemon_policy::TrainablePolicy;
use lemon_tinker::{Patience, Reduction, SamplerStart, TinkerKey, TinkerPolicy, TinkerStart};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rank and scale of the adapters; SkyRL has one scale for all.
pub const RANK: usize = 8;
const ALPHA: f64 = 32.0;
/// The first half of the vocabulary: the tokens that a toy task rewards.
const HALF: u32 = 128;
/// Texts in a batch: as many as the server samples at a time.
const BATCH: usize = 16;

/// The learning rate of the step whose gradient is looked at. What is divided by far more than itself moves the adapters as it is.
const RATE: f64 = 1e4;

/// Tensors by name: shape and numbers.
type Adapters = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// A random model that both sides read.
pub fn model(folder: &Path) -> ModelConfig {
    let tokenizer = tokenizer();
    let small = ModelConfig::small(tokenizer.vocabulary().next_multiple_of(64), 64, 2, tokenizer.end());
    let config =
        ModelConfig { family: ModelFamily::Qwen3, attention_bias: false, heads: 2, kv_heads: 1, head_dim: 32, ..small };
    let fresh = LanguagePolicy::fresh(config.clone(), tokenizer, 3, DeviceChoice::Cpu, Learning::Nothing).unwrap();
    fresh.save(&folder.join("model"), Precision::F32).unwrap();
    // Tokens of one kind have something in common in a real model: here those of the first half of the vocabulary.
    let file = folder.join("model/model.safetensors");
    let mut all = tensors(&file);
    let embeddings = &mut all.get_mut("model.embed_tokens.weight").unwrap().1;
    for row in embeddings.chunks_exact_mut(config.hidden).take(HALF as usize) {
        row[..16].iter_mut().for_each(|number| *number += 0.1);
    }
    write(&file, all);
    config
}

fn open(server: &SkyrlServer, folder: &Path, reduction: Option<Reduction>) -> TinkerPolicy {
    open_with(server, folder, reduction, None)
}

pub fn open_with(
    server: &SkyrlServer,
    folder: &Path,
    reduction: Option<Reduction>,
    sampler: Option<SamplerStart>,
) -> TinkerPolicy {
    let start = TinkerStart { reduction, sampler, ..TinkerStart::new(server.url(), "model", folder.join("model")) };
    TinkerPolicy::open(&start, (RANK, 11), &TinkerKey::default(), Patience::default()).unwrap()
}

pub fn step(learning_rate: f64) -> StepSettings {
    StepSettings { learning_rate, temperature: 1.0, clip_norm: 0.0, micro_batch: 0 }
}

/// Texts of random tokens with random advantages, as likely before as `policy` finds them.
fn batch(policy: &TinkerPolicy, seed: u64) -> Vec<Example> {
    let mut random = Random::new(seed);
    let sequences: Vec<Sequence> = (0..BATCH)
        .map(|_| {
            let mut tokens = || -> Vec<u32> {
                let count = random.between(1, 6);
                (0..count).map(|_| random.below(257) as u32).collect()
            };
            Sequence { prompt: tokens(), tokens: tokens(), grammar: None }
        })
        .collect();
    let scores = policy.score(&sequences, 1.0).unwrap();
    let example = |(sequence, old): (Sequence, Vec<f32>)| {
        let advantages = old.iter().map(|_| random.uniform() as f32 * 2.0 - 1.0).collect();
        let weights = old.iter().map(|_| random.uniform() as f32 / 40.0).collect();
        let objective = Objective::Clipped { weights, advantages, old, reference: None, low: 0.2, high: 0.2, kl: 0.0 };
        Example { sequence, objective }
    };
    sequences.into_iter().zip(scores).map(example).collect()
}

/// The adapters that the server saved last to be sampled, by our names.
fn adapters(server: &SkyrlServer, number: u32) -> Adapters {
    let name = format!("ss{number}_seq{number}.tar.gz");
    let archives: Vec<PathBuf> = std::fs::read_dir(server.checkpoints())
        .unwrap()
        .map(|model| model.unwrap().path().join("sampler_weights").join(&name))
        .filter(|archive| archive.exists())
        .collect();
    let [archive] = archives.as_slice() else { panic!("{archives:?}") };
    let folder = tempfile::tempdir().unwrap();
    assert!(Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(folder.path()).status().unwrap().success());
    let file = find(folder.path(), "adapter_model.safetensors").unwrap();
    tensors(&file).into_iter().map(|(name, tensor)| (name.replace("base_model.model.", ""), tensor)).collect()
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    std::fs::read_dir(folder).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() { find(&path, name) } else { path.ends_with(name).then_some(path) }
    })
}

fn tensors(file: &Path) -> Adapters {
    let bytes = std::fs::read(file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let numbers = |data: &[u8]| data.chunks_exact(4).map(|it| f32::from_le_bytes(it.try_into().unwrap())).collect();
    tensors
        .tensors()
        .into_iter()
        .map(|(name, tensor)| (name, (tensor.shape().to_vec(), numbers(tensor.data()))))
        .collect()
}

fn write(file: &Path, tensors: Adapters) {
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .into_iter()
        .map(|(name, (shape, values))| (name, shape, values.iter().flat_map(|it| it.to_le_bytes()).collect()))
        .collect();
    let views = bytes
        .iter()
        .map(|(name, shape, data)| (name.clone(), TensorView::new(Dtype::F32, shape.clone(), data).unwrap()));
    safetensors::serialize_to_file(views, None, file).unwrap();
}

/// The same model with these adapters, computed here.
fn ours(folder: &Path, adapters: &Adapters) -> LanguagePolicy {
    let own = folder.join("ours");
    std::fs::create_dir_all(&own).unwrap();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(folder.join("model").join(name), own.join(name)).unwrap();
    }
    let mut all = tensors(&folder.join("model/model.safetensors"));
    all.extend(adapters.clone());
    write(&own.join("model.safetensors"), all);
    let learning = Learning::Adapters(LoraSettings { rank: RANK, alpha: ALPHA });
    LanguagePolicy::load(&own, DeviceChoice::Cpu, learning).unwrap()
}

/// How far one list of numbers is from another, as a share of its length.
fn distance<'a>(of: impl Iterator<Item = (&'a f32, &'a f32)>) -> f64 {
    let (apart, length) = of.fold((0.0, 0.0), |(apart, length), (one, other)| {
        (apart + f64::from(one - other).powi(2), length + f64::from(*other).powi(2))
    });
    (apart / length).sqrt()
}

/// The server's gradient of a batch is ours to a thousandth: its norm, and every number of it as the change of an adapter.
fn gradients_agree(server: &SkyrlServer, folder: &Path) {
    let mut theirs = open(server, folder, None);
    assert_eq!(theirs.reduction(), Reduction::Mean);
    let prompt = SampleRequest { prompt: vec![1], grammar: None, seed: 1 };
    let saved = |policy: &TinkerPolicy| {
        policy.sample(std::slice::from_ref(&prompt), &SampleSettings { most_tokens: 1, ..Default::default() }).unwrap();
    };
    // One of the two matrices of a new adapter is zero, and the gradient of the other with it: so a step is taken first.
    let first = batch(&theirs, 1);
    theirs.set_optimiser(OptimiserSettings { weight_decay: 0.0, ..Default::default() });
    theirs.update(&first, &step(0.02)).unwrap();
    saved(&theirs);
    let before = adapters(server, 1);
    let mut ours = ours(folder, &before);

    let examples = batch(&theirs, 2);
    let sequences: Vec<Sequence> = examples.iter().map(|example| example.sequence.clone()).collect();
    let scores = [theirs.score(&sequences, 1.0).unwrap().concat(), ours.score(&sequences, 1.0).unwrap().concat()];
    assert!(distance(scores[0].iter().zip(&scores[1])) < 1e-4, "the models differ");

    let plain = OptimiserSettings { beta1: 0.0, epsilon: 1e6, weight_decay: 0.0, ..Default::default() };
    theirs.set_optimiser(plain);
    ours.set_optimiser(plain);
    let reports = [theirs.update(&examples, &step(RATE)).unwrap(), ours.update(&examples, &step(RATE)).unwrap()];
    saved(&theirs);
    let after = adapters(server, 2);
    ours.save_state(&folder.join("moved")).unwrap();
    let own = tensors(&folder.join("moved/model.safetensors"));
    let moved = |of: &Adapters, name: &String| -> Vec<f32> {
        of[name].1.iter().zip(&before[name].1).map(|(after, before)| after - before).collect()
    };
    let (mut their_steps, mut our_steps) = (Vec::new(), Vec::new());
    for names in shared(&before) {
        let of_server: Vec<Vec<f32>> = names.iter().map(|name| moved(&after, name)).collect();
        assert!(of_server.iter().all(|it| *it == of_server[0]), "{names:?}");
        let of_ours: Vec<Vec<f32>> = names.iter().map(|name| moved(&own, name)).collect();
        our_steps.extend((0..of_server[0].len()).map(|at| of_ours.iter().map(|it| it[at]).sum::<f32>()));
        their_steps.extend(of_server.into_iter().next().unwrap());
    }
    let each = distance(their_steps.iter().zip(&our_steps));
    let norm = our_steps.iter().map(|it| f64::from(*it).powi(2)).sum::<f64>().sqrt() * plain.epsilon / RATE;
    let apart = (reports[0].gradient_norm / norm - 1.0).abs();
    eprintln!(
        "gradient: norms {:.6} and {norm:.6}, apart by {apart:.1e}; {} numbers, apart by {each:.1e}; losses {:.8} and {:.8}",
        reports[0].gradient_norm,
        our_steps.len(),
        reports[0].loss,
        reports[1].loss
    );
    assert!(norm > 0.01 && our_steps.len() > 1_000);
    assert!(apart < 1e-3 && each < 1e-3);
    assert!((reports[0].loss - reports[1].loss).abs() < 1e-5);
}

/// The names of each tensor that the server has once: queries, keys and values share the first matrix of their adapters there, and so
/// do the two that a gated unit begins with. Its gradient is then the sum of those that are apart here.
fn shared(adapters: &Adapters) -> Vec<Vec<String>> {
    let mut groups: Vec<Vec<String>> = Vec::new();
    for (name, tensor) in adapters {
        match groups.iter_mut().find(|group| adapters[&group[0]] == *tensor) {
            Some(group) => group.push(name.clone()),
            None => groups.push(vec![name.clone()]),
        }
    }
    // Of each layer: one matrix of three, one of two, and the others alone.
    let mut sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [vec![1; 18], vec![2, 2, 3, 3]].concat(), "{groups:?}");
    groups
}

/// What share of a text are tokens of the first half of the vocabulary.
fn reward(tokens: &[u32]) -> f64 {
    tokens.iter().filter(|token| **token < HALF).count() as f64 / tokens.len().max(1) as f64
}

/// Five steps of GRPO raise the reward.
fn a_toy_task_is_learned(server: &SkyrlServer, folder: &Path) {
    let mut policy = open(server, folder, Some(Reduction::Mean));
    policy.set_optimiser(OptimiserSettings { weight_decay: 0.0, ..Default::default() });
    let settings = SampleSettings { most_tokens: 8, ..Default::default() };
    let write = |policy: &TinkerPolicy, step: u64| {
        let seed = |text: u64| 1_000 * step + text;
        let requests: Vec<SampleRequest> = (0..BATCH as u64)
            .map(|it| SampleRequest { prompt: vec![200, 201, 202], grammar: None, seed: seed(it) })
            .collect();
        policy.sample(&requests, &settings).unwrap()
    };
    let mut rewards = Vec::new();
    for number in 0..=5 {
        let texts: Vec<Vec<u32>> = write(&policy, number).into_iter().map(|sample| sample.tokens).collect();
        let mean = texts.iter().map(|tokens| reward(tokens)).sum::<f64>() / BATCH as f64;
        rewards.push(mean);
        let sequence = |tokens: Vec<u32>| Sequence { prompt: vec![200, 201, 202], tokens, grammar: None };
        let sequences: Vec<Sequence> = texts.into_iter().map(sequence).collect();
        let scores = policy.score(&sequences, 1.0).unwrap();
        let example = |(sequence, old): (Sequence, Vec<f32>)| {
            let (tokens, advantage) = (old.len(), (reward(&sequence.tokens) - mean) as f32);
            let (weights, advantages) = (vec![1.0 / (8 * BATCH) as f32; tokens], vec![advantage; tokens]);
            let objective =
                Objective::Clipped { weights, advantages, old, reference: None, low: 0.2, high: 0.2, kl: 0.0 };
            Example { sequence, objective }
        };
        let batch: Vec<Example> = sequences.into_iter().zip(scores).map(example).collect();
        policy.update(&batch, &step(0.01)).unwrap();
    }
    eprintln!("rewards of a toy task, before each step: {rewards:?}");
    assert!(rewards[5] > rewards[0] + 0.1, "{rewards:?}");
}

#[test]
fn a_real_server_learns_as_this_program_does() {
    let folder = tempfile::tempdir().unwrap();
    model(folder.path());
    let Some(server) = SkyrlServer::start(folder.path()) else { return };
    gradients_agree(&server, folder.path());
    a_toy_task_is_learned(&server, folder.path());
}
