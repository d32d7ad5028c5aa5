//! The model against what others computed, and against itself: alone, in batches, with a cache, and learning.

mod checkpoints;
mod gpu;
mod value;

use crate::config::ModelConfig;
use crate::files::ModelFiles;
use crate::language::{DeviceChoice, LanguagePolicy, Precision};
use crate::model::Model;
use crate::ops::Ops;
use crate::optimiser::Gradients;
use crate::parameters::{Learning, Parameters};
use crate::rows::{Cache, Part, Rows};
use crate::tensors::WeightOrigin;
use crate::weights::WeightFiles;
use crate::{
    Example, Finish, LoraSettings, Objective, Policy, PolicyError, SampleRequest, SampleSettings, Sequence,
    StepSettings, Tokenizer,
};
use candle_core::{DType, Device, Tensor};
use lemon_num::Random;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// `python/fixtures.py` made it.
#[derive(Deserialize)]
struct Fixtures {
    cases: Vec<Fixture>,
}

#[derive(Deserialize)]
struct Fixture {
    name: String,
    seed: u64,
    config: serde_json::Value,
    texts: Vec<Vec<u32>>,
    logits: Vec<Vec<f32>>,
    loss: f64,
    gradient_norms: BTreeMap<String, f64>,
}

fn fixtures() -> Vec<Fixture> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/logits.json");
    serde_json::from_slice::<Fixtures>(&std::fs::read(path).unwrap()).unwrap().cases
}

/// A folder as `transformers` would have saved it, with the weights of the formula.
fn folder_of(fixture: &Fixture) -> (tempfile::TempDir, ModelConfig) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), fixture.config.to_string()).unwrap();
    let config = ModelConfig::load(ModelFiles::Disk(folder.path())).unwrap();
    let tensors: Vec<(String, Tensor)> = config
        .tensor_shapes()
        .into_iter()
        .map(|(name, shape)| {
            let mut random = Random::named(fixture.seed, &name);
            let draw = |_| {
                let uniform = random.uniform();
                (if name.ends_with("norm.weight") { 0.5 + uniform } else { (uniform - 0.5) * 0.4 }) as f32
            };
            let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(draw).collect();
            (name.clone(), Tensor::from_vec(values, shape, &Device::Cpu).unwrap())
        })
        .collect();
    crate::weights::write(&folder.path().join("model.safetensors"), &tensors, DType::F32).unwrap();
    (folder, config)
}

fn model_of(fixture: &Fixture, ops: Ops) -> Model {
    let (folder, config) = folder_of(fixture);
    let origin = WeightOrigin::Files(ModelFiles::Disk(folder.path()));
    let parameters = Parameters::new(&config, &origin, Learning::Everything, DType::F32, &Device::Cpu).unwrap();
    let mut model = Model::new(config, parameters, Device::Cpu, DType::F32).unwrap();
    model.ops = ops;
    model
}

#[track_caller]
fn close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    assert!(worst < 1e-4, "{what}: off by {worst}");
}

fn all_logits(model: &Model, rows: &Rows) -> Vec<Vec<f32>> {
    model.logits(&model.hidden(rows, None).unwrap()).unwrap().to_vec2().unwrap()
}

#[test]
fn logits_are_those_of_transformers() {
    for fixture in fixtures() {
        let model = model_of(&fixture, Ops::Fused);
        let texts: Vec<&[u32]> = fixture.texts.iter().map(Vec::as_slice).collect();
        // All texts in one pass.
        let (rows, starts) = Rows::of_texts(&texts);
        let logits = all_logits(&model, &rows);
        for (text, start) in starts.iter().enumerate() {
            let found = logits[*start..start + texts[text].len()].concat();
            close(&found, &fixture.logits[text], &fixture.name);
        }
        // Each alone, composed of plain operations.
        let composed = model_of(&fixture, Ops::Composed);
        for (text, expected) in texts.iter().zip(&fixture.logits) {
            let (rows, _) = Rows::of_texts(&[text]);
            close(&all_logits(&composed, &rows).concat(), expected, &format!("{}, composed", fixture.name));
        }
        // In windows, as a GPU needs them: the shorter texts share one, and what is left of it is filled.
        let many = [texts[1], texts[0], texts[1], texts[1]];
        let (rows, starts) = Rows::in_windows(&many);
        assert_eq!((rows.windows, rows.tokens.len()), ((3, texts[0].len()), 3 * texts[0].len()));
        for model in [&model, &composed] {
            let logits = all_logits(model, &rows);
            for (text, start) in many.iter().zip(&starts) {
                let expected = &fixture.logits[usize::from(*text == texts[1])];
                close(&logits[*start..start + text.len()].concat(), expected, &format!("{}, in windows", fixture.name));
            }
        }
    }
}

#[test]
fn gradients_are_those_of_transformers() {
    for fixture in fixtures() {
        for ops in [Ops::Fused, Ops::Composed] {
            let model = model_of(&fixture, ops);
            let mut loss: Option<Tensor> = None;
            for text in &fixture.texts {
                let (rows, _) = Rows::of_texts(&[&text[..text.len() - 1]]);
                let logits = model.logits(&model.hidden(&rows, None).unwrap()).unwrap();
                let targets = Tensor::from_slice(&text[1..], text.len() - 1, &Device::Cpu).unwrap();
                let sum = ops.gathered_logprob(&logits, &targets, None, 1.0).unwrap().sum_all().unwrap();
                loss = Some(match loss {
                    None => sum,
                    Some(so_far) => (sum + so_far).unwrap(),
                });
            }
            let loss = loss.unwrap().neg().unwrap();
            assert!((f64::from(loss.to_scalar::<f32>().unwrap()) - fixture.loss).abs() < 1e-3, "{}", fixture.name);
            let found = loss.backward().unwrap();
            for (name, var) in model.parameters.learned() {
                let norm = found.get(var).unwrap().sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap().sqrt();
                let expected = fixture.gradient_norms[name];
                assert!(
                    (f64::from(norm) / expected - 1.0).abs() < 1e-3,
                    "{}, {name}: {norm}, {expected}",
                    fixture.name
                );
            }
            let mut gradients = Gradients::default();
            gradients.add(&found, &model.parameters).unwrap();
            let expected = fixture.gradient_norms.values().map(|norm| norm * norm).sum::<f64>().sqrt();
            assert!((gradients.norm().unwrap() / expected - 1.0).abs() < 1e-3);
        }
    }
}

#[test]
fn a_cache_changes_nothing_to_the_last_bit() {
    for fixture in fixtures() {
        let model = model_of(&fixture, Ops::Fused);
        let texts: Vec<&[u32]> = fixture.texts.iter().map(Vec::as_slice).collect();
        let (rows, starts) = Rows::of_texts(&texts);
        let whole = all_logits(&model, &rows);
        let ModelConfig { layers, kv_heads, head_dim, .. } = model.config;
        let mut cache = Cache::new(layers, kv_heads, head_dim, 3, 20, DType::F32, &Device::Cpu).unwrap();
        // Both texts in steps of different sizes, in places that are not their numbers.
        let steps: [[usize; 2]; 4] = [[4, 2], [5, 2], [9, 3], [13, 5]];
        let mut before = [0, 0];
        for ends in steps {
            let part = |text: usize| Part {
                tokens: &texts[text][before[text]..ends[text]],
                before: before[text],
                place: 2 - text,
            };
            let rows = Rows::of_parts(&[part(0), part(1)], &cache, &Device::Cpu);
            let found =
                model.logits(&model.hidden(&rows, Some(&mut cache)).unwrap()).unwrap().to_vec2::<f32>().unwrap();
            let mut found = found.into_iter();
            for text in 0..2 {
                for position in before[text]..ends[text] {
                    assert_eq!(found.next().unwrap(), whole[starts[text] + position], "{}, {position}", fixture.name);
                }
            }
            before = ends;
        }
    }
}

fn tokenizer() -> Tokenizer {
    Tokenizer::train(std::iter::empty(), 257, &["<|end|>"]).unwrap()
}

fn small(seed: u64) -> LanguagePolicy {
    let tokenizer = tokenizer();
    let config = ModelConfig { positions: 128, ..ModelConfig::small(260, 32, 2, tokenizer.end()) };
    LanguagePolicy::fresh(config, tokenizer, seed, DeviceChoice::Cpu, Learning::Everything).unwrap()
}

fn request(seed: u64, prompt: &str) -> SampleRequest {
    SampleRequest { prompt: tokenizer().encode_plain(prompt), grammar: None, seed }
}

#[test]
fn a_seed_gives_the_same_text_whatever_is_beside_it() {
    let policy = small(3);
    let settings = SampleSettings { most_tokens: 40, ..SampleSettings::default() };
    let many: Vec<SampleRequest> =
        (0..70).map(|seed| request(seed, &"A task of some length. "[..3 + seed as usize % 20])).collect();
    let together = policy.sample(&many, &settings).unwrap();
    for number in [0, 7, 63, 64, 69] {
        let alone = policy.sample(&many[number..=number], &settings).unwrap();
        assert_eq!(alone[0], together[number], "{number}");
    }
    let mut reversed = many.clone();
    reversed.reverse();
    let mut backwards = policy.sample(&reversed, &settings).unwrap();
    backwards.reverse();
    assert_eq!(together, backwards);
    assert!(together.iter().any(|sample| sample.finish == Finish::Length));
    assert_ne!(together[0].tokens, policy.sample(&[request(1_000, "A t")], &settings).unwrap()[0].tokens);
}

#[test]
fn what_was_sampled_is_scored_the_same_to_the_last_bit() {
    let policy = small(4);
    for temperature in [0.7, 1.0, 1.5] {
        let settings = SampleSettings { most_tokens: 30, temperature, ..SampleSettings::default() };
        let requests: Vec<SampleRequest> = (0..9).map(|seed| request(seed, "Say something")).collect();
        let samples = policy.sample(&requests, &settings).unwrap();
        let sequence = |at: usize| Sequence {
            prompt: requests[at].prompt.clone(),
            tokens: samples[at].tokens.clone(),
            grammar: None,
        };
        let sequences: Vec<Sequence> = (0..samples.len()).map(sequence).collect();
        let scores = policy.score(&sequences, temperature).unwrap();
        for (sample, score) in samples.iter().zip(&scores) {
            assert_eq!(&sample.logprobs, score);
            assert!(score.iter().all(|logprob| *logprob < 0.0));
        }
    }
}

#[test]
fn the_cut_keeps_the_likeliest() {
    let policy = small(5);
    let first = |top_p: f32, temperature: f32, seed: u64| {
        let settings = SampleSettings { most_tokens: 1, top_p, temperature };
        policy.sample(&[request(seed, "x")], &settings).unwrap().remove(0)
    };
    let greedy = first(1.0, 0.0, 0);
    assert_eq!(greedy.logprobs, [0.0]);
    for seed in 0..20 {
        let narrow = first(1e-6, 1.0, seed);
        assert_eq!((&narrow.tokens, &narrow.logprobs), (&greedy.tokens, &greedy.logprobs));
        // Less than everything is likelier than before.
        let (cut, whole) = (
            first(0.5, 1.0, seed),
            policy
                .score(
                    &[Sequence { prompt: request(0, "x").prompt, tokens: first(0.5, 1.0, seed).tokens, grammar: None }],
                    1.0,
                )
                .unwrap(),
        );
        assert!(cut.logprobs[0] > whole[0][0] + 0.5, "{} {}", cut.logprobs[0], whole[0][0]);
    }
}

const STEP: StepSettings = StepSettings { learning_rate: 3e-3, temperature: 1.0, clip_norm: 1.0, micro_batch: 0 };

fn likelihood(prompt: &str, text: &str) -> Example {
    let tokenizer = tokenizer();
    let mut tokens = tokenizer.encode_plain(text);
    tokens.push(tokenizer.end());
    let weights = vec![0.02; tokens.len()];
    let sequence = Sequence { prompt: tokenizer.encode_plain(prompt), tokens, grammar: None };
    Example { sequence, objective: Objective::Likelihood { weights } }
}

fn lesson() -> Vec<Example> {
    [("one", "eins"), ("two", "zwei"), ("three", "drei"), ("four", "vier")].map(|(a, b)| likelihood(a, b)).to_vec()
}

#[test]
fn a_small_model_learns_by_heart() {
    let mut policy = small(6);
    let first = policy.update(&lesson(), &STEP).unwrap();
    for _ in 0..150 {
        policy.update(&lesson(), &STEP).unwrap();
    }
    let last = policy.update(&lesson(), &STEP).unwrap();
    assert!(last.loss < first.loss / 20.0, "{first:?} {last:?}");
    let settings = SampleSettings { temperature: 0.0, most_tokens: 10, ..SampleSettings::default() };
    let written = policy.sample(&[request(0, "two"), request(0, "four")], &settings).unwrap();
    assert_eq!(written.iter().map(|sample| sample.text.as_str()).collect::<Vec<_>>(), ["zwei", "vier"]);
    assert!(written.iter().all(|sample| sample.finish == Finish::Stop));
}

#[test]
fn micro_batches_add_up_to_the_batch() {
    let report = |micro_batch: usize| {
        let mut policy = small(7);
        let report = policy.update(&lesson(), &StepSettings { micro_batch, ..STEP }).unwrap();
        let after = policy.score(&lesson().into_iter().map(|it| it.sequence).collect::<Vec<_>>(), 1.0).unwrap();
        (report, after)
    };
    let (whole, after_whole) = report(0);
    for micro_batch in [1, 2, 3] {
        let (parts, after_parts) = report(micro_batch);
        assert!((whole.loss - parts.loss).abs() < 1e-6 && whole.tokens == parts.tokens);
        assert!((whole.gradient_norm / parts.gradient_norm - 1.0).abs() < 1e-4);
        for (a, b) in after_whole.concat().iter().zip(after_parts.concat()) {
            // The first step of Adam turns gradients near zero into whole steps: there a rounding error is one too.
            assert!((a - b).abs() < 2e-2, "{a} {b}");
        }
    }
}

/// Before the first update the policy that learns is the one that wrote: every ratio is exactly one, so that nothing is
/// clipped, nothing has diverged, and the loss is the weighted sum of the advantages.
#[test]
fn the_ratio_is_one_before_the_first_update() {
    let mut policy = small(8);
    let requests: Vec<SampleRequest> = (0..6).map(|seed| request(seed, "Write")).collect();
    let samples = policy.sample(&requests, &SampleSettings { most_tokens: 20, ..SampleSettings::default() }).unwrap();
    let example = |at: usize| {
        let sample = &samples[at];
        let (count, advantage) = (sample.tokens.len(), at as f32 - 2.5);
        Example {
            sequence: Sequence { prompt: requests[at].prompt.clone(), tokens: sample.tokens.clone(), grammar: None },
            objective: Objective::Clipped {
                weights: vec![0.25; count],
                advantages: vec![advantage; count],
                old: sample.logprobs.clone(),
                reference: Some(sample.logprobs.clone()),
                low: 0.0,
                high: 0.0,
                kl: 0.1,
            },
        }
    };
    let examples: Vec<Example> = (0..samples.len()).map(example).collect();
    let report = policy.update(&examples, &STEP).unwrap();
    let expected: f64 =
        samples.iter().enumerate().map(|(at, it)| -0.25 * (at as f64 - 2.5) * it.tokens.len() as f64).sum();
    assert_eq!((report.loss, report.clipped, report.kl_old, report.kl_reference), (expected, 0.0, 0.0, 0.0));
    // With no room to move at all, the second update finds every ratio that rose with its advantage clipped.
    let report = policy.update(&examples, &STEP).unwrap();
    assert!(report.clipped > 0.3 && report.kl_old > 0.0, "{report:?}");
}

#[test]
fn numbers_that_are_none_change_nothing() {
    let mut policy = small(9);
    let before = policy.score(&[likelihood("one", "eins").sequence], 1.0).unwrap();
    let mut bad = likelihood("one", "eins");
    bad.objective = Objective::Likelihood { weights: vec![f32::NAN; bad.sequence.tokens.len()] };
    let report = policy.update(&[bad], &STEP).unwrap();
    assert!(report.skipped);
    assert_eq!(before, policy.score(&[likelihood("one", "eins").sequence], 1.0).unwrap());
    let report = policy.update(&[], &STEP).unwrap();
    assert_eq!((report.tokens, report.skipped), (0, false));
    assert_eq!(before, policy.score(&[likelihood("one", "eins").sequence], 1.0).unwrap());
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    #[track_caller]
    fn check(result: Result<impl Sized, PolicyError>, expected: &str) {
        let Err(error) = result else { panic!("{expected}: was not refused") };
        assert_eq!(error.to_string(), expected);
    }
    let mut policy = small(10);
    let settings = SampleSettings::default();
    let empty = SampleRequest { prompt: Vec::new(), grammar: None, seed: 0 };
    check(policy.sample(&[empty], &settings), "a prompt has to have at least one token");
    let fact = "the prompt has 200 tokens, the model reads 128 in all: shorten the task";
    check(policy.sample(&[request(0, &"x".repeat(200))], &settings), fact);
    let stranger = Sequence { prompt: vec![1], tokens: vec![4_000], grammar: None };
    check(policy.score(&[stranger], 1.0), "the model has no token 4000");
    let long = Sequence { prompt: vec![1], tokens: vec![2; 128], grammar: None };
    check(policy.score(&[long], 1.0), "a sequence of 129 tokens, 1 of them prompt; from 1 to 128 can be read");
    let mut short = likelihood("one", "eins");
    short.objective = Objective::Likelihood { weights: vec![1.0] };
    check(policy.update(&[short], &STEP), "1 figures for 5 tokens");
}
