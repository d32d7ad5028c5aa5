//! A small vocabulary, a fake server, and a policy on it.

use lemon_fakes::{FakeTinker, TinkerWorld};
use lemon_model::{Example, Objective, PolicyError, SampleRequest, SampleSettings, Sequence, StepSettings, Tokenizer};
use lemon_tinker::{Patience, TinkerKey, TinkerPolicy, TinkerStart};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// The rows of the model: a few more than the tokenizer has tokens, as in most models.
pub const VOCABULARY: u32 = 260;
/// Tokens that it reads.
pub const POSITIONS: usize = 64;

/// The files of a model without weights: a vocabulary of bytes.
pub fn files() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    tokenizer().save(folder.path()).unwrap();
    let config = format!("{{\"vocab_size\": {VOCABULARY}, \"max_position_embeddings\": {POSITIONS}}}");
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    folder
}

pub fn tokenizer() -> Tokenizer {
    Tokenizer::train(std::iter::empty(), 257, &["<|end|>"]).unwrap()
}

/// The tokens of a text and the one that ends it.
pub fn written(text: &str) -> Vec<u32> {
    [tokenizer().encode_plain(text), vec![tokenizer().end()]].concat()
}

pub fn world() -> TinkerWorld {
    let texts = ["one", "two", "three"].map(written).to_vec();
    TinkerWorld { vocabulary: VOCABULARY, texts, ..TinkerWorld::default() }
}

pub fn fake() -> FakeTinker {
    FakeTinker::start(world()).unwrap()
}

/// Enough for a busy machine, and short pauses.
pub fn patience() -> Patience {
    Patience {
        away: Duration::from_secs(60),
        pause: Duration::from_millis(1),
        reply: Duration::from_secs(60),
        heartbeat: Duration::from_millis(20),
    }
}

pub fn start(url: &str, folder: &Path) -> TinkerStart {
    TinkerStart::new(url, "tiny", folder)
}

pub fn open_at(start: &TinkerStart) -> Result<TinkerPolicy, PolicyError> {
    TinkerPolicy::open(start, (4, 7), &TinkerKey::default(), patience())
}

pub fn open(fake: &FakeTinker) -> TinkerPolicy {
    let folder = files();
    open_at(&start(&fake.url(), folder.path())).unwrap()
}

pub fn request(prompt: &str, seed: u64) -> SampleRequest {
    SampleRequest { prompt: tokenizer().encode_plain(prompt), grammar: None, seed }
}

pub fn settings() -> SampleSettings {
    SampleSettings { most_tokens: 16, ..SampleSettings::default() }
}

pub fn sequence(prompt: &str, text: &str) -> Sequence {
    Sequence { prompt: tokenizer().encode_plain(prompt), tokens: written(text), grammar: None }
}

/// An example whose tokens all have this advantage, and were as likely before as in a new fake model.
pub fn example(text: &str, advantage: f32) -> Example {
    let sequence = sequence("Say it.", text);
    let tokens = sequence.tokens.len();
    let objective = Objective::Clipped {
        weights: vec![0.5; tokens],
        advantages: vec![advantage; tokens],
        old: vec![-2.0; tokens],
        reference: None,
        low: 0.2,
        high: 0.2,
        kl: 0.0,
    };
    Example { sequence, objective }
}

pub fn step(learning_rate: f64) -> StepSettings {
    StepSettings { learning_rate, temperature: 1.0, clip_norm: 0.0, micro_batch: 0 }
}

/// The number of the only model of a fake.
#[track_caller]
pub fn theta(fake: &FakeTinker) -> f64 {
    let weights: Vec<f64> = fake.weights().into_iter().flatten().collect();
    assert_eq!(weights.len(), 1, "{weights:?}");
    weights[0]
}

/// What a failed operation says, and its hint.
#[track_caller]
pub fn fault<T: std::fmt::Debug>(result: Result<T, PolicyError>) -> (String, Option<&'static str>) {
    let error = result.unwrap_err();
    (error.to_string(), error.hint())
}
